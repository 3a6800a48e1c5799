"""Finding runs and reading their journals, whole, torn, foreign and several at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_otel import _record, semconv
from rl_otel._analysis import Analysis
from rl_otel._journal import frame
from rl_otel._read import NoRun, Run, Source, find_run, newest_run
from rl_otel._read import source as sources
from rl_otel._record import decode
from rl_otel._terminal import command
from tests.journal_maker import BEGAN, Maker, S


def records(run: Run) -> list[_record.Record]:
    return [decode(payload) for batch in run.batches() for payload in batch.payloads]


def names(run: Run) -> list[str]:
    return [record.name for record in records(run) if isinstance(record, (_record.Start, _record.End))]


def test_a_path_without_a_run_names_the_runs_there_are() -> None:
    """Who mistypes the folder is shown their runs and what to type."""
    runs = [Path("rl-otel-runs/new"), Path(tempfile.gettempdir()) / f"rl-otel-{os.geteuid()}" / "sent"]
    for age, run in enumerate(runs):
        os.utime(Maker(run).path, (1000 - age, 1000 - age))
    with pytest.raises(NoRun) as caught:
        find_run(Path("nowhere"), "report")
    assert str(caught.value) == (
        f"nowhere is not there; your runs, newest first: {runs[0]}, {runs[1]}. Try: {command('report', runs[0])}"
    )


def test_without_any_run_it_says_where_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any run at all the message names the places and says what makes one."""
    monkeypatch.setenv("RL_OTEL_RUN_DIR", "mine")
    looked = f"mine, rl-otel-runs, {tempfile.gettempdir()}/rl-otel-{os.geteuid()}"
    makes = "a run makes one once it has called rl_otel.configure() and opened its first span"
    with pytest.raises(NoRun) as caught:
        newest_run("report")
    assert str(caught.value) == f"no run in {looked}: {makes}"
    with pytest.raises(NoRun) as caught:
        find_run(Path("nowhere"), "report")
    assert str(caught.value) == f"nowhere is not there; no run in {looked}: {makes}"


def test_the_newest_run_is_found_wherever_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the environment, the one here and the one for spans that are sent: the run written last counts."""
    monkeypatch.setenv("RL_OTEL_RUN_DIR", "mine")
    places = [Path("rl-otel-runs"), Path(tempfile.gettempdir()) / f"rl-otel-{os.geteuid()}", Path("mine")]
    for age, place in enumerate(places):
        os.utime(Maker(place / f"run-{age}").path, (1000 + age, 1000 + age))
        assert newest_run("report") == place / f"run-{age}"
        assert find_run(Path(f"run-{age}"), "report") == place / f"run-{age}"


def test_a_folder_without_journals_is_said_to_have_none() -> None:
    """A folder that exists is not said to be missing."""
    Path("empty").mkdir()
    with pytest.raises(NoRun, match=r"^empty has no journals; no run in "):
        find_run(Path("empty"), "report")


def test_a_folder_of_several_runs_names_them_newest_first() -> None:
    """Which of several runs is meant is not guessed."""
    for age, name in enumerate(["new", "middle", "old"]):
        os.utime(Maker(Path("runs") / name).path, (1000 - age, 1000 - age))
    with pytest.raises(NoRun) as caught:
        find_run(Path("runs"), "export")
    assert str(caught.value) == (
        "runs holds 3 runs, newest first: new, middle, old. Try: " + command("export", "runs/new")
    )


def test_a_journal_given_for_its_folder_is_told_apart() -> None:
    """The file inside is one step too deep, and the message names the folder, if it is one of a run."""
    journal = Maker(Path("runs/a")).path
    with pytest.raises(NoRun) as caught:
        find_run(journal, "report")
    assert str(caught.value) == f"{journal} is a file; give the run folder. Try: {command('report', 'runs/a')}"
    Path("notes").touch()
    with pytest.raises(NoRun, match=r"^notes is a file; no run in "):
        find_run(Path("notes"), "report")


def test_a_run_is_found_by_folder_by_the_only_one_in_it_and_by_name() -> None:
    """What can only mean one run is taken for it."""
    Maker(Path("rl-otel-runs/a"))
    for path in ("rl-otel-runs/a", "rl-otel-runs", "a"):
        assert find_run(Path(path), "report") == Path("rl-otel-runs/a")


def test_what_cannot_be_read_is_named_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal without permission, one of a newer format and one of garbage cost themselves alone."""
    folder = Path("run")
    Maker(folder).end("step", 0, 1)
    locked = Maker(folder, "locked-1-a").path
    newer = Maker(folder, "newer-1-a").path
    process = _record.Process(_record.FORMAT + 1, "run", 0, {}, BEGAN, 0)
    newer.write_bytes(frame(_record.encode(process)))
    (folder / "torn-1-a.00000.journal").write_bytes(b"\xc1R\x05")

    def read(path: Path, size: int) -> Iterator[list[bytes]]:
        if path == locked:
            raise PermissionError(13, "Permission denied")
        return original(path, size)

    original = sources.payloads
    monkeypatch.setattr(sources, "payloads", read)
    run = Run(folder)
    assert names(run) == ["step"]
    assert run.problems == [
        "cannot read run/locked-1-a.00000.journal: Permission denied",
        f"run/newer-1-a.00000.journal has format {_record.FORMAT + 1}, which a newer rl_otel reads: left out",
        "run/torn-1-a.00000.journal is empty, damaged, or no journal of rl_otel: left out",
    ]


def test_a_torn_tail_ends_a_journal_silently() -> None:
    """The last record of a killed process may be half; what is before it counts."""
    maker = Maker(Path("run"))
    maker.end("step", 0, 1)
    maker.end("eval", 1, 2)
    maker.path.write_bytes(maker.path.read_bytes()[:-3])
    run = Run(Path("run"))
    assert (names(run), run.problems) == (["step"], [])


def test_records_of_several_processes_come_in_time() -> None:
    """Each process wrote in its own time; together they are one row of moments, some hundred of one at a time."""
    first, second = Maker(Path("run"), "a-1-a"), Maker(Path("run"), "b-2-b")
    for moment in range(1000):
        first.end("train", moment, moment + 1)
    for moment in range(300, 700):
        second.end("rollout", moment, moment + 1)
    reached = 0
    for until, source, payloads in Run(Path("run")).batches():
        ends = [record.end for record in map(decode, payloads) if isinstance(record, _record.End)]
        assert until >= reached
        assert min(ends) >= reached
        assert source.name in ("a-1-a", "b-2-b")
        reached = min(until, *ends)


def test_the_segments_of_a_process_are_one_source() -> None:
    """A journal that was continued in a second file is read on there."""
    maker = Maker(Path("run"))
    maker.end("data", 0, 1)
    later = Maker(Path("run"), "other-1-a")
    later.end("train", 1, 2)
    later.path.rename(maker.path.with_name("host-1-aaaaaaaa.00001.journal"))
    run = Run(Path("run"))
    assert (len(run.sources), names(run)) == (1, ["data", "train"])


def test_spans_that_never_reached_a_journal_are_counted() -> None:
    """The last counts of each process are added up."""
    maker = Maker(Path("run"))
    maker.write(_record.Lost({"journal": 1}))
    maker.write(_record.Lost({"journal": 2, "late": 3}))
    run = Run(Path("run"))
    list(Analysis(run).steps())
    assert run.lost == 5


def source(**process: Any) -> Source:
    maker = Maker(Path(f"run {process}"), **{"host.name": socket.gethostname(), **process})
    return Run(maker.path.parent).sources[0]


def test_whether_a_process_lives_is_seen_on_its_own_host_only() -> None:
    """A number means nothing on another host, once its process is gone, or when it was given out again."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert not source(**{semconv.PROCESS_PID: int(gone.stdout)}).lives()
    assert not source(**{semconv.PROCESS_PID: os.getpid(), semconv.HOST_NAME: "elsewhere"}).lives()
    assert not source(**{semconv.PROCESS_PID: 1 << 62}).lives()
    living = source(**{semconv.PROCESS_PID: os.getpid()})
    assert living.process is not None
    if Path("/proc/stat").exists():
        assert not living.lives()  # this process began long after the journal's
    living.process.time = 4_000_000_000 * S
    assert living.lives()
