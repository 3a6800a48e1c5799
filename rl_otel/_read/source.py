"""One process of a run, as its journal files tell of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rl_otel import _record, semconv
from rl_otel._journal import CHUNK, decoded, payloads
from rl_otel._life import is_here, lives

_SECOND: Final = 1_000_000_000
_ANNOUNCED: Final = 10 * _SECOND  # a call's start is written when it has been open for so long
_HEAD: Final = 1 << 12  # bytes, enough for the record that says who writes
_LOOKED_AT: Final = 4  # records of which the earliest tells when a batch was written: one may be of another time


class Batch(NamedTuple):
    """Records that a process wrote one after the other, not decoded, the first of them at `moment`."""

    moment: int
    payloads: list[bytes]


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
        self.shift = 0  # ns to add to its times, so that they are those of the other hosts
        self.lost: dict[str, int] = {}
        self._paths = paths
        self._problems = problems
        self.process = self._first()
        self.host = str(self.resource.get(semconv.HOST_NAME, ""))
        self.role = str(self.resource.get(semconv.ROLE, ""))  # what it does in the run

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

    def records(self) -> Iterator[_record.Record]:
        """Yield each record."""
        for _, found in self.batches():
            yield from filter(None, map(decoded, found))

    def spans(self, name: str) -> Iterator[_record.Start | _record.End]:
        """Yield the spans of a name as they begin and end, at a fraction of what reading all costs."""
        for _, found in self.batches():
            for payload in found:
                record = decoded(payload) if _record.is_start(payload) or _record.is_end(payload, name) else None
                if isinstance(record, (_record.Start, _record.End)) and record.name == name:
                    yield record

    def batches(self, size: int = CHUNK) -> Iterator[Batch]:
        """Yield the records, as many at a time as lie in `size` bytes of a file."""
        self.last = max(self.last, self._touched())
        moment = self.began
        for path in self._paths:
            for found in self._read(path, size):
                moments = [_moment(decoded(payload), moment) for payload in (*found[:_LOOKED_AT], found[-1])]
                yield Batch(min(moments), found)
                moment = moments[-1]
                self.last = max(self.last, moment)

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
        """Return who it is, as the first of its files says that is whole in front: each begins with that."""
        damaged: list[Path] = []
        for path in self._paths:
            before = len(self._problems)
            record = next((decoded(found[0]) for found in self._read(path, _HEAD)), None)
            if isinstance(record, _record.Process):
                if record.format > _record.FORMAT:
                    newer = f"{path} has format {record.format}, which a newer rl_otel reads: left out"
                    self._problems.append(newer)
                told = "is damaged in front: what can be read behind that is here"
                self._problems += [f"{each} {told}" for each in damaged]
                return record
            if len(self._problems) == before:
                damaged.append(path)
        self._problems += [f"{each} is empty, damaged, or no journal of rl_otel: left out" for each in damaged]
        return None

    def _read(self, path: Path, size: int = CHUNK) -> Iterator[list[bytes]]:
        try:
            yield from payloads(path, size)
        except OSError as error:
            problem = f"cannot read {path}: {error.strerror or error}"
            if problem not in self._problems:
                self._problems.append(problem)


def _moment(record: _record.Record | None, before: int) -> int:
    """Return when a record was written; one that does not tell, when that before it was."""
    if isinstance(record, (_record.End, _record.Foreign)):
        return record.end
    if isinstance(record, _record.Start):
        return record.start + (_ANNOUNCED if record.name in semconv.SERVICE_SUFFIX else 0)
    return before
