"""The journal's files: when they are made, whose they are, and that they lead nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rl_otel
from rl_otel._journal import Lock, Sent, journals, read, segment_path
from rl_otel._record import FORMAT, End, Process, Start
from tests.records import span, writer


def test_nothing_is_written_before_the_first_span() -> None:
    """Who configures and records nothing leaves no folder."""
    rl_otel.configure(run_dir="runs")
    rl_otel.shutdown()
    assert list(Path().iterdir()) == []


def test_a_journal_begins_with_who_writes_it() -> None:
    """The first record tells format, run, restart and resource."""
    rl_otel.configure(service_name="grpo", run_dir="runs", run_id="r1", resource={"rl.system": "mine"})
    with rl_otel.step(0):
        pass
    rl_otel.shutdown()
    (path,) = journals(Path("runs/r1"))
    first, *others = [record for record, _ in read(path)]
    assert isinstance(first, Process)
    assert (first.format, first.run, first.restart) == (FORMAT, "r1", 0)
    known = {key: first.resource[key] for key in ("service.name", "rl.system", "rl.run.id", "process.pid")}
    assert known == {"service.name": "grpo", "rl.system": "mine", "rl.run.id": "r1", "process.pid": os.getpid()}
    assert [type(record) for record in others] == [Start, End]


def test_a_journal_is_private() -> None:
    """Folders that are made are 0700 and files 0600, whatever the umask allows."""
    before = os.umask(0)
    try:
        rl_otel.configure(run_dir="deep/runs", run_id="r1")
        with rl_otel.step(0):
            pass
        rl_otel.shutdown()
    finally:
        os.umask(before)
    (path,) = journals(Path("deep/runs/r1"))
    modes = {str(each): oct(each.stat().st_mode & 0o777) for each in (path, *list(path.parents)[:3])}
    assert modes == {str(path): "0o600", "deep/runs/r1": "0o700", "deep/runs": "0o700", "deep": "0o700"}


@pytest.mark.parametrize("leads", ["runs", "runs/r1"])
def test_another_users_link_is_not_followed(
    leads: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody else has laid a link, nothing is written behind it; one line says so."""
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    link = Path(leads)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere.absolute())
    belongs_to_another(link, monkeypatch)

    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0):
        pass
    report = rl_otel.shutdown()
    assert (report.kept, report.dropped) == (0, 1)
    assert not list(elsewhere.rglob("*.journal"))
    assert [record.getMessage() for record in caplog.records] == [
        f"rl_otel: cannot write to the run folder {Path('runs/r1').absolute()}, spans wait in memory (8 MiB at most, "
        f"what does not fit is counted): {link.absolute()} belongs to another user"
    ]


def test_another_users_folder_in_a_public_place_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody else made in /tmp under our name could be changed under our hands."""
    public = Path("public")
    public.mkdir(mode=0o700)
    public.chmod(0o1777)
    (public / "rl-otel").mkdir(mode=0o777)
    belongs_to_another(public / "rl-otel", monkeypatch)
    rl_otel.configure(run_dir=public / "rl-otel", run_id="r1")
    with rl_otel.step(0):
        pass
    assert rl_otel.shutdown().dropped == 1


def belongs_to_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `path` look as if another user had made it."""
    try:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    except PermissionError:
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)


@pytest.mark.parametrize("name", ["segment", "sent", "lock"])
def test_a_link_in_place_of_a_file_is_not_followed(name: str) -> None:
    """Nothing is ever written into a file that a link of a journal's name leads to."""
    target = Path("target")
    target.touch(0o644)
    journal = writer()
    journal.folder.mkdir()
    segment = segment_path(journal.base, 0)
    sent, lock = Sent(segment), Lock(journal.base)
    {"segment": segment, "sent": sent.path, "lock": lock.path}[name].symlink_to(target.absolute())
    journal.end(span(1))
    journal.close()
    sent.add([b"12345678"])
    lock.take()
    assert journal.overflow.spans == (name == "segment")
    assert target.read_bytes() == b""


def test_all_files_of_a_process_are_private() -> None:
    """Segments, what was sent and the lock are for their user alone, whatever the umask allows."""
    before = os.umask(0)
    try:
        journal = writer()
        journal.end(span(1))
        sent = Sent(segment_path(journal.base, 0))
        sent.add([b"12345678"])
        lock = Lock(journal.base)
        assert lock.take()
    finally:
        os.umask(before)
    modes = {path.suffix: oct(path.stat().st_mode & 0o777) for path in journal.folder.iterdir()}
    assert modes == {".journal": "0o600", ".sent": "0o600", ".lock": "0o600"}


def test_what_ends_after_shutdown_is_written_nowhere() -> None:
    """A span that was open at shutdown ends without harm, and reopens no file."""
    rl_otel.configure(run_dir="runs", run_id="r1")
    step = rl_otel.step(0).start()
    rl_otel.shutdown()
    step.end()
    kinds = [type(record) for path in journals(Path("runs/r1")) for record, _ in read(path)]
    assert kinds == [Process, Start]
