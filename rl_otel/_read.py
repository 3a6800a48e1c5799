"""Run folders as a reader sees them: which runs there are, and the records of all processes of one, in time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import Final

from rl_otel import _record, semconv
from rl_otel._journal import journals, read

RUNS: Final = Path("rl-otel-runs")
_LISTED: Final = 8
_SECOND: Final = 1_000_000_000
_ANNOUNCED: Final = 10 * _SECOND  # a call's start is written when it has been open for so long


class NoRun(Exception):
    """There is no run at that path. The message says what is there instead, and what to type."""


class Source:
    """One process of a run, as its journal files tell of it.

    Args:
        name: What its files are called, up to the segment.
        paths: The files, in order.
        problems: Where to note what could not be read, a sentence each.
    """

    def __init__(self, name: str, paths: list[Path], problems: list[str]) -> None:
        self.name = name
        self.last = 0  # ns since the epoch: the latest moment of a record that was read
        self.lost: dict[str, int] = {}
        self._paths = paths
        self._problems = problems
        self.process = self._first()

    @property
    def readable(self) -> bool:
        """Whether it says who it is, in a format that is known."""
        return self.process is not None and self.process.format <= _record.FORMAT

    @property
    def restart(self) -> int:
        """Which attempt of the run it belongs to, counted from 0."""
        return self.process.restart if self.process is not None else 0

    @property
    def resource(self) -> _record.Attributes:
        """What the process says of itself."""
        return self.process.resource if self.process is not None else {}

    @property
    def began(self) -> int:
        """When it was configured, in ns since the epoch."""
        return self.process.time if self.process is not None else 0

    def records(self) -> Iterator[tuple[int, Source, _record.Record]]:
        """Yield each record with its moment; one that has none takes that of the record before it."""
        moment = self.began
        for path in self._paths:
            for record in self._read(path):
                moment = _moment(record, moment)
                self.last = max(self.last, moment)
                if isinstance(record, _record.Lost):
                    self.lost = record.counts
                yield moment, self, record

    def lives(self) -> bool:
        """Whether the process still runs, on this host."""
        pid = self.resource.get(semconv.PROCESS_PID)
        if self.resource.get(semconv.HOST_NAME) != socket.gethostname() or not isinstance(pid, int):
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # it is somebody else's, and there
        started = _started(pid)
        # A number that was given to another process since began after our process did.
        return started is None or started <= self.began + _SECOND

    def _first(self) -> _record.Process | None:
        path, before = self._paths[0], len(self._problems)
        record = next(self._read(path), None)
        if isinstance(record, _record.Process):
            if record.format > _record.FORMAT:
                self._problems.append(f"{path} has format {record.format}, which a newer rl_otel reads: left out")
            return record
        if len(self._problems) == before:
            self._problems.append(f"{path} does not say which process wrote it: left out")
        return None

    def _read(self, path: Path) -> Iterator[_record.Record]:
        try:
            for record, _ in read(path):
                yield record
        except OSError as error:
            problem = f"cannot read {path}: {error.strerror or error}"
            if problem not in self._problems:
                self._problems.append(problem)


class Run:
    """All processes of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        files = groupby(journals(folder), key=lambda path: path.name.rsplit(".", 2)[0])
        sources = (Source(name, list(paths), self.problems) for name, paths in files)
        self.sources = [source for source in sources if source.readable]

    @property
    def lost(self) -> int:
        """How many spans never reached a journal, as far as their processes could still say so."""
        return sum(sum(source.lost.values()) for source in self.sources)

    def records(self) -> Iterator[tuple[int, Source, _record.Record]]:
        """Yield the records of all processes in the order of time, as nearly as their clocks agree."""
        return merge(*(source.records() for source in self.sources), key=lambda item: item[0])


def find_run(path: Path, verb: str) -> Path:
    """Return the run folder that `path` means: one itself, the only one in it, or one of ./rl-otel-runs by its name.

    Raises:
        NoRun: there is none, or more than one.
    """
    for folder in (path, RUNS / path):
        if folder.is_dir() and journals(folder):
            return folder
    if path.is_file():
        raise NoRun(f"{path} is a file; give the run folder. Try: rl-otel {verb} {path.parent}")
    runs = _runs(path)
    if len(runs) == 1:
        return runs[0]
    if runs:
        raise NoRun(f"{path} holds {len(runs)} runs, newest first: {_listed(runs)}. Try: rl-otel {verb} {runs[0]}")
    raise NoRun(f"no run folder at {path}; {_elsewhere(verb)}")


def _elsewhere(verb: str) -> str:
    runs = _runs(RUNS)
    if not runs:
        return f"a run makes one in ./{RUNS} once it has called rl_otel.configure() and opened its first span"
    return f"your runs are in ./{RUNS}, newest first: {_listed(runs)}. Try: rl-otel {verb} {runs[0]}"


def _runs(folder: Path) -> list[Path]:
    """Return the run folders in `folder`, that written last first."""
    written: list[tuple[float, Path]] = []
    for each in folder.iterdir() if folder.is_dir() else ():
        files = journals(each) if each.is_dir() else []
        if files:
            written.append((max(file.stat().st_mtime for file in files), each))
    return [each for _, each in sorted(written, reverse=True)]


def _listed(runs: list[Path]) -> str:
    names = ", ".join(run.name for run in runs[:_LISTED])
    return names if len(runs) <= _LISTED else f"{names} and {len(runs) - _LISTED} more"


def _moment(record: _record.Record, before: int) -> int:
    if isinstance(record, (_record.End, _record.Foreign)):
        return record.end
    if isinstance(record, _record.Start):
        return record.start + (_ANNOUNCED if record.name in semconv.SERVICE_SUFFIX else 0)
    return record.time if isinstance(record, _record.Process) else before


def _started(pid: int) -> int | None:
    """Return when a process started, in ns since the epoch; None where the system does not tell."""
    try:
        # The program's name, in brackets, may hold anything; the start is the 20th field after it.
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        booted = int(Path("/proc/stat").read_text().partition("btime ")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return booted * _SECOND + ticks * _SECOND // os.sysconf("SC_CLK_TCK")
