"""How long trajectories take."""

from __future__ import annotations

import math
from array import array
from bisect import insort
from typing import Final

_ENOUGH: Final = 10  # trajectories: from then on their durations tell who is slow


class Pace:
    """The durations of a trace's trajectories that have ended, in nanoseconds."""

    __slots__ = ("_sorted",)

    def __init__(self) -> None:
        self._sorted = array("q")

    def add(self, duration: int) -> None:
        """Add one that ended."""
        insort(self._sorted, duration)

    @property
    def patience(self) -> float:
        """How long one may be open that is no straggler: twice as long as nine in ten of the others took."""
        return 2 * self._p90 if self._sorted else math.inf

    def slow(self, duration: int) -> bool:
        """Whether one that ended is among the slowest tenth."""
        return len(self._sorted) >= _ENOUGH and duration >= self._p90

    @property
    def _p90(self) -> int:
        return self._sorted[-(-9 * len(self._sorted) // 10) - 1]
