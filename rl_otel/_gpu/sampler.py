"""The one thread that looks at GPUs now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rl_otel import _safety
from rl_otel._thread import Bell, Worker

INTERVAL: Final = 1.0  # s between two looks
SLOW: Final = 0.05  # s a look may take; after one that takes longer, a driver that is busy gets a rest
LONGEST: Final = 60.0  # s of such a rest


class Sampler:
    """Looks each second while there is something to see.

    Args:
        look: looks once; False where there is nothing to see and never will be.
        close: called by the thread when it ends.
    """

    def __init__(self, look: Callable[[], bool], close: Callable[[], None]) -> None:
        self._look = look
        self._close = close
        self._bell = Bell()
        self._stopped = False
        self.worker = Worker("rl_otel gpu", self._run, self._bell.ring)
        self.pause = INTERVAL

    def stop(self, timeout: float) -> None:
        """End the thread, and wait for that a moment: a driver may be stuck."""
        self._stopped = True
        self._bell.ring()
        self.worker.join(timeout)

    def _run(self) -> None:
        while self._once() and not self._stopped:
            with self.worker.pause():
                self._bell.wait(self.pause)
            if self.worker.leaves():
                return
        self._close()

    def _once(self) -> bool:
        began = time.monotonic()
        try:
            return self._look()
        except Exception as error:
            _safety.swallow("gpu sampler", error)
            return True
        finally:
            slow = time.monotonic() - began > SLOW
            self.pause = min(2 * self.pause, LONGEST) if slow else INTERVAL
