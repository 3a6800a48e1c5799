"""The trajectories of a step that one looks for: the slowest, with parts and longest turns, and those that failed."""

from __future__ import annotations

from collections.abc import Iterable

from rl_otel import semconv
from rl_otel._analysis import Detail, Played, StepReport
from rl_otel._figures import Trajectory
from rl_otel._read import Names
from rl_otel._record import End
from rl_otel._render.serving import served_lines
from rl_otel._render.words import described, recorded
from rl_otel._split import union
from rl_otel._table import FAILED, LONGEST_ID, WIDTH, counted, cut, scaled, short, wrapped

_TURNS = 5
_FAILED = 3
_SHOWN = frozenset({semconv.TRAJECTORY_REWARD, semconv.TRAJECTORY_OUTCOME})
_RESET = -1  # as a turn


def slowest_lines(report: StepReport) -> list[str]:
    """Return the lines on the slowest trajectories of a step; of its evaluation's where it trained on none."""
    figures = report.figures
    rollout = next((each for each in (figures.training, figures.evaluation) if each and each.slowest), None)
    if rollout is None:
        return []
    return ["  Slowest trajectories:", *_lines(rollout.slowest, report.detail, report.names)]


def trained_lines(report: StepReport) -> list[str]:
    """Return the same lines on the trajectories of other traces that a step trained on."""
    trained = report.trained
    if trained is None:
        return []
    here = len(trained.detail.trajectories)
    known = f" ({here} of {trained.number} known)" if here < trained.number else ""
    head = f"  Slowest trajectories this step trained on{known}:"
    return [head, *_lines(trained.slowest, trained.detail, report.names)]


def _lines(slowest: Iterable[Trajectory], detail: Detail, names: Names) -> list[str]:
    played = {each.record.span: each for each in detail.trajectories}
    lines = []
    told = set()
    for trajectory in slowest:
        lines += _trajectory_lines(played[trajectory.span], names) + served_lines(trajectory.span, detail)
        lines += _turn_lines([call for call in detail.calls if call.parent == trajectory.span])
        told.add(trajectory.span)
    return lines + _failed_lines(detail, names, told)


def _failed_lines(detail: Detail, names: Names, told: set[bytes]) -> list[str]:
    ended = (each for each in detail.trajectories if each.figures.outcome in FAILED)
    failed = [each for each in ended if each.figures.span not in told]
    if not failed:
        return []
    lines = ["  Failed as well:"]
    for played in failed[:_FAILED]:
        lines += _trajectory_lines(played, names)
    if len(failed) > _FAILED:
        lines.append(f"    and {len(failed) - _FAILED} more")
    return lines


def _trajectory_lines(played: Played, names: Names) -> list[str]:
    more = recorded(played.record, _SHOWN)
    more += [] if played.staleness is None else [f"staleness {played.staleness}"]
    more += [] if names.alone else [f"in {cut(names.of(played.source), LONGEST_ID)}"]
    lines = wrapped(_sentence(played.figures, more), indent="    ")
    error = " ".join(played.record.message.split())
    return [*lines, cut(f"      {error}", WIDTH)] if error else lines


def _sentence(trajectory: Trajectory, more: list[str]) -> str:
    words = [short(trajectory.duration)]
    if trajectory.turns is not None:
        words.append(counted(trajectory.turns, "turn"))
    words += [f"{part} {short(time)}" for part, time in (trajectory.parts or {}).items()]
    words.append(trajectory.outcome)
    if trajectory.reward is not None:
        words.append(f"reward {trajectory.reward:+.3f}")
    if trajectory.output_tokens is not None:
        words.append(f"{scaled(trajectory.output_tokens)} tok out")
    return f"{cut(trajectory.id, LONGEST_ID)}: " + ", ".join([*words, *more])


def _turn_lines(calls: Iterable[End]) -> list[str]:
    """Return the longest turns in the order in which they were taken; where no call knows its turn, calls."""
    ordered = sorted(calls, key=lambda call: call.start)
    word = "turn" if any(semconv.TURN in call.attributes for call in ordered) else "call"
    turns: dict[int, list[End]] = {}
    turn = 0
    for number, call in enumerate(ordered, 1):
        turn = _turn(call, max(turn, 0)) if word == "turn" else number
        turns.setdefault(turn, []).append(call)
    longest = sorted(turns, key=lambda turn: -_length(turns[turn]))[:_TURNS]
    lines = []
    for turn in sorted(longest):
        head = "reset" if turn == _RESET else f"{word} {turn}"
        lines += wrapped(f"{head}: " + ", ".join(map(_call, turns[turn])), indent="      ")
    shorter = turns.keys() - {_RESET, *longest}
    if shorter:
        lines.append(f"      and {counted(len(shorter), f'shorter {word}')}")
    return lines


def _turn(call: End, current: int) -> int:
    """Return the turn of a call: where it does not know, as in another process, that in which it began."""
    turn: int = call.attributes.get(semconv.TURN, current)
    return _RESET if turn == 0 and call.name == semconv.ENV_RESET else turn  # it comes before the first turn


def _length(calls: Iterable[End]) -> int:
    return union((call.start, call.end) for call in calls)


def _call(call: End) -> str:
    tokens = call.attributes.get(semconv.OUTPUT_TOKENS)
    told = f" ({scaled(tokens)} tok)" if isinstance(tokens, int) else ""
    return f"{described(call.name, call.attributes)} {short(call.end - call.start)}{told}"


__all__ = ["slowest_lines", "trained_lines"]
