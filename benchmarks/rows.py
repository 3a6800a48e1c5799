"""The table as data: what is measured, of whom, and what it may cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

OURS, SDK = "rl_otel", "SDK"
PEERS = ("fastotel", "nemo-lens")

#: By case and tracer: the figures of one round.
Round: TypeAlias = Mapping[tuple[str, str], Mapping[str, float]]


class Case(NamedTuple):
    """One measurement, in a fresh process for each tracer."""

    name: str
    tracers: tuple[str, ...]
    amount: int = 1
    quick: int = 1  # the amount in a short run


class Target(NamedTuple):
    """What a figure of ours may be at most; `limit` gets a function from a tracer to its figure."""

    text: str
    limit: Callable[[Callable[[str], float]], float]


class Row(NamedTuple):
    """One line of the table."""

    title: str
    case: str
    figure: str
    unit: str
    beside: str = SDK
    above: str = ""  # the tracer whose figure is taken off first
    at_most: Target | None = None
    aims: tuple[Target, ...] = ()
    note: str = ""

    def value(self, measured: Round, tracer: str) -> float:
        """Return the figure of `tracer` in one round."""
        floor = measured[self.case, self.above][self.figure] if self.above else 0.0
        return measured[self.case, tracer][self.figure] - floor

    def values(self, rounds: list[Round], tracer: str) -> list[float]:
        """Return the figure of `tracer` in all rounds that have it."""
        return [self.value(measured, tracer) for measured in rounds if (self.case, tracer) in measured]

    def ratios(self, rounds: list[Round], tracer: str) -> list[float]:
        """Return the figure of `tracer` as a share of what stands beside it, round by round."""
        pairs = zip(self.values(rounds, tracer), self.values(rounds, self.beside), strict=False)
        return [mine / other for mine, other in pairs if other > 0]

    def holds(self, target: Target, rounds: list[Round]) -> bool:
        """Whether ours is within `target`, by the median of the rounds."""
        over = (self.value(each, OURS) - target.limit(partial(self.value, each)) for each in rounds)
        return statistics.median(over) <= 0


def _share(of: int) -> Target:
    return Target(f"1/{of}", lambda value: value(SDK) / of)


def _fixed(text: str, limit: float) -> Target:
    return Target(text, lambda _: limit)


CASES = (
    Case("burst", (OURS, SDK, *PEERS), 10_000, 10_000),
    Case("paced", ("none", OURS, SDK, *PEERS), 4, 2),
    Case("pauses", ("none", OURS, SDK, *PEERS), 4, 2),
    Case("off", ("empty with", OURS), 100_000, 20_000),
    Case("loop", (OURS, SDK), 6, 2),
    Case("memory", (OURS, SDK), 100_000, 100_000),
    Case("import", ("API", SDK, OURS), 5, 5),
    Case("ready", (SDK, OURS), 5, 5),
)

ROWS = (
    Row("calling thread, CPU a span", "burst", "thread", "µs",
        at_most=_share(4), aims=(_share(6), _share(10)),
        note="generate and env.step in turn, six attributes each"),
    Row("process, CPU a delivered span: burst", "burst", "process", "µs",
        at_most=_share(8), aims=(_share(12),),
        note="10,000 calls in 100 trajectories, until all are delivered"),
    Row("  at 1,000 spans/s", "paced", "process", "µs", above="none",
        at_most=_share(3), aims=(_share(10),),
        note="asyncio, 16 trajectories; above the run without spans"),
    Row("pauses at 1,000 spans/s, p99.9", "pauses", "pause", "ms", above="none",
        at_most=_share(3), aims=(_share(10),),
        note="the longest in each millisecond of a busy caller; above the run without spans"),
    Row("a span when switched off", "off", "span", "µs", beside="empty with",
        at_most=_fixed("1 µs", 1.0), aims=(Target("empty with", lambda value: value("empty with")),),
        note="with a call of record() on both sides"),
    Row("real loop, wall on against off", "loop", "wall", "%",
        at_most=_fixed("+ 1 %", 1.0), aims=(_fixed("+ 0.3 %", 0.3),),
        note="1 ms of CPU a call, a generate of 20 ms per 8 env steps, 64 trajectories; delivery included"),
    Row("  in CPU of the process", "loop", "process", "%"),
    Row("memory, 100,000 spans in one step", "memory", "grown", "MB",
        at_most=_fixed("+ 64 MB", 64.0), aims=(_fixed("+ 8 MB", 8.0),)),
    Row("import", "import", "import", "ms",
        at_most=Target("SDK", lambda value: value(SDK)), aims=(Target("API + 5 ms", lambda value: value("API") + 5),)),
    Row("  against the API alone", "import", "import", "ms", beside="API"),
    Row("  and made ready to record", "ready", "import", "ms"),
)  # fmt: skip
