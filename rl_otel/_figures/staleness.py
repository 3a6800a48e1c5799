"""How stale the trajectories were that a step trained on, in policy versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_otel import semconv


@dataclass(frozen=True, slots=True)
class Staleness:
    """Of `count` trajectories of which it is known."""

    min: int
    mean: float
    max: int
    count: int


def staleness_of(values: Iterable[int]) -> Staleness | None:
    """Return the staleness of trajectories, None where it is known of none."""
    known = list(values)
    return Staleness(min(known), sum(known) / len(known), max(known), len(known)) if known else None


def staleness_attributes(staleness: Staleness) -> dict[str, int | float]:
    """Return what the span says that trained on them."""
    return {
        semconv.STALENESS_MIN: staleness.min,
        semconv.STALENESS_MEAN: staleness.mean,
        semconv.STALENESS_MAX: staleness.max,
        semconv.STALENESS_COUNT: staleness.count,
    }


def joined_staleness(spans: Iterable[Mapping[str, Any]]) -> Staleness | None:
    """Return that of all trajectories together that spans tell of in their attributes."""
    told = [Staleness(*(each[name] for name in _NAMES)) for each in spans if all(name in each for name in _NAMES)]
    count = sum(each.count for each in told)
    if count < 1:
        return None
    mean = sum(each.mean * each.count for each in told) / count
    return Staleness(min(each.min for each in told), mean, max(each.max for each in told), count)


_NAMES = (semconv.STALENESS_MIN, semconv.STALENESS_MEAN, semconv.STALENESS_MAX, semconv.STALENESS_COUNT)
