"""Attributes that figures are made of: a value that no figure can be made of is left out.

A journal is a file, and whatever wrote it may have been another version, another program, or broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from rl_otel import semconv
from rl_otel._figures import NANO, STAGES
from rl_otel._record import Attributes

_LONGEST: Final = 1e9  # s: what claims to have taken longer is no duration
_FASTEST: Final = 1e18  # By/s, for the same reason
_DROPPED: Final = semconv.TRAJECTORIES_DROPPED.format(reason="")


def _count(value: Any) -> bool:
    return type(value) is int


def _counts(value: Any) -> bool:
    return _count(value) or (type(value) is list and all(map(_count, value)))


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _duration(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _LONGEST


def _rate(value: Any) -> bool:
    return _number(value) and 0 <= value <= _FASTEST


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _flag(value: Any) -> bool:
    return type(value) is bool


def _text(value: Any) -> bool:
    return type(value) is str


_BY_CHECK: Final = {
    _count: (
        semconv.STEP_INDEX, semconv.SAMPLES, semconv.TURN, semconv.SEQUENCES,
        semconv.GPU_PEAK, semconv.GPU_RESERVED_PEAK, semconv.GPU_DEVICE_USED,
        semconv.TRAJECTORY_TURNS, semconv.TRAJECTORY_INPUT_TOKENS, semconv.TRAJECTORY_OUTPUT_TOKENS,
        semconv.ROLLOUT_TRAJECTORIES, semconv.ROLLOUT_INPUT_TOKENS, semconv.ROLLOUT_OUTPUT_TOKENS,
        semconv.SYNC_BYTES, semconv.STALENESS_MIN, semconv.STALENESS_MAX, semconv.STALENESS_COUNT,
        semconv.SEGMENT, semconv.ATTEMPT,
    ),
    _counts: (semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS),
    _number: (
        semconv.LOSS, semconv.REWARD_MEAN, semconv.TRAJECTORY_REWARD, semconv.GPU_PEAK_RATIO, semconv.STALENESS_MEAN,
    ),
    _share: (semconv.GPU_UTILIZATION,),
    _rate: (semconv.SYNC_RATE,),
    _duration: (
        semconv.GPU_DURATION, semconv.SYNC_PAUSED,
        semconv.LATENCY_QUEUE, semconv.LATENCY_PREFILL, semconv.LATENCY_DECODE, semconv.LATENCY_FIRST_TOKEN,
        *(semconv.TRAJECTORY_PART.format(part=part) for part in (*semconv.PARTS, semconv.OTHER)),
    ),
    _flag: (semconv.TRAJECTORY_CONTINUES,),
    _text: (
        semconv.MODE, semconv.ROLE, semconv.TRAJECTORY_OUTCOME, semconv.ERROR_TYPE, semconv.ABORTED, semconv.SYNC_PART,
        semconv.WAIT_REASON,
    ),
}  # fmt: skip
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {name: check for check, names in _BY_CHECK.items() for name in names}


_BY_VALUE: Final = frozenset({_counts, _duration, _rate, _share})  # for these a value's type does not say enough
_MOST_SHAPES: Final = 1024
_Plan: TypeAlias = list[tuple[str, Callable[[Any], bool]]]
_plans: dict[tuple[Any, ...], _Plan] = {}  # what is left to check, by names and types: spans of a kind are alike


def checked(attributes: Attributes) -> Attributes:
    """Return `attributes`, without those of ours that are of another kind than ours are."""
    shape = (*attributes, *map(type, attributes.values()))
    plan = _plans.get(shape)
    if plan is None:
        plan = _plan(attributes)
        if len(_plans) < _MOST_SHAPES:
            _plans[shape] = plan
    wrong = [name for name, check in plan if not check(attributes[name])]
    return {name: value for name, value in attributes.items() if name not in wrong} if wrong else attributes


def _plan(attributes: Attributes) -> _Plan:
    """Return the checks that attributes of these names and types may fail."""
    checks = ((name, _count if name.startswith(_DROPPED) else _CHECKS.get(name)) for name in attributes)
    known = [(name, check) for name, check in checks if check is not None]
    return [(name, check) for name, check in known if check in _BY_VALUE or not check(attributes[name])]


def stages_of(attributes: Attributes) -> dict[str, int]:
    """Return what an inference server says of a request, in ns by stage."""
    known = checked(attributes)
    return {stage: round(known[name] * NANO) for stage, name in STAGES.items() if name in known}
