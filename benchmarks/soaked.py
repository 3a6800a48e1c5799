"""The process that `benchmarks.soak` watches: an asynchronous run, with errors, for so many seconds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import rl_otel
from rl_otel import _register
from rl_otel._budget import selector
from rl_otel._journal import room, writer

TRAJECTORIES = 24


class Broken(Exception):
    """What a sandbox does now and then."""


class Counted:
    """Opens spans, and counts those that have ended."""

    def __init__(self) -> None:
        self.ended = 0

    @contextlib.contextmanager
    def __call__(self, span: Any) -> Iterator[Any]:
        """Open a span."""
        try:
            with span as handle:
                yield handle
        finally:
            self.ended += 1


opened = Counted()


async def play(number: int) -> None:
    """Play one trajectory: turns of generate and env.step, that may fail or be given up."""
    with opened(rl_otel.trajectory(group=number // 8, sample=number % 8)) as trajectory:
        with opened(rl_otel.env_reset("soak")):
            await asyncio.sleep(0.002)
        for _ in range(random.randint(2, 10)):
            await turn()
        trajectory.record(reward=random.random())


async def turn() -> None:
    """Ask the model, and take its step."""
    with opened(rl_otel.generate(model="m")) as generation:
        await asyncio.sleep(random.expovariate(1 / 0.03))
        generation.record(input_tokens=812, output_tokens=128, finish_reason="stop")
    with opened(rl_otel.env_step("soak")) as env_step:
        await asyncio.sleep(0.001)
        if random.random() < 0.01:
            raise Broken("no sandbox answers")
        env_step.record(reward=0.5, terminated=False)


async def collect() -> None:
    """Play a batch; one of its trajectories is given up."""
    tasks = [asyncio.create_task(play(number)) for number in range(TRAJECTORIES)]
    await asyncio.sleep(0.05)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def step(index: int) -> None:
    """Do one step of the loop."""
    with opened(rl_otel.step(index)) as whole:
        with opened(rl_otel.rollout()):
            asyncio.run(collect())
        for _ in range(2):
            with opened(rl_otel.train()):
                time.sleep(0.01)
        with contextlib.suppress(Broken), opened(rl_otel.weight_sync()) as sync:
            sync.record(policy_version=index)
            if index % 50 == 49:
                raise Broken("one rank is gone")
        whole.record(loss=0.5, samples=TRAJECTORIES)


def main(seconds: float) -> None:
    """Run, wait to be told that the receiver is there, and say what became of the spans."""
    writer.SEGMENT, room.CAP, _register.RECENT, selector._MOST = 1 << 18, 6_000_000, 1000, 50  # type: ignore[misc]
    rl_otel.configure("soak", trace_budget=250)
    until, index = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        step(index)
        index += 1
    sys.stdin.readline()
    report = rl_otel.shutdown(60)
    states = {"sent": report.sent, "kept": report.kept, "dropped": report.dropped, "pending": report.pending}
    print(json.dumps({"steps": index, "ended": opened.ended, **states}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
