"""A thread of ours: a daemon that starts when it is needed, is away while the host forks, and tells what it costs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final

from rl_otel._safety import say

_AWHILE: Final = 0.2  # s that a fork waits for a thread that has nothing to do
_BUSY: Final = 0.01  # s that it waits for one that works


class Bell:
    """Ends a pause. A signal handler may ring it in the middle of a ring, where it would wait for an Event's lock."""

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """End the pause, or the next one."""
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, seconds: float) -> None:
        """Pause."""
        try:
            self._rung.get(timeout=seconds)
        except Empty:
            pass


class Worker:
    """One thread of ours.

    Args:
        name: of the thread.
        work: what it does, until it ends by itself. After each pause it asks `leaves`; sent away it will begin anew.
        wake: ends its pause.
    """

    def __init__(self, name: str, work: Callable[[], None], wake: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._may_leave: bool | None = None  # in a pause
        self._off = False  # while the host forks
        self._changing = threading.RLock()  # a signal handler may fork as well
        self._clock: int | None = None  # of the thread that runs, as the system numbers it
        self._spent = 0  # ns of CPU in those that have ended

    @property
    def alive(self) -> bool:
        """Whether it runs, or is to run again at once."""
        return self._off or (self._thread is not None and self._thread.is_alive())

    @property
    def cpu(self) -> int | None:
        """How much CPU it has taken so far, in ns; None where the system does not tell."""
        if not hasattr(time, "pthread_getcpuclockid"):
            return None
        clock, spent = self._clock, self._spent
        try:
            return spent if clock is None else spent + time.clock_gettime_ns(clock)
        except OSError:  # it has just ended
            return self._spent

    def start(self) -> bool:
        """Start it, once; False where the process is leaving, and there will be no more threads."""
        with self._changing:
            return self._off or self._thread is not None or self._start()

    def _start(self) -> bool:
        thread = self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._thread = None
            if sys.is_finalizing() or "shutdown" in str(error):
                return False
            # No more threads are to be had: tried again later.
            say("thread", "rl_otel: cannot start a thread of its own: %s", error)
        return True

    def join(self, timeout: float) -> None:
        """Wait for its end, `timeout` seconds at most."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(max(timeout, 0.0))

    @contextmanager
    def pause(self, *, may_leave: bool = True) -> Iterator[None]:
        """Say, around a wait, that it has nothing to do; or that it waits in the middle of something."""
        self._may_leave = may_leave
        try:
            yield
        finally:
            self._may_leave = None

    def leaves(self, first: Callable[[], None] | None = None) -> bool:
        """Whether it is to end now, to begin anew when the host has forked; then `first` is done."""
        with self._changing:
            if self._off:
                self._thread = None
                if first is not None:
                    first()
            return self._off

    def before_fork(self) -> None:
        """End it if it has the time: since Python 3.12 a fork beside a thread warns, and the host may have none."""
        thread, clock = self._thread, self._clock
        if thread is not None and thread.is_alive() and self._may_leave is not False:
            self._off = True
            self._wake()
            thread.join(_AWHILE if self._may_leave else _BUSY)
            if not thread.is_alive():
                _wait_for_the_system(clock)

    def after_fork(self) -> None:
        """Start it again, in the parent."""
        with self._changing:
            was_off, self._off = self._off, False
            if was_off:
                self.start()

    def _run(self) -> None:
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        try:
            self._work()
        finally:
            self._clock = None
            self._spent += time.thread_time_ns()


def _wait_for_the_system(clock: int | None) -> None:
    """Wait until the system does not count the thread of that clock any more: a little later than Python."""
    until = time.monotonic() + _AWHILE
    try:
        while clock is not None and time.monotonic() < until:
            time.clock_gettime(clock)
            time.sleep(0)
    except OSError:
        pass  # it is gone
