"""Temporary run folders while spans wait: bounded, and every span that goes is counted."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import rl_otel
from rl_otel._journal import journals, room, writer
from rl_otel._ship import shipper
from tests.receiver import Receiver, dead_port
from tests.shipping import arrived, play_step
from tests.waiting import until

_CAP = 100_000


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
    monkeypatch.setattr(room, "CAP", _CAP)
    monkeypatch.setattr(writer, "SEGMENT", 20_000)
    monkeypatch.setattr(shipper, "_TRIM", 0.0)


def on_disk(folder: str) -> int:
    total = 0
    for journal in journals(Path(folder)):
        with contextlib.suppress(FileNotFoundError):  # it goes meanwhile
            total += journal.stat().st_size
    return total


@pytest.mark.once
def test_in_an_outage_the_oldest_go_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Pending and dropped are all that ended, and no more is on disk than may be."""
    rl_otel.configure(endpoint=f"http://127.0.0.1:{dead_port()}", run_id="run")
    for index in range(10):
        play_step(index, 10, 10)
        folder = rl_otel.flush(timeout=0.05).folder
    until(lambda: rl_otel.flush(timeout=0.05).dropped and on_disk(folder) <= _CAP)
    done = rl_otel.shutdown(timeout=0.2)
    assert (done.sent, done.kept, done.pending + done.dropped) == (0, 0, 10 * 212)
    assert on_disk(done.folder) <= _CAP + 40_000
    assert any("wait to be sent, the oldest go" in message for message in caplog.messages)


@pytest.mark.once
def test_what_was_sent_makes_room(receiver: Receiver) -> None:
    """While the back end answers, all arrives once, and the folder stays small."""
    rl_otel.configure(endpoint=receiver.http, run_id="run")
    for index in range(20):
        play_step(index, 10, 10)
        folder = rl_otel.flush().folder
    until(lambda: on_disk(folder) <= _CAP)
    assert rl_otel.shutdown() == rl_otel.Delivery(sent=20 * 212)
    assert len(arrived(receiver)) == 20 * 212


def test_what_no_disk_takes_is_sent_from_memory(receiver: Receiver, tmp_path: Path) -> None:
    """A folder that cannot be made costs neither a span nor a second copy."""
    file = tmp_path / "file"
    file.write_text("")
    rl_otel.configure(endpoint=receiver.http, run_dir=file, run_id="run")
    play_step(0, 10, 10)
    assert rl_otel.shutdown() == rl_otel.Delivery(sent=212)
    assert len(arrived(receiver)) == 212
