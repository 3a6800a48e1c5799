"""Beside a journal: what was sent of it, who may send it, and how much of it may lie there."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import _record
from rl_otel._journal import Cursor, Lock, Room, Sent, frame, room, segment_path, segments
from rl_otel._journal import writer as writing
from tests import process
from tests.disk import disk
from tests.records import span, writer

if TYPE_CHECKING:
    from rl_otel._journal import Writer

JOURNAL = Path("host-1-instance.00000.journal")
SENT = Path("host-1-instance.00000.sent")
IDS = [bytes([n]) * 8 for n in range(10)]


# --- What was sent ----------------------------------------------------------------------------------------------------


def test_ids_are_appended_eight_bytes_each() -> None:
    """The file is the ids and nothing else, so anything can read it."""
    sent = Sent(JOURNAL)
    assert sent.ids() == set()
    sent.add(IDS[:2])
    sent.add(iter(IDS[2:3]))
    sent.add([])
    assert SENT.read_bytes() == b"".join(IDS[:3])
    assert sent.ids() == Sent(JOURNAL).ids() == set(IDS[:3])
    sent.close()


def test_nothing_sent_makes_no_file() -> None:
    """Who looks, or notes nothing, leaves nothing."""
    sent = Sent(JOURNAL)
    sent.add([])
    sent.close()
    assert not SENT.exists()


def test_a_torn_id_is_cut_off() -> None:
    """Half an id, as a killed process leaves it, is none, and the ids behind it are whole."""
    SENT.write_bytes(IDS[0] + IDS[1][:5])
    assert Sent(JOURNAL).ids() == {IDS[0]}
    sent = Sent(JOURNAL)
    sent.add(IDS[2:4])
    sent.close()
    assert SENT.read_bytes() == IDS[0] + IDS[2] + IDS[3]


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 20))), max_size=8))
def test_short_writes_tear_no_id(batches: list[tuple[int, int | None]]) -> None:
    """Whatever part of a batch a full disk takes, the rest follows when it can, and every id stays whole."""
    SENT.unlink(missing_ok=True)
    sent, noted = Sent(JOURNAL), []
    with disk() as place:
        for number, space in batches:
            place.space = space
            sent.add(IDS[:number])
            noted += IDS[:number]
            assert sent.ids() == set(noted)
        place.space = None
        sent.close()
    assert (SENT.read_bytes() if noted else b"") == b"".join(noted)


def test_a_folder_that_takes_nothing_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """What was sent is known to the process all the same; a crash would send it again."""
    sent = Sent(Path("missing") / JOURNAL)
    for each in IDS:
        sent.add([each])
    assert sent.ids() == set(IDS)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("rl_otel: cannot note in missing/host-1-instance.00000.sent what was sent: ")


# --- Who may send -----------------------------------------------------------------------------------------------------

HOLDS = """
    import os, sys, time
    from pathlib import Path
    from rl_otel._journal import Lock
    lock = Lock(Path("base"))
    assert lock.take()
    child = os.fork()
    if child == 0:
        lock.release()
        open("forked", "w").close()
        os.close(1), os.close(2)
        time.sleep(10)
        os._exit(0)
    while not os.path.exists("forked"):
        time.sleep(0.01)
    Path("child").write_text(str(child))
    assert not Lock(Path("base")).take()
    os.kill(os.getpid(), 9)
"""


def test_one_at_a_time() -> None:
    """Who comes second is sent away until the first lets go; taking it twice is no harm."""
    first, second = Lock(Path("base")), Lock(Path("base"))
    assert first.take()
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    assert not first.take()
    second.release()
    second.release()


def test_a_killed_process_holds_nothing_though_its_child_lives() -> None:
    """A child that let go keeps the parent's lock neither from it nor, when it was killed, from others."""
    done = process.run(HOLDS, check=False)
    child = int(Path("child").read_text())
    try:
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert Lock(Path("base")).take()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_that_was_removed_is_made_anew() -> None:
    """Whoever holds a file that is no longer there keeps out nobody who comes later, and is kept out of no other."""
    first = Lock(Path("base"))
    assert first.take()
    first.path.unlink()
    second, third = Lock(Path("base")), Lock(Path("base"))
    assert second.take()
    assert not third.take()


def test_where_nothing_can_be_locked_nobody_is_kept_out() -> None:
    """A folder that takes no files still has its journals delivered."""
    assert Lock(Path("missing/base")).take()


# --- How much may lie there -------------------------------------------------------------------------------------------


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """Return a journal of ten spans, each in a segment of its own of more than 1000 bytes; 3800 are allowed."""
    assert room.CAP == 256_000_000
    monkeypatch.setattr(writing, "SEGMENT", 1000)
    monkeypatch.setattr(room, "CAP", 3800)
    journal = writer()
    for number in range(10):
        journal.end(span(number, 1000))
    assert segments(journal.base) == list(range(11))
    return journal


def test_what_was_delivered_goes_first(journal: Writer, caplog: pytest.LogCaptureFixture) -> None:
    """The oldest of the delivered segments go with their lists until the rest fits, and nothing is lost by it."""
    caplog.set_level(logging.INFO)
    for number in range(10):
        Sent(segment_path(journal.base, number)).add([IDS[number]])
    delivered = set(range(1, 9))
    assert Room(Cursor(journal.base)).trim(delivered) == 0
    assert segments(journal.base) == [0, 8, 9, 10]
    assert len(list(Path("run").glob("*.sent"))) == 3
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "rl_otel: run: more than 0 MB, what was sent goes")
    ]


def test_in_an_outage_the_oldest_go_and_are_counted(journal: Writer, caplog: pytest.LogCaptureFixture) -> None:
    """Without a delivered segment the oldest go all the same; the spans that nobody had read are told."""
    cursor = Cursor(journal.base, overflow=journal.overflow)
    reading = iter(cursor)
    for _ in range(4):  # two of the spans, each behind the first record of its segment
        next(reading)
    assert Room(cursor).trim(()) == 5
    assert segments(journal.base) == [7, 8, 9, 10]
    assert [record.getMessage() for record in caplog.records] == [
        "rl_otel: run: more than 0 MB wait to be sent, the oldest go"
    ]
    left = [record.span[-1] for record, _ in cursor if isinstance(record, _record.End)]
    assert left == [7, 8, 9]


def test_what_another_exporter_sends_is_not_counted(journal: Writer) -> None:
    """A span that is in the journal only to be read there is no loss to the sending."""
    local = _record.End(b"t" * 16, b"local---", b"", "http", 1, 2, {}, _record.LOCAL)
    with segment_path(journal.base, 0).open("ab") as file:
        file.write(frame(_record.encode(local)))
    assert Room(Cursor(journal.base)).trim(()) == 7


def test_the_segment_that_is_written_stays(journal: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the room, the file that the process writes to is not taken from it."""
    monkeypatch.setattr(room, "CAP", 0)
    assert Room(Cursor(journal.base)).trim(range(100)) == 0
    assert segments(journal.base) == [10]
    journal.end(span(10, 10))
    assert [record.span[-1] for record, _ in Cursor(journal.base) if isinstance(record, _record.End)] == [10]


def test_what_fits_stays(journal: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the limit a delivered segment is left for readers."""
    monkeypatch.setattr(room, "CAP", 100_000)
    assert Room(Cursor(journal.base)).trim(range(100)) == 0
    assert len(segments(journal.base)) == 11
