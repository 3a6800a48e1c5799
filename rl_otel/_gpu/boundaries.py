"""What is done where a phase begins and ends: peaks are folded, marks are set. Under the lock of its owner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rl_otel._gpu.devices import attempt
from rl_otel._gpu.framework import Framework, Look
from rl_otel._gpu.peaks import Peak, Peaks
from rl_otel._gpu.timing import Stopwatch
from rl_otel._gpu.watch import Watch

_OFF: Final = "off"
_RESET: Final = "reset"
_MOST: Final = 256  # phases open at a time: who never ends them shall not make each boundary slower


class Boundaries:
    """The phases that are open in this process, in the order in which they were opened.

    Args:
        framework: what is looked at.
        mode: of the peaks: reset, observe or off.
    """

    def __init__(self, framework: Framework, mode: str) -> None:
        self.open: list[Watch] = []
        self._framework = framework
        self._peaks = None if mode == _OFF else Peaks(resets=mode == _RESET)
        self._stopwatch: Stopwatch | None = None

    def enter(self, name: str, role: str) -> Watch:
        """Begin a phase."""
        if len(self.open) >= _MOST:
            self._end(self.open.pop(0).peak, None)
        look = self._framework.look()
        peak = self._begin(look)
        watch = Watch(name, role, peak, {} if look is None else self._start(look.read()))
        self.open.append(watch)
        return watch

    def leave(self, watch: Watch) -> bool:
        """End a phase; False where that has happened."""
        if watch not in self.open:
            return False
        self.open.remove(watch)
        look = self._framework.look()
        self._end(watch.peak, look)
        stopwatch = self._stopwatch
        if look is not None and watch.started and stopwatch is not None:
            watch.timing = attempt("GPU time", lambda: stopwatch.stop(watch.started), None)
        return True

    def _begin(self, look: Look | None) -> Peak:
        peaks = self._peaks
        if peaks is None:
            return Peak(known=False)
        return attempt("peak GPU memory", lambda: peaks.enter(look), None) or peaks.enter(None)

    def _end(self, peak: Peak, look: Look | None) -> None:
        peaks = self._peaks
        if peaks is not None and not attempt("peak GPU memory", lambda: peaks.leave(peak, look), False):
            peaks.leave(peak, None)

    def _start(self, devices: Iterable[int]) -> dict[int, Any]:
        allocator = self._framework.allocator
        if allocator is None:
            return {}
        stopwatch = self._stopwatch = self._stopwatch or Stopwatch(allocator)
        return attempt("GPU time", lambda: stopwatch.start(devices), {})
