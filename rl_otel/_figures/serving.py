"""What inference servers say of the requests that generate calls made: how each one's time was spent there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rl_otel import semconv
from rl_otel._split import percentile

#: What a server tells of a request, by the word it is shown with; the first three follow one another.
STAGES: Final = {
    "queue": semconv.LATENCY_QUEUE,
    "prefill": semconv.LATENCY_PREFILL,
    "decode": semconv.LATENCY_DECODE,
    "first token": semconv.LATENCY_FIRST_TOKEN,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request as its server saw it: ns by stage, of those that it tells of. `call` is the generate span it is of."""

    call: bytes
    stages: dict[str, int]


@dataclass(frozen=True, slots=True)
class Serving:
    """Requests together: the median of each stage over those that tell of it, in ns."""

    requests: int
    medians: dict[str, int]


def serving(requests: Iterable[Request]) -> Serving | None:
    """Return what requests come to, None where there are none."""
    requests = list(requests)
    told = {stage: [each.stages[stage] for each in requests if stage in each.stages] for stage in STAGES}
    medians = {stage: percentile(times, 0.5) for stage, times in told.items() if times}
    return Serving(len(requests), medians) if requests else None
