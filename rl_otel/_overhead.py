"""What rl_otel costs its process: CPU in the host's calls of it, and in its own threads.

Spans with others inside them are measured each. Of the many calls some are, a hundred a second at most; what those
took on average, times how many have ended, is what all of them took. Clocks read at each would cost as much again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_APART: Final = 10_000_000  # ns between two calls that are measured, once there are some
_COLD: Final = 32  # calls until what they run is warm: they count for themselves, not for others
_FIRST: Final = 64  # calls are measured one after the other
_POSITIONS: Final = 8  # behind a span with others inside, that are measured in turn
_MANY: Final = 512  # measured calls, after which the earlier ones count less and less

_cpu: Final = time.thread_time_ns  # of the calling thread: what the others do meanwhile is no cost of ours


class Stopwatch:
    """Runs while the host is in a call of ours that has to do with one span; made running."""

    __slots__ = ("_done", "_reading", "_since", "_spent")

    def __init__(self, done: Callable[[int], None], reading: int) -> None:
        self._done = done
        self._reading = reading
        self._spent = 0
        self._since = _cpu()

    def pause(self) -> None:
        """Stop for now."""
        self._spent = self.shown

    def resume(self) -> None:
        """Go on."""
        self._since = _cpu()

    def end(self) -> None:
        """Stop, and hand on what it shows."""
        self._done(self.shown)

    @property
    def shown(self) -> int:
        """For how long it has run, in ns; asked while it runs."""
        return self._spent + max(_cpu() - self._since - self._reading, 0)


def _reading() -> int:
    """Return what a stopwatch shows when nothing happens: a part of everything that it measures."""
    stopwatch, shown = Stopwatch(_nobody, 0), []
    for _ in range(10):
        stopwatch.resume()
        shown.append(stopwatch.shown)
    return min(shown)


def _nobody(took: int) -> None:
    """Take what is measured for no one."""


class Overhead:
    """The account of one process.

    Args:
        ended: how many spans have ended.
        threads: CPU that threads of ours have taken, in ns; None where the system does not tell.
    """

    def __init__(self, ended: Callable[[], int], threads: Callable[[], int | None]) -> None:
        self.due = True  # whether the next call is to be measured
        self._ended = ended
        self._threads = threads
        self._reading = _reading()
        self._pass = self._passed = 0  # calls before the next that is measured: the first of a trajectory is a slow one
        self._last = 0  # when a call was measured, by the monotonic clock
        self._measured = 0  # calls so far
        self._calls = 0  # of which these tell what a call takes: so many took so long
        self._took = 0
        self._direct = 0  # ns in spans that were measured
        self._apart = 0  # spans that need no estimate, or have had it
        self._estimated = 0  # ns in all others
        self._lock = threading.RLock()  # a signal handler may end spans as well

    def call(self) -> Stopwatch | None:
        """Return a stopwatch for the call that begins; None for one that is passed over."""
        if self._passed < self._pass and self._measured >= _FIRST:
            self._passed += 1
            return None
        self._passed, self._pass = 0, (self._pass + 1) % _POSITIONS
        self._last = time.monotonic_ns()
        self.due = self._measured < _FIRST
        return Stopwatch(self._add_call, self._reading)

    def parent(self) -> Stopwatch:
        """Return a stopwatch for the span that begins, and has others inside it."""
        self.due = False  # it is none of the calls
        return Stopwatch(self._add_parent, self._reading)

    def look(self) -> None:
        """Have the next call measured, if it is time for that."""
        self.due = self._measured < _FIRST or time.monotonic_ns() - self._last >= _APART

    def spent(self) -> int | None:
        """Return the CPU that was taken so far, in ns; None while something is not known of it."""
        with self._lock:
            calls = self._ended() - self._apart
            if calls and not self._calls:
                return None
            if calls:
                self._estimated += calls * self._took // self._calls
                self._apart += calls
            threads = self._threads()
            return None if threads is None else self._direct + self._estimated + threads

    def forget(self) -> None:
        """In a forked child: let go of the lock, which a thread of the parent may have had."""
        self._lock = threading.RLock()

    def _add_call(self, took: int) -> None:
        with self._lock:
            self._direct += took
            self._apart += 1
            self._measured += 1
            if self._measured <= _COLD:
                self._calls = self._took = 0
            elif self._calls >= _MANY:
                self._calls, self._took = self._calls // 2, self._took // 2
            self._calls += 1
            self._took += took
        self.look()

    def _add_parent(self, took: int) -> None:
        with self._lock:
            self._direct += took
            self._apart += 1
