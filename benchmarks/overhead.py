"""Compares what steps say they cost (`rl.telemetry.overhead`) with what they do: `python -m benchmarks.overhead`.

What they do cost is the CPU of the process while they run, above that of the same steps without spans. Both kinds run
in turn in one process, several steps after one another: what one leaves to be sent, the next one pays.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import rl_otel
from benchmarks import cases
from benchmarks.receiver import receiver
from benchmarks.tracers import Nothing, RlOtel

STEPS = 5  # after one another
FACTOR = 2.0  # that the two figures may be apart

#: What one step does, and how many calls that are.
KINDS: dict[str, tuple[Callable[[Nothing], Any], int]] = {
    "10,000 calls in a burst": (lambda tracer: cases._burst(tracer, 10_000), 10_000),
    "100 calls in a burst": (lambda tracer: cases._burst(tracer, 100), 100),
    "1,000 calls/s under asyncio": (lambda tracer: asyncio.run(cases._paced(tracer, 2)), 1984),
    "1 ms of CPU a call": (lambda tracer: asyncio.run(cases._collect(tracer)), 9 * cases.TRAJECTORIES),
}


class Steps(RlOtel):
    """rl_otel, and the steps it has opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Any] = []
        open_step = self.step

        def step(index: int) -> Any:
            self.opened.append(open_step(index))
            return self.opened[-1]

        self.step = step  # type: ignore[method-assign]

    def said(self) -> float:
        """Return what the steps so far said they cost together, in s, and forget them."""
        opened, self.opened = self.opened, []
        return sum(step.attributes["rl.telemetry.overhead"] for step in opened)


def compare(tracer: Steps, play: Callable[[Nothing], Any]) -> tuple[float, float]:
    """Return what steps say they cost, and what they do, in s."""
    without = _cpu(Nothing(), play)
    tracer.flush()
    tracer.said()
    cost = _cpu(tracer, play) - without
    return tracer.said(), cost


def _cpu(tracer: Nothing, play: Callable[[Nothing], Any]) -> float:
    began = time.process_time()
    for _ in range(STEPS):
        play(tracer)
    return time.process_time() - began


def main() -> None:
    """Compare, print, and fail where the two are too far apart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default %(default)s)")
    rounds = parser.parse_args().rounds
    wrong = False
    with receiver() as endpoint, tempfile.TemporaryDirectory() as run_dir:
        os.environ.update(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, RL_OTEL_RUN_DIR=run_dir, RL_OTEL_PRINT="0")
        tracer = Steps()
        for kind, (play, calls) in KINDS.items():
            play(tracer)
            pairs = [compare(tracer, play) for _ in range(rounds)]
            said, cost = (statistics.median(side) / (STEPS * calls) * 1e6 for side in zip(*pairs, strict=True))
            wrong |= not 1 / FACTOR <= said / cost <= FACTOR
            each = ", ".join(f"{one / other:.2f}" for one, other in sorted(pairs, key=lambda pair: pair[0] / pair[1]))
            print(f"{kind:28} says {said:6.1f} µs a call, costs {cost:6.1f}: {said / cost:.2f} (rounds: {each})")
        rl_otel.shutdown()
    sys.exit(f"further apart than a factor of {FACTOR:g}" if wrong else 0)


if __name__ == "__main__":
    main()
