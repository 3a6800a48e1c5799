"""Series of one metric: by the values of its attributes, and of a bounded number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from rl_otel import semconv_metrics
from rl_otel._record import SAMPLED, End

MOST: Final = 200  # series of a metric; what comes after them shares one more
NANO: Final = 1_000_000_000

Attributes = dict[str, Any]
Held = TypeVar("Held")


class Series(Generic[Held]):
    """What is held for each combination of a metric's attributes; unknown ones are left out.

    Args:
        metric: whose series they are.
        make: makes what is held, of the attributes.
    """

    def __init__(self, metric: semconv_metrics.Metric, make: Callable[[Attributes], Held]) -> None:
        self.metric = metric
        self._make = make
        self._held: dict[tuple[str | None, ...] | None, Held] = {}

    def at(self, *values: str | None) -> Held:
        """Return what is held for these values, in the order of the table; past the most, that of all others."""
        held = self._held.get(values)
        if held is not None:
            return held
        if len(self._held) < MOST:
            named = zip(self.metric.attributes, values, strict=True)
            attributes: Attributes = {name: value for name, value in named if value}
            return self._held.setdefault(values, self._make(attributes))
        return self._held.setdefault(None, self._make({semconv_metrics.OVERFLOW: True}))

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))


class Slow(NamedTuple):
    """A call that stands for its bucket: how long it took, when it ended (ns since the epoch), and its ids."""

    nanoseconds: int
    end: int
    trace: bytes
    span: bytes


class Spread:
    """One series of durations, in ns: how many fell into each bucket, and the slowest of each that may be shown."""

    def __init__(self, attributes: Attributes, bounds: tuple[float, ...]) -> None:
        self.attributes = attributes
        self.bounds = bounds
        self._limits = [round(bound * NANO) for bound in bounds]
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0
        self.least, self.most = -1, 0
        self.slow: dict[int, Slow] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    def add(self, calls: list[End], shown: tuple[bool, bool]) -> None:
        """Count calls; of each bucket the slowest since the last look is kept, of those that may be shown."""
        times = [call.end - call.start for call in calls]
        self.sum += sum(times)
        self.most = max(self.most, *times)
        self.least = min(times) if self.least < 0 else min(self.least, *times)
        limits, counts, slow = self._limits, self.counts, self.slow
        for call, nanoseconds in zip(calls, times, strict=True):
            bucket = bisect_left(limits, nanoseconds)
            counts[bucket] += 1
            known = slow.get(bucket)
            if (known is None or known.nanoseconds < nanoseconds) and shown[call.flags & SAMPLED]:
                slow[bucket] = Slow(nanoseconds, call.end, call.trace, call.span)


class Total:
    """One series of a count that only rises."""

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.value: int | float = 0
        self.told: int | float = 0  # of it, what has been exported
