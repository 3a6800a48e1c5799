"""The slowest trajectories of a step, each with its parts and its longest turns."""

from __future__ import annotations

from collections.abc import Iterable

from rl_otel import semconv
from rl_otel._analysis import StepReport
from rl_otel._figures import Trajectory
from rl_otel._record import End
from rl_otel._split import union
from rl_otel._table import counted, printable, scaled, short, wrapped

_TURNS = 5


def slowest_lines(report: StepReport) -> list[str]:
    """Return the lines on the slowest trajectories of a step; of its evaluation's where it trained on none."""
    figures = report.figures
    rollout = next((each for each in (figures.training, figures.evaluation) if each and each.slowest), None)
    if rollout is None:
        return []
    lines = ["  Slowest trajectories:"]
    for trajectory in rollout.slowest:
        lines += wrapped(_sentence(trajectory), indent="    ")
        lines += _turn_lines([call for call in report.calls if call.parent == trajectory.span])
    return lines


def _sentence(trajectory: Trajectory) -> str:
    words = [short(trajectory.duration)]
    if trajectory.turns is not None:
        words.append(counted(trajectory.turns, "turn"))
    words += [f"{part} {short(time)}" for part, time in (trajectory.parts or {}).items()]
    words.append(trajectory.outcome)
    if trajectory.reward is not None:
        words.append(f"reward {trajectory.reward:+.3f}")
    if trajectory.output_tokens is not None:
        words.append(f"{scaled(trajectory.output_tokens)} tok out")
    return f"{printable(trajectory.id)}: " + ", ".join(words)


def _turn_lines(calls: Iterable[End]) -> list[str]:
    """Return the longest turns in the order in which they were taken."""
    turns: dict[int, list[End]] = {}
    for call in sorted(calls, key=lambda call: call.start):
        turns.setdefault(call.attributes.get(semconv.TURN, 0), []).append(call)
    longest = sorted(turns, key=lambda turn: -_length(turns[turn]))[:_TURNS]
    lines = []
    for turn in sorted(longest):
        lines += wrapped(f"turn {turn}: " + ", ".join(map(_call, turns[turn])), indent="      ")
    if len(turns) > _TURNS:
        lines.append(f"      and {counted(len(turns) - _TURNS, 'shorter turn')}")
    return lines


def _length(calls: Iterable[End]) -> int:
    return union((call.start, call.end) for call in calls)


def _call(call: End) -> str:
    tokens = call.attributes.get(semconv.OUTPUT_TOKENS)
    told = f" ({scaled(tokens)} tok)" if isinstance(tokens, int) else ""
    return f"{described(call.name, call.attributes)} {short(call.end - call.start)}{told}"


def described(name: str, attributes: dict[str, object]) -> str:
    """Return a span's name with what tells it from others of that name: environment, tool, reason."""
    keys = (semconv.ENVIRONMENT_NAME, semconv.TOOL_NAME, semconv.WAIT_REASON)
    words = [str(attributes[key]) for key in keys if key in attributes]
    return printable(" ".join([name, *words]))
