"""The trajectories of a rollout in figures, and of the several rollouts of a step together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_otel import semconv
from rl_otel._figures.trajectory import NANO, Trajectory
from rl_otel._split import percentile, union

SLOWEST = 5
_DROPPED = semconv.TRAJECTORIES_DROPPED.format(reason="")


@dataclass(frozen=True, slots=True)
class Spread:
    """How durations spread, in nanoseconds."""

    mean: int
    p50: int
    p90: int
    max: int


@dataclass(slots=True)
class Direct:
    """Calls directly under a rollout, in no trajectory: a batched engine, a vector environment. Sums of durations."""

    parts: Counter[str] = field(default_factory=Counter)
    sequences: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def add(self, name: str, start: int, end: int, attributes: Mapping[str, Any]) -> None:
        """Count one `generate`, `env.step` or `env.reset`."""
        self.parts[semconv.PART_OF[name]] += end - start
        if name == semconv.GENERATE and attributes.get(semconv.PURPOSE) in (None, semconv.PURPOSE_POLICY):
            self.sequences = _sum_known((self.sequences, attributes.get(semconv.SEQUENCES)))
            self.input_tokens = _sum_known((self.input_tokens, _total(attributes.get(semconv.INPUT_TOKENS))))
            self.output_tokens = _sum_known((self.output_tokens, _total(attributes.get(semconv.OUTPUT_TOKENS))))

    def update(self, other: Direct) -> None:
        """Count what `other` has counted."""
        self.parts.update(other.parts)
        self.sequences = _sum_known((self.sequences, other.sequences))
        self.input_tokens = _sum_known((self.input_tokens, other.input_tokens))
        self.output_tokens = _sum_known((self.output_tokens, other.output_tokens))


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout in figures: times in nanoseconds, percentiles over its top-level trajectories."""

    count: int | None
    dropped: dict[str, int]
    outcomes: dict[str, int]
    duration: Spread | None
    parts: dict[str, Spread]
    env_ratio: float | None
    tail: int | None
    sequences: int | None
    input_tokens: int | None
    output_tokens: int | None
    output_rate: float | None
    reward: float | None
    slowest: tuple[Trajectory, ...]
    continued: int = 0  # trajectories that another segment takes up, and that are counted there

    @property
    def known(self) -> bool:
        """Whether there is anything to tell."""
        told = self.count, self.sequences, self.output_tokens, self.reward, self.env_ratio
        return bool(self.dropped) or any(each is not None for each in told)


def rollout(
    trajectories: Sequence[Trajectory],
    start: int,
    end: int,
    attributes: Mapping[str, Any] | None = None,
    direct: Direct | None = None,
) -> Rollout:
    """Return the figures of one rollout, from its closed trajectories and what was recorded on it (`attributes`)."""
    return joined(trajectories, [(start, end)], [attributes or {}], [direct] if direct else [])


def joined(
    trajectories: Sequence[Trajectory],
    walls: Sequence[tuple[int, int]],
    recorded: Sequence[Mapping[str, Any]],
    directs: Sequence[Direct] = (),
) -> Rollout:
    """Return the figures of several rollouts together: all their trajectories over the union of their walls."""
    top = [each for each in trajectories if each.top and not each.continues]
    output = _tokens(semconv.ROLLOUT_OUTPUT_TOKENS, "output_tokens", (*trajectories, *directs), recorded)
    wall = union(walls or [(each.start, each.end) for each in top])
    return Rollout(
        count=_count(top, recorded),
        dropped=dropped_of(recorded),
        outcomes=dict(Counter(each.outcome for each in top)),
        duration=_spread([each.duration for each in top]),
        parts=_part_spreads(top),
        env_ratio=_env_ratio(top, directs),
        tail=_tail([each.end for each in top]),
        sequences=_sum_known(each.sequences for each in directs),
        input_tokens=_tokens(semconv.ROLLOUT_INPUT_TOKENS, "input_tokens", (*trajectories, *directs), recorded),
        output_tokens=output,
        output_rate=output * NANO / wall if output is not None and wall else None,
        reward=_reward(top, recorded),
        continued=sum(each.top and each.continues for each in trajectories),
        slowest=slowest(top),
    )


def slowest(trajectories: Iterable[Trajectory]) -> tuple[Trajectory, ...]:
    """Return those that took longest, the longest first."""
    return tuple(sorted(trajectories, key=lambda each: (-each.duration, each.start, each.id))[:SLOWEST])


def rollout_attributes(rollout: Rollout) -> dict[str, Any]:
    """Return what the span of a rollout or an eval says of its trajectories, times in seconds."""
    attributes: dict[str, Any] = {
        semconv.ROLLOUT_TRAJECTORIES: rollout.count,
        semconv.ROLLOUT_INPUT_TOKENS: rollout.input_tokens,
        semconv.ROLLOUT_OUTPUT_TOKENS: rollout.output_tokens,
        semconv.ROLLOUT_TOKEN_RATE: rollout.output_rate,
        semconv.ROLLOUT_ENV_RATIO: rollout.env_ratio,
        semconv.ROLLOUT_CONTINUED: rollout.continued or None,
        semconv.ROLLOUT_TAIL: None if rollout.tail is None else rollout.tail / NANO,
    }
    for outcome, count in rollout.outcomes.items():
        attributes[semconv.ROLLOUT_OUTCOME.format(outcome=outcome)] = count
    attributes.update(_spread_attributes(semconv.ROLLOUT_DURATION, rollout.duration))
    for part, spread in rollout.parts.items():
        attributes.update(_spread_attributes(semconv.ROLLOUT_PART.format(part=part), spread))
    return {name: value for name, value in attributes.items() if value is not None}


def _spread_attributes(name: str, spread: Spread | None) -> dict[str, float]:
    if spread is None:
        return {}
    return {f"{name}.{figure}": getattr(spread, figure) / NANO for figure in ("mean", "p50", "p90", "max")}


def _spread(values: list[int]) -> Spread | None:
    if not values:
        return None
    values.sort()
    mean = round(sum(values) / len(values))
    return Spread(mean, percentile(values, 0.5), percentile(values, 0.9), values[-1])


def _part_spreads(top: list[Trajectory]) -> dict[str, Spread]:
    # One trajectory whose children are unknown makes every aggregate a guess: then there is none.
    divided = [each.parts for each in top if each.parts is not None]
    if len(divided) < len(top):
        return {}
    spreads = {}
    for part in (*semconv.PARTS, semconv.OTHER):
        spread = _spread([parts.get(part, 0) for parts in divided])
        if spread is not None and any(part in parts for parts in divided):
            spreads[part] = spread
    return spreads


def _env_ratio(top: list[Trajectory], directs: Sequence[Direct]) -> float | None:
    """Return environment time over environment and generate time, None where either is not known."""
    divided: list[Mapping[str, int]] = [each.parts for each in top if each.parts is not None]
    if len(divided) < len(top):
        return None
    divided += [each.parts for each in directs]
    env = _sum_known(parts.get("env") for parts in divided)
    generate = _sum_known(parts.get("generate") for parts in divided)
    if env is None or env + (generate or 0) == 0:
        return None
    return env / (env + (generate or 0))


def _tail(ends: list[int]) -> int | None:
    """Return how long the last trajectory ran on after 90 per cent of them had ended."""
    return max(ends) - percentile(ends, 0.9) if len(ends) > 1 else None


def _count(top: list[Trajectory], recorded: Sequence[Mapping[str, Any]]) -> int | None:
    # The span counts what its own process saw end, or what the trainer said; a report may have seen more.
    said = _sum_known(each.get(semconv.ROLLOUT_TRAJECTORIES) for each in recorded)
    return max(said or 0, len(top)) or said


def dropped_of(recorded: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many trajectories no training used, by reason, as spans tell in their attributes."""
    dropped: Counter[str] = Counter()
    for attributes in recorded:
        for name, count in attributes.items():
            if name.startswith(_DROPPED):
                dropped[name[len(_DROPPED) :]] += count
    return dict(dropped)


def _tokens(name: str, attribute: str, counted: Sequence[object], recorded: Sequence[Mapping[str, Any]]) -> int | None:
    total = _sum_known(getattr(each, attribute) for each in counted)
    return total if total is not None else _sum_known(each.get(name) for each in recorded)


def _reward(top: list[Trajectory], recorded: Sequence[Mapping[str, Any]]) -> float | None:
    said = [each[semconv.REWARD_MEAN] for each in recorded if semconv.REWARD_MEAN in each]
    if len(said) == 1:
        return float(said[0])
    rewards = [each.reward for each in top if each.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _total(value: Any) -> int | None:
    return sum(value) if isinstance(value, list | tuple) else value


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
