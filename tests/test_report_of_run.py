"""`rl-otel report` beside what the run itself printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_otel._terminal import command
from tests import process
from tests.reporting import reported

RUN = Path("runs/r")

TRAINING = """
import asyncio
import rl_otel

rl_otel.configure(service_name="grpo", run_dir="runs", run_id="r")

async def play(group, sample):
    with rl_otel.trajectory(group=group, sample=sample) as trajectory:
        with rl_otel.env_reset("swe"):
            await asyncio.sleep(0.001)
        for _ in range(3):
            with rl_otel.generate(model="m") as generation:
                await asyncio.sleep(0.001)
                generation.record(input_tokens=5, output_tokens=7)
            with rl_otel.env_step("swe"):
                await asyncio.sleep(0.03 if (group, sample) == (2, 3) else 0.002)
        trajectory.record(reward=sample / 10)

async def collect():
    await asyncio.gather(*(play(group, sample) for group in range(3) for sample in range(4)))

with rl_otel.checkpoint():
    pass
for i in range(3):
    with rl_otel.step(i) as step:
        with rl_otel.rollout() as rollout:
            asyncio.run(collect())
            rollout.record(dropped={"stale": 2})
        with rl_otel.rollout(), rl_otel.generate() as generation:
            generation.record(output_tokens=[3, 3])
        for _ in range(2):
            with rl_otel.train(), rl_otel.phase("backward"):
                pass
        with rl_otel.wait("batch"):
            pass
        with rl_otel.eval():
            asyncio.run(collect())
        step.record(loss=0.1 * i, samples=12)
with rl_otel.eval():
    asyncio.run(collect())
"""


@pytest.mark.once
def test_the_report_prints_what_the_run_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables and summary of a real run come out of its folder character by character."""
    run = process.run(TRAINING, env={"RL_OTEL_PRINT": "1"})
    code, lines, error = reported(capsys, "runs")
    assert (code, error) == (0, "")
    *printed, hint = run.stdout.splitlines()
    assert lines == printed
    assert hint == f"To read it again: {command('report', RUN)}"
    assert [line for line in lines if line.startswith("Step")] == [
        "Step   0 | Loss: 0.0000 | Reward: +0.150 | Samples: 12",
        "Step   1 | Loss: 0.1000 | Reward: +0.150 | Samples: 12",
        "Step   2 | Loss: 0.2000 | Reward: +0.150 | Samples: 12",
    ]
    assert sum("slowest 2/3" in line for line in lines) == 6
