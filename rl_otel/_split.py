"""Dividing time: unions of intervals, a trajectory's time by part, percentiles.

One place for the arithmetic, so that a span, the printed table, the summary and the report agree to the nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from rl_otel import semconv

Child: TypeAlias = tuple[str, int, int]  # part, start, end

Ordered = TypeVar("Ordered", bound=Any)


def union(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the nanoseconds that at least one of `intervals` (start, end) covers."""
    covered = 0
    reached: int | None = None
    for start, end in sorted(intervals):
        if reached is not None and start < reached:
            start = reached
        if end > start:
            covered += end - start
            reached = end
    return covered


def split(children: Iterable[Child], start: int, end: int) -> dict[str, int]:
    """Divide the time from `start` to `end` among its children (part, start, end), each clipped to it.

    Every instant belongs to one part: where children overlap, to the one that comes first in `semconv.PARTS`; where
    none is open, to `other`. The values, in nanoseconds, add up to `end - start` exactly. A part without a child is
    absent; `other` is always there.
    """
    children = list(children)
    parts = _split_ordered(children, start, end)
    if parts is None:
        parts = _split_overlapping(children, start, end)
    parts[semconv.OTHER] = end - start - sum(parts.values())
    return parts


def _split_ordered(children: list[Child], start: int, end: int) -> dict[str, int] | None:
    # The usual trajectory does one thing after another: one pass, for this runs on the trainer's own thread.
    parts: dict[str, int] = {}
    reached = start
    for part, begun, ended in children:
        if begun < reached or ended < begun:
            return None
        parts[part] = parts.get(part, 0) + ended - begun
        reached = ended
    return parts if reached <= end else None


def _split_overlapping(children: list[Child], start: int, end: int) -> dict[str, int]:
    # A part gets what it adds to the cover of the parts before it.
    parts: dict[str, int] = {}
    cover: list[tuple[int, int]] = []
    before = 0
    for part in semconv.PARTS:
        own = [(max(begun, start), min(ended, end)) for name, begun, ended in children if name == part]
        if own:
            cover += own
            now = union(cover)
            parts[part] = now - before
            before = now
    return parts


def percentile(values: Sequence[Ordered], q: float) -> Ordered:
    """Return the `q`-quantile (0 to 1) of `values`, which need not be sorted, by nearest rank: a value that occurred.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of no values")
    # Rounded first, for 0.07 * 100 is 7.000000000000001 and the eighth value would be wrong.
    rank = math.ceil(round(q * len(values), 9))
    return sorted(values)[min(max(rank, 1), len(values)) - 1]
