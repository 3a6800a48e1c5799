"""The openers by the names that the training program calls them, and what finds or adds spans."""

from __future__ import annotations

from typing import Any

from rl_otel import semconv
from rl_otel._spans import ambient, misuse
from rl_otel._spans.added import KINDS, add
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
)
from rl_otel._spans.remote import Remote
from rl_otel._spans.role import Role
from rl_otel._spans.span import Span
from rl_otel._spans.step import Step, steps
from rl_otel._spans.trajectory import Trajectory
from rl_otel._spans.watched import buffer
from rl_otel._spans.weight_sync import WeightSync

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
role = Role


def current(name: str | None = None) -> Any:
    """Return the innermost open span here, or of those around it the one with that `name` (or that opener).

    Where there is none it is an object that takes `record` and does nothing.
    """
    span: Span | None = ambient.current()
    if name is None:
        return NULL if span is None or isinstance(span, Remote) else span
    name = semconv.NAMES.get(str(name), str(name))
    while span is not None:
        if span.name == name and not isinstance(span, Remote):
            return span
        span = ambient.nearest(ambient.beyond(span))
    if name not in KINDS:
        misuse.unknown(name, (*KINDS, *semconv.NAMES))
    return NULL


__all__ = ["Null", "add", "bind", "buffer", "current", "steps"]
