"""`step.summary` in the loggers that people chart with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from tests import needs

if TYPE_CHECKING:
    from rl_otel.testing import Traces


pytestmark = pytest.mark.once


@pytest.fixture
def summary(traces: Traces) -> dict[str, float | int]:
    """The summary of a step with all that a run without a GPU has."""
    rl_otel.buffer("gen", size=lambda: 3, capacity=8)
    with rl_otel.step(5) as step:
        with rl_otel.rollout(), rl_otel.trajectory():
            with rl_otel.generate():
                pass
            with rl_otel.env_step("swe"):
                pass
        with rl_otel.train():
            pass
        with rl_otel.eval() as evaluation:
            evaluation.record(rewards=[0.5])
    return step.summary


@needs.torch
@needs.tensorboard
@pytest.mark.filterwarnings("ignore")  # of TensorBoard and its protobuf
@pytest.mark.timeout(120)
def test_tensorboard_takes_the_summary(summary: dict[str, Any], tmp_path: Path) -> None:
    """Each key is a scalar for torch's SummaryWriter, and TensorBoard reads it back under that name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for key, value in summary.items():
            writer.add_scalar(key, value, 5)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = {key: events.Scalars(key)[0] for key in events.Tags()["scalars"]}
    assert found.keys() == summary.keys() >= {"timing/train", "async/gen_buffer_qsize", "eval/reward"}
    for key, scalar in found.items():
        assert (scalar.step, scalar.value) == (5, pytest.approx(summary[key], rel=1e-6))


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed: pip install wandb")
@pytest.mark.filterwarnings("ignore")  # of wandb
@pytest.mark.timeout(120)
def test_wandb_takes_the_summary(summary: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wandb.log(step.summary)` works as it is, in a run that talks to nobody."""
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="rl_otel")
    run.log(summary)
    logged = dict(run.summary)
    run.finish()
    assert {key: logged[key] for key in summary} == summary
