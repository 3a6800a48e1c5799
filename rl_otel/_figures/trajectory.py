"""One trajectory, closed: what the figures of a rollout need to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_otel import semconv

NANO = 1_000_000_000

# Written out once: this is on the trainer's own thread.
_DURATIONS = {part: semconv.TRAJECTORY_PART.format(part=part) for part in (*semconv.PARTS, semconv.OTHER)}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A trajectory that has ended; `parts` is its duration divided as `_split.split` does, in nanoseconds.

    `parts` is None where its children are not known. Tokens are those of its own generate calls of purpose policy.
    `top` is False for a trajectory inside another one, `continues` true where a later segment takes it up.
    """

    id: str
    span: bytes
    start: int
    end: int
    parts: dict[str, int] | None = None
    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reward: float | None = None
    outcome: str = semconv.COMPLETED
    mode: str | None = None
    top: bool = True
    continues: bool = False

    @property
    def duration(self) -> int:
        """From start to end, in nanoseconds."""
        return self.end - self.start


def trajectory_attributes(trajectory: Trajectory) -> dict[str, Any]:
    """Return what a trajectory's span says of it as a whole: durations of its parts in seconds, turns, tokens."""
    attributes: dict[str, Any] = {_DURATIONS[part]: time / NANO for part, time in (trajectory.parts or {}).items()}
    attributes[semconv.TRAJECTORY_OUTCOME] = trajectory.outcome
    known = {
        semconv.TRAJECTORY_TURNS: trajectory.turns,
        semconv.TRAJECTORY_INPUT_TOKENS: trajectory.input_tokens,
        semconv.TRAJECTORY_OUTPUT_TOKENS: trajectory.output_tokens,
        semconv.TRAJECTORY_REWARD: trajectory.reward,
    }
    attributes.update((name, value) for name, value in known.items() if value is not None)
    return attributes


def trajectory_of(
    span: bytes, start: int, end: int, attributes: Mapping[str, Any], *, parent_is_trajectory: bool = False
) -> Trajectory:
    """Return the trajectory that a span's `attributes` tell of: the way back from `trajectory_attributes`."""
    return Trajectory(
        id=str(attributes.get(semconv.TRAJECTORY_ID) or span.hex()),
        span=span,
        start=start,
        end=end,
        parts=_parts_of(attributes),
        turns=attributes.get(semconv.TRAJECTORY_TURNS),
        input_tokens=attributes.get(semconv.TRAJECTORY_INPUT_TOKENS),
        output_tokens=attributes.get(semconv.TRAJECTORY_OUTPUT_TOKENS),
        reward=attributes.get(semconv.TRAJECTORY_REWARD),
        outcome=attributes.get(semconv.TRAJECTORY_OUTCOME, semconv.COMPLETED),
        mode=attributes.get(semconv.MODE),
        top=not parent_is_trajectory,
        continues=bool(attributes.get(semconv.TRAJECTORY_CONTINUES)),
    )


def _parts_of(attributes: Mapping[str, Any]) -> dict[str, int] | None:
    parts = {part: round(attributes[name] * NANO) for part, name in _DURATIONS.items() if name in attributes}
    return parts if semconv.OTHER in parts else None
