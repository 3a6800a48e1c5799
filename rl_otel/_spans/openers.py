"""The openers by the names that the training program calls them, and what finds or adds spans."""

from __future__ import annotations

from typing import Any

from rl_otel._spans import ambient
from rl_otel._spans.added import add
from rl_otel._spans.calls import EnvReset, EnvStep, Generate
from rl_otel._spans.decorate import bind
from rl_otel._spans.null import NULL, Null
from rl_otel._spans.phase import (
    Advantage,
    Checkpoint,
    Data,
    Eval,
    Logprobs,
    Offload,
    Onload,
    Optimizer,
    Phase,
    RefLogprobs,
    Reward,
    Rollout,
    Train,
    Values,
    Wait,
    WeightSync,
)
from rl_otel._spans.span import Span
from rl_otel._spans.step import Step, steps
from rl_otel._spans.trajectory import Trajectory

step = Step
rollout = Rollout
trajectory = Trajectory
generate = Generate
env_step = EnvStep
env_reset = EnvReset
phase = Phase
reward = Reward
logprobs = Logprobs
ref_logprobs = RefLogprobs
values = Values
advantage = Advantage
data = Data
train = Train
optimizer = Optimizer
weight_sync = WeightSync
offload = Offload
onload = Onload
checkpoint = Checkpoint
eval = Eval  # noqa: A001 - the field's word
wait = Wait


def current(name: str | None = None) -> Any:
    """Return the innermost open span here, or of those around it the one with that `name`.

    Where there is none it is an object that takes `record` and does nothing.
    """
    span: Span | None = ambient.current()
    while span is not None and name is not None and span.name != name:
        span = ambient.nearest(span.enclosing)
    return NULL if span is None else span


__all__ = ["Null", "add", "bind", "current", "steps"]
