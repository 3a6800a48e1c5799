"""Phases that come very often: of a hundred mini-batches the first, the slowest and the last tell enough."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from rl_otel._budget.refs import Held, Refs

_AT_ONCE: Final = 62  # of one name in a trace; with the slowest and the last of the rest it is 64


class Repeat(NamedTuple):
    """A phase that is held until its step ends."""

    duration: int  # ns
    held: Held


class Repeats:
    """Counts the phases of a trace by name; holds two of each name past the first 62."""

    __slots__ = ("_counts", "_last", "_slowest")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._slowest: dict[str, Repeat] = {}  # but for the last
        self._last: dict[str, Repeat] = {}

    def count(self, name: str) -> bool:
        """Count a phase; whether there have been so many that it is held."""
        self._counts[name] += 1
        return self._counts[name] > _AT_ONCE

    def hold(self, name: str, phase: Repeat) -> bool:
        """Hold a phase; whether another one is given up for it."""
        before = self._last.get(name)
        self._last[name] = phase
        if before is None:
            return False
        slowest = self._slowest.get(name)
        if slowest is None or before.duration > slowest.duration:
            self._slowest[name] = before
        return slowest is not None

    def release(self) -> list[Repeat]:
        """Return all that are held, and hold none any longer."""
        held = [*self._last.values(), *self._slowest.values()]
        self._last.clear()
        self._slowest.clear()
        return held

    def held(self) -> Refs:
        """Return all that are held."""
        return Refs(each.held for each in (*self._last.values(), *self._slowest.values()))
