"""Run folders as a reader sees them: which runs there are, and the records of all processes of one, in time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import Final

from rl_otel import _record, semconv
from rl_otel._folder import places
from rl_otel._journal import base_of, journals, read
from rl_otel._life import is_here, lives
from rl_otel._terminal import command

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
        self.last = 0  # ns since the epoch: the last sign of life, of the records that were read and of the files
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
        self.last = max(self.last, self._touched())
        moment = self.began
        for path in self._paths:
            for record in self._read(path):
                moment = _moment(record, moment)
                self.last = max(self.last, moment)
                if isinstance(record, _record.Lost):
                    self.lost = record.counts
                yield moment, self, record

    @property
    def is_here(self) -> bool:
        """Whether the process ran on this host."""
        return self.process is not None and is_here(self.process)

    def lives(self) -> bool:
        """Whether the process still runs, on this host."""
        return self.process is not None and lives(self.process)

    def _touched(self) -> int:
        """When a file was last written to, or touched by the process as a sign of life; in ns since the epoch."""
        try:
            return max(path.stat().st_mtime_ns for path in self._paths)
        except OSError:
            return 0

    def _first(self) -> _record.Process | None:
        path, before = self._paths[0], len(self._problems)
        record = next(self._read(path), None)
        if isinstance(record, _record.Process):
            if record.format > _record.FORMAT:
                self._problems.append(f"{path} has format {record.format}, which a newer rl_otel reads: left out")
            return record
        if len(self._problems) == before:
            self._problems.append(f"{path} is empty, damaged, or no journal of rl_otel: left out")
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
        files = groupby(journals(folder), key=base_of)
        sources = (Source(base.name, list(paths), self.problems) for base, paths in files)
        self.sources = [source for source in sources if source.readable]

    @property
    def lost(self) -> int:
        """How many spans never reached a journal, as far as their processes could still say so."""
        return sum(sum(source.lost.values()) for source in self.sources)

    def records(self) -> Iterator[tuple[int, Source, _record.Record]]:
        """Yield the records of all processes in the order of time, as nearly as their clocks agree."""
        return merge(*(source.records() for source in self.sources), key=lambda item: item[0])


def find_run(path: Path, verb: str) -> Path:
    """Return the run folder that `path` means: one itself, the only one in it, or one by its name where runs are kept.

    Raises:
        NoRun: there is none, or more than one.
    """
    for folder in (path, *(place / path for place in places())):
        if folder.is_dir() and journals(folder):
            return folder
    runs = _runs(path)
    if len(runs) == 1:
        return runs[0]
    if runs:
        names = _listed([run.name for run in runs])
        raise NoRun(f"{path} holds {len(runs)} runs, newest first: {names}. Try: {command(verb, runs[0])}")
    if path.is_file() and journals(path.parent):
        raise NoRun(f"{path} is a file; give the run folder. Try: {command(verb, path.parent)}")
    found = "is a file" if path.is_file() else "has no journals" if path.is_dir() else "is not there"
    raise NoRun(f"{path} {found}; {_elsewhere(verb)}")


def newest_run(verb: str) -> Path:
    """Return the run folder that was written to last.

    Raises:
        NoRun: there is none.
    """
    runs = _runs(*places())
    if not runs:
        raise NoRun(_elsewhere(verb))
    return runs[0]


def _elsewhere(verb: str) -> str:
    """Return which runs there are, and what to type."""
    runs = _runs(*places())
    if runs:
        names = _listed([str(run) for run in runs])
        return f"your runs, newest first: {names}. Try: {command(verb, runs[0])}"
    looked = ", ".join(map(str, dict.fromkeys(places())))
    return f"no run in {looked}: a run makes one once it has called rl_otel.configure() and opened its first span"


def _runs(*folders: Path) -> list[Path]:
    """Return the run folders in `folders`, that written last first."""
    written: dict[Path, float] = {}
    for folder in folders:
        for each in folder.iterdir() if folder.is_dir() else ():
            written[each] = max(map(_written, journals(each)), default=0.0) if each.is_dir() else 0.0
    return sorted(filter(written.get, written), key=lambda run: (written[run], run), reverse=True)


def _written(journal: Path) -> float:
    """Return when a journal was last written to, in s since the epoch; 0 where it is gone meanwhile."""
    try:
        return journal.stat().st_mtime
    except OSError:
        return 0.0


def _listed(names: list[str]) -> str:
    told = ", ".join(names[:_LISTED])
    return told if len(names) <= _LISTED else f"{told} and {len(names) - _LISTED} more"


def _moment(record: _record.Record, before: int) -> int:
    if isinstance(record, (_record.End, _record.Foreign)):
        return record.end
    if isinstance(record, _record.Start):
        return record.start + (_ANNOUNCED if record.name in semconv.SERVICE_SUFFIX else 0)
    return before
