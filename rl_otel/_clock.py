"""One clock a process: monotonic, anchored once to the wall, so that a wall clock set back changes nothing."""

from __future__ import annotations

import time
from typing import Final

monotonic: Final = time.monotonic_ns


def _anchor() -> int:
    """Return what to add to the monotonic clock to get nanoseconds since the epoch."""
    # Of a few tries the one with the least time between its two monotonic readings is the best match.
    tries = [(monotonic(), time.time_ns(), monotonic()) for _ in range(5)]
    before, wall, after = min(tries, key=lambda t: t[2] - t[0])
    return wall - (before + after) // 2


#: Nanoseconds since the epoch minus the monotonic clock. Fixed for the life of the process, and right in its forks.
OFFSET: Final = _anchor()


def now() -> int:
    """Return nanoseconds since the epoch."""
    return monotonic() + OFFSET
