"""The journal of another process, from its beginning: what its process would have sent, but for what it has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rl_otel import _record, semconv
from rl_otel._budget import Measure
from rl_otel._folder import Folder, first_record
from rl_otel._journal import Cursor, Lock, base_of, journals, segment_path, segments
from rl_otel._life import is_here, lives
from rl_otel._ship.courier import Courier, Outlet
from rl_otel._ship.notes import Notes
from rl_otel._ship.plan import Plan
from rl_otel._ship.ready import Ready
from rl_otel._ship.route import Route

_BATCH: Final = 512  # spans that are delivered at a time


class Replay:
    """One process's journal on its way to a back end. The caller has the lock.

    Args:
        base: what the names of its files begin with.
        process: who wrote it.
        outlet: where to.
        pause: as for a `Courier`.
        gone: whether nothing more will come: then what the budget had not decided on is decided.
    """

    def __init__(
        self,
        base: Path,
        process: _record.Process,
        outlet: Outlet,
        pause: Callable[[float, bool], bool],
        *,
        gone: bool = True,
    ) -> None:
        self.sent = 0  # by this replay
        self.before = 0  # by others before it
        self.dropped = 0
        self.cursor = Cursor(base)
        self.notes = Notes(base)
        self.plan = Plan.of(process)
        self.measure = Measure(process.resource)
        self.selector = self.plan.selector(self.measure)
        self.gone = gone
        self._route = Route(self.cursor, self.selector)
        self.courier = Courier(
            outlet,
            process.resource,
            one_service=self.plan.one_service,
            notes=self.notes,
            pause=pause,
            count=self._count,
        )

    def chosen(self) -> Iterator[Ready]:
        """Yield all that the process would have sent, whether it has or not."""
        return self._route.spans(finish=self.gone)

    def due(self) -> Iterator[Ready]:
        """Yield what was not sent yet."""
        for ready in self.chosen():
            if self.notes.has(ready):
                self.before += 1
            else:
                yield ready

    def batches(self) -> Iterator[bool]:
        """Deliver what is due, a batch for each item: whether that went; the first that did not ends it."""
        for batch in batched(self.due()):
            delivered = self.courier.deliver(batch)
            yield delivered
            if not delivered:
                return
        if self.gone:
            self.notes.add_all()

    @property
    def missing(self) -> int:
        """How many spans were to be sent when their segment was gone."""
        return self._route.missing

    def close(self) -> None:
        """Close all files."""
        self.notes.close()
        self.cursor.close()

    def _count(self, sent: int, dropped: int) -> None:
        self.sent += sent
        self.dropped += dropped


class Orphans:
    """The journals in a run folder whose processes are gone from this host: a living one of the run delivers them.

    Args:
        folder: of the run.
        own: the base of the living one.
        outlet: where to.
        pause: as for a `Courier`.
    """

    def __init__(self, folder: Folder, own: Path, outlet: Outlet, pause: Callable[[float, bool], bool]) -> None:
        self._folder = folder
        self._own = own
        self._outlet = outlet
        self._pause = pause
        self._over: set[Path] = set()  # of which nothing is left to be sent, or not by us

    def waiting(self) -> bool:
        """Whether there is any."""
        return next(self._found(), None) is not None

    def batches(self) -> Iterator[bool]:
        """Deliver what they have left, a batch for each item."""
        for base, process in self._found():
            with locked(base) as ours:
                if ours:
                    yield from self._deliver(base, process)

    def _found(self) -> Iterator[tuple[Path, _record.Process]]:
        """Yield the processes that are gone and have something to be sent."""
        for base in sorted({base_of(path) for path in journals(self._folder.path)} - {self._own} - self._over):
            written = segments(base)
            process = first_record(segment_path(base, written[0])) if written else None
            if process is None:
                continue  # it has just begun, or is gone by now
            if not is_here(process) or process.format > _record.FORMAT or Notes(base).tells_all():
                self._over.add(base)
            elif _is_gone(process):
                yield base, process

    def _deliver(self, base: Path, process: _record.Process) -> Iterator[bool]:
        replay = Replay(base, process, self._outlet, self._pause)
        delivered = True
        try:
            for delivered in replay.batches():
                yield delivered
        finally:
            replay.close()
        if delivered and self._folder.passing and not (replay.selector.kept or replay.dropped):
            self._folder.remove(base)


def _is_gone(process: _record.Process) -> bool:
    # Of an earlier `configure()` in this process: it has closed its journal, and let go of the lock.
    return process.resource.get(semconv.PROCESS_PID) == os.getpid() or not lives(process)


@contextmanager
def locked(base: Path) -> Iterator[bool]:
    """Hold the lock of a process, if nobody else does; whether it is held."""
    lock = Lock(base)
    taken = lock.take()
    try:
        yield taken
    finally:
        lock.release()


def batched(ready: Iterator[Ready], size: int = _BATCH) -> Iterator[list[Ready]]:
    """Yield lists of at most `size`."""
    batch: list[Ready] = []
    for each in ready:
        batch.append(each)
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch
