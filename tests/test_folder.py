"""Folders that only serve the sending: what was left there goes after a week, and nothing else does."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest

import rl_otel
from rl_otel import _life, semconv
from rl_otel._journal import Lock, Sent, base_of, journals
from tests import process
from tests.journal_maker import Maker
from tests.receiver import Receiver

DAY = 24 * 3600


def passing() -> Path:
    """Return where folders lie that only serve the sending."""
    return Path(tempfile.gettempdir()) / f"rl-otel-{os.geteuid()}"


def left(folder: Path, days: float, **resource: object) -> Path:
    """Return a run folder with all that a killed process leaves, last touched so many days ago."""
    maker = Maker(folder, **resource)
    Sent(maker.path).add([b"12345678"])
    Lock(folder / "host-1-aaaaaaaa").take()
    for path in (*folder.iterdir(), folder):
        os.utime(path, (time.time() - days * DAY,) * 2)
    return folder


def configure() -> None:
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http)
        rl_otel.shutdown()


def test_what_was_left_a_week_ago_goes() -> None:
    """Journals, lists and locks of a run that nobody came back to are removed by the next run."""
    old, young = left(passing() / "old", 7.1), left(passing() / "young", 6.9)
    configure()
    assert (old.exists(), young.exists()) == (False, True)
    assert len(list(young.iterdir())) == 3


def test_one_young_file_keeps_a_folder() -> None:
    """Where a process of the run, or whoever delivers for it, was at work this week, nothing goes."""
    old = left(passing() / "old", 30)
    sent = next(old.glob("*.sent"))
    os.utime(sent, (time.time() - DAY,) * 2)
    configure()
    assert len(list(old.iterdir())) == 3


def test_a_process_that_lives_keeps_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped for a week and more has its journal when it goes on."""
    monkeypatch.setattr(_life, "started_at", lambda pid: None)
    here = {semconv.HOST_NAME: socket.gethostname(), semconv.PROCESS_PID: os.getpid()}
    stopped, gone = left(passing() / "stopped", 30, **here), left(passing() / "gone", 30)
    configure()
    assert (stopped.exists(), gone.exists()) == (True, False)


def test_what_is_not_ours_stays() -> None:
    """A file among ours, with the folder it lies in, and what a link leads to are left alone."""
    mixed, linked = left(passing() / "mixed", 30), left(Path("linked"), 30)
    (mixed / "notes.txt").touch()
    os.utime(mixed / "notes.txt", (1, 1))
    os.utime(mixed, (1, 1))
    (passing() / "link").symlink_to(linked.absolute())
    (passing() / "file").touch()
    os.utime(passing() / "file", (1, 1))
    configure()
    assert [path.name for path in mixed.iterdir()] == ["notes.txt"]
    assert len(list(linked.iterdir())) == 3
    assert (passing() / "file").exists()


def test_folders_that_were_asked_for_stay() -> None:
    """With `run_dir` or without an endpoint journals are the user's, however old."""
    asked, default = left(Path("runs/old"), 300), left(Path("rl-otel-runs/old"), 300)
    for arguments in ({"run_dir": "runs"}, {}):
        rl_otel.configure(**arguments)
        rl_otel.shutdown()
    assert (asked.exists(), default.exists()) == (True, True)


def test_what_says_that_all_was_sent_goes_behind_what_was_sent() -> None:
    """Who is killed while it removes its files leaves none that whoever comes next would send once more."""
    script = """
        import os, signal, sys
        import rl_otel
        def strike(event, arguments):
            if event == "os.remove" and str(arguments[0]).endswith((".sent", ".lock")):
                os.kill(os.getpid(), signal.SIGKILL)
        rl_otel.configure(run_id="r1")
        with rl_otel.step(0):
            pass
        sys.addaudithook(strike)
        rl_otel.shutdown()
    """
    with Receiver() as receiver:
        done = process.run(script, env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.http}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert {path.suffix for path in (passing() / "r1").iterdir()} == {".sent", ".lock"}


def test_a_clean_end_takes_everything_along() -> None:
    """Where all was delivered, lists and lock go with the segments."""
    folder = passing() / "r1"
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_id="r1")
        with rl_otel.step(0):
            pass
        rl_otel.flush()
        (journal,) = journals(folder)
        Sent(journal).add([b"12345678"])
        Lock(base_of(journal)).take()
        assert {path.suffix for path in folder.iterdir()} == {".journal", ".sent", ".lock"}
        rl_otel.shutdown()
    assert not folder.exists()
