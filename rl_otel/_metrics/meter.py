"""Takes what is measured, on the host's threads, and exports it every few seconds, on a thread of ours."""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Protocol

from rl_otel import semconv_metrics as table
from rl_otel._config import Config
from rl_otel._metrics.calls import Calls
from rl_otel._metrics.observed import Last, Watched
from rl_otel._metrics.series import Series
from rl_otel._safety import pass_on, say, swallow
from rl_otel._thread import Worker

if TYPE_CHECKING:
    from rl_otel._metrics.collection import Collection
    from rl_otel._metrics.instruments import Instruments

#: Whether measurements may be exemplars: of spans that are not sampled, and of those that are.
_SHOWN: Final = {"trace_based": (False, True), "always_on": (True, True), "always_off": (False, False)}
_KEPT: Final = 60  # exports that wait while a receiver of deltas is away
_AGAIN: Final = 0.25  # s between two tries at the end
_RESERVE: Final = 0.2  # of the time to end: what is left to the last export if the spans need all the rest
_MANY: Final = 10_000  # events, after which the host's thread gives them to the instruments


class Outlet(Protocol):
    """Where metrics go."""

    @property
    def protocol(self) -> str:
        """How requests are encoded: a name of an OTLP protocol."""

    def send(self, body: bytes, points: int, timeout: float) -> bool:
        """Deliver one export in `timeout` seconds at most; False if it is to be tried again. Never raises."""

    def close(self) -> None:
        """Let go of connections and files."""

    def abandon(self) -> None:
        """In a forked child: let go of what is the parent's, and close nothing."""


class Event(Protocol):
    """Something that was measured."""

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""


class Meter:
    """The metrics of one process, from its first span to `close`.

    Args:
        config: how metrics are made.
        resource: of this process.
        began: when it began, in ns since the epoch.
        watched: what is read at each collection.
        counts: tells what became of the spans, by state.
        overhead: tells what we have cost so far, in ns.
        outlet: where metrics go.
    """

    def __init__(
        self,
        config: Config,
        resource: Mapping[str, Any],
        began: int,
        watched: Watched,
        *,
        counts: Callable[[], Mapping[str, int]],
        overhead: Callable[[], int | None],
        outlet: Outlet,
    ) -> None:
        self._interval = config.metrics_interval
        self._timeout = config.metrics_timeout
        self._watched = watched
        self._outlet = outlet
        self._asked: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()  # `put` is safe in signal handlers
        self.calls = Calls(_SHOWN[config.metrics_exemplars], lambda: self._asked.put(None))
        self._make = partial(_collection, config, resource, began, self.calls, counts=counts, overhead=overhead)
        self._events: deque[Event] = deque()
        self._telling = threading.Lock()
        self._unsent: deque[bytes] = deque(maxlen=1 if config.metrics_temporality == "cumulative" else _KEPT)
        self._collection: Collection | None = None
        self._deadline: float | None = None  # when it is to have ended
        self._settled_by = 0.0
        self._settled = threading.Event()  # the spans are delivered, as far as they will be
        self.worker = Worker("rl_otel meter", self._run, lambda: self._asked.put(None))

    def start(self) -> bool:
        """Begin to export; False where OpenTelemetry cannot, or the process is leaving."""
        if self._deadline is not None or sys.is_finalizing():
            return False
        try:
            self._collection = collection = self._make()
            collection.instruments.watched, collection.instruments.before = self._watched, self.count
        except Exception as error:
            _tell_why_not(error)
            return False
        return self.worker.start()

    # --- for the process ----------------------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Take something that was measured."""
        self._events.append(event)
        if len(self._events) > _MANY:
            self._tell(wait=False)

    def count(self) -> None:
        """Count what was taken so far."""
        self.calls.count()
        self._tell()

    def _tell(self, *, wait: bool = True) -> None:
        collection = self._collection
        if collection is None or not self._telling.acquire(blocking=wait):
            return
        try:
            for _ in range(len(self._events)):
                self._events.popleft().tell(collection.instruments, self._watched)
        except Exception as error:
            swallow("a metric", error)
        finally:
            self._telling.release()

    def flush(self, timeout: float) -> None:
        """Export what there is, for at most `timeout` seconds."""
        if self.worker.alive:
            done = threading.Event()
            self._asked.put(done)
            done.wait(max(timeout, 0.0))

    def finish(self, timeout: float) -> None:
        """Make the export that has begun the last but one; `close` follows when the spans are delivered."""
        self._settled_by = monotonic() + timeout * (1 - _RESERVE)
        self._deadline = monotonic() + timeout  # last: our thread looks at this one
        self._asked.put(None)

    def close(self, timeout: float) -> None:
        """Export for the last time, and end, in `timeout` seconds at most; a daemon that hangs holds nobody."""
        self._settled.set()
        self.worker.join(timeout)

    def forget(self) -> None:
        """In a forked child: let go of what is the parent's."""
        self._outlet.abandon()
        if self._collection is not None:
            self._collection.instruments.watched = None

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        due = monotonic() + self._interval
        while self._deadline is None:
            with self.worker.pause():
                asked = self._next(due - monotonic())
            if self.worker.leaves():
                for each in asked:
                    self._asked.put(each)
                return
            if asked or monotonic() >= due:
                due = monotonic() + self._interval
                self._guarded(self._export)
                for each in asked:
                    each.set()
            else:
                self._guarded(self.calls.count)
        self._settled.wait(max(self._settled_by - monotonic(), 0.0))
        self._guarded(self._export)
        self._guarded(self._end)

    def _next(self, seconds: float) -> list[threading.Event]:
        """Wait until somebody asks, or so long; return who waits for an export."""
        asked = []
        try:
            asked.append(self._asked.get(timeout=max(seconds, 0.0)))
            while True:
                asked.append(self._asked.get_nowait())
        except queue.Empty:
            return [each for each in asked if each is not None]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            swallow("metrics", error)

    def _export(self) -> None:
        collection = self._collection
        if collection is None:
            return
        self.count()
        body, points = collection.export(self._outlet.protocol)
        self._unsent.append(body)
        while self._unsent and self._sent(self._unsent[0], points):
            self._unsent.popleft()

    def _sent(self, body: bytes, points: int) -> bool:
        while not self._outlet.send(body, points, self._left()):
            if self._deadline is None or self._left() <= _AGAIN:
                return False
            sleep(_AGAIN)
        return True

    def _left(self) -> float:
        return self._timeout if self._deadline is None else min(self._timeout, self._deadline - monotonic())

    def _end(self) -> None:
        if self._collection is not None:
            self._collection.close()
        self._outlet.close()


def prepare() -> bool:
    """Import what metrics need, on the caller's thread; False where OpenTelemetry cannot make them.

    Later, a fork meanwhile would leave the child waiting for ever for the same import, and the first step would take
    longer than it does.
    """
    try:
        import_module("rl_otel._metrics.collection")
    except Exception as error:
        _tell_why_not(error)
        return False
    return True


def _collection(*what: Any, **more: Any) -> Collection:
    from rl_otel._metrics.collection import Collection  # by now it is imported

    return Collection(*what, **more)


def _tell_why_not(error: Exception) -> None:
    pass_on(error)
    say("metrics", "rl_otel: no metrics, OpenTelemetry cannot make them: %s: %s", type(error).__name__, error)


def nothing_known() -> dict[table.Metric, Series[Last]]:
    """Return the values that stay, before there are any."""
    return {row: Series(row, Last) for row in (table.LOSS, table.REWARD, table.ENV_RATIO)}
