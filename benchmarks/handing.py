"""What handing the context on costs, beside OpenTelemetry's propagator: `python -m benchmarks.handing`.

CPU of the calling thread, in a generate of a trajectory in a rollout of a step, with a carrier that has all that ours
can say. Both sides take turns in one process; a figure is the median of the rounds. Fails where one of ours is above
its limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import rl_otel
from rl_otel import context

TIMES = 2000  # in a round
LIMIT = 10.0  # µs

Act = Callable[[], Any]


def acts() -> dict[str, tuple[Act, Act]]:
    """Return what is measured, each beside what OpenTelemetry does for it; to be called where spans are open."""
    theirs = TraceContextTextMapPropagator()
    carrier = context.inject()

    def use() -> None:
        with context.use(carrier):
            pass

    return {
        "inject": (lambda: context.inject({}), lambda: theirs.inject({})),
        "extract": (lambda: context.extract(carrier), lambda: theirs.extract(carrier)),
        "use, with what it extracts": (use, lambda: theirs.extract(carrier)),
    }


def cost(act: Act) -> float:
    """Return what it costs, in µs."""
    began = time.thread_time_ns()
    for _ in range(TIMES):
        act()
    return (time.thread_time_ns() - began) / TIMES / 1000


def main() -> None:
    """Measure, print, and fail where something of ours is too dear."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="how often each is measured (default %(default)s)")
    rounds = parser.parse_args().rounds
    wrong = []
    with tempfile.TemporaryDirectory() as run_dir:
        rl_otel.configure(run_dir=run_dir)
        with rl_otel.step(12):
            with rl_otel.weight_sync() as sync:
                sync.record(policy_version=7)
            with rl_otel.eval(), rl_otel.trajectory("17/3"), rl_otel.generate():
                for name, pair in acts().items():
                    measured = [[cost(act) for act in pair] for _ in range(rounds)]
                    ours, theirs = (statistics.median(side) for side in zip(*measured, strict=True))
                    spread = " to ".join(f"{pick(each[0] for each in measured):.2f}" for pick in (min, max))
                    wrong += [name] * (name != "use, with what it extracts" and ours > LIMIT)
                    print(f"{name:28} {ours:5.2f} µs ({spread}), OpenTelemetry {theirs:5.2f}: {ours / theirs:.2f}")
        rl_otel.shutdown()
    sys.exit(f"above {LIMIT:g} µs: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
