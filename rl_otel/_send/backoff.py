"""How long to wait before the next attempt."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

_FIRST: Final = 1.0  # s
_LONGEST: Final = 30.0  # s, of our own accord
_LONGEST_ASKED: Final = 600.0  # s, however long the receiver asks for
_SPREAD: Final = 0.5  # up to so much longer, so that a thousand ranks do not come back at once


def _chance() -> float:
    # Never `random`: its state belongs to the run.
    return int.from_bytes(os.urandom(4), "little") / 2**32


class Backoff:
    """Delays that double with each failure, spread by chance; never shorter than what the receiver asked for."""

    __slots__ = ("_chance", "_next")

    def __init__(self, chance: Callable[[], float] = _chance) -> None:
        self._chance = chance
        self._next = _FIRST

    def delay(self, after: float | None = None) -> float:
        """Return the seconds to wait after one more failure; `after` is what the receiver asked for."""
        base, self._next = self._next, min(2 * self._next, _LONGEST)
        if after is not None:
            base = min(max(after, base), _LONGEST_ASKED)
        return base * (1 + _SPREAD * self._chance())

    def reset(self) -> None:
        """Start over: an attempt succeeded."""
        self._next = _FIRST
