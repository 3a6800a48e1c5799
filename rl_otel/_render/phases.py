"""What was recorded on the phases of a step, and the parts of its weight syncs."""

from __future__ import annotations

from collections.abc import Sequence

from rl_otel import semconv
from rl_otel._analysis import StepReport
from rl_otel._record import Attributes, End
from rl_otel._render.words import described, recorded
from rl_otel._split import union
from rl_otel._table import LONGEST_ID, counted, cut, percent, scaled, short, wrapped

_OF_A_NAME = 5  # spans of one name that are told
_MOVED = frozenset({semconv.SYNC_BYTES})  # told with its unit


def utilization_lines(report: StepReport) -> list[str]:
    """Return how busy the GPUs were in each phase, where that is known."""
    shares = ", ".join(f"{name} {percent(share)}" for name, share in report.figures.gpu.utilization.items())
    return wrapped(f"GPU utilization: {shares}" if shares else "")


def phase_lines(report: StepReport) -> list[str]:
    """Return a line for each phase on which something was recorded, in their order; of many of a name the first."""
    told: dict[str, int] = {}
    lines: list[str] = []
    for phase in sorted(report.phases, key=lambda phase: phase.start):
        found = _phase(phase, report.parts)
        if found:
            told[phase.name] = told.get(phase.name, 0) + 1
            lines += found if told[phase.name] <= _OF_A_NAME else []
    more = [(name, number - _OF_A_NAME) for name, number in told.items() if number > _OF_A_NAME]
    return lines + [f"    and {counted(number, f'{name} phase')} more" for name, number in more]


def _phase(phase: End, parts: Sequence[End]) -> list[str]:
    words = recorded(phase, _MOVED) + _moved(phase.attributes)
    if semconv.SYNC_PAUSED in phase.attributes:
        words.append(f"paused {_seconds(phase.attributes[semconv.SYNC_PAUSED])}")
    inside = _parts(parts, {phase.span}, "      ")
    if not words and not inside:
        return []
    return wrapped(f"{described(phase.name, phase.attributes)}: {', '.join(words)}".rstrip(), indent="    ") + inside


def _parts(parts: Sequence[End], around: set[bytes], indent: str) -> list[str]:
    """Return a line for each name of the parts directly inside of `around`, with what is inside of them below it."""
    groups: dict[str, list[End]] = {}
    for part in sorted(parts, key=lambda part: part.start):
        if part.parent in around:
            groups.setdefault(str(part.attributes[semconv.SYNC_PART]), []).append(part)
    lines = []
    for name, group in groups.items():
        lines += wrapped(f"{cut(name, LONGEST_ID)}{_times(group)}: {', '.join(_part(group))}", indent)
        lines += _parts(parts, {part.span for part in group}, indent + "  ")
    return lines


def _part(group: Sequence[End]) -> list[str]:
    """Return what parts of one name come to; words of the host's own are told of one that is alone."""
    wall = union((part.start, part.end) for part in group)
    known = [part.attributes[semconv.SYNC_BYTES] for part in group if semconv.SYNC_BYTES in part.attributes]
    moved: Attributes = {}
    if len(known) == len(group):
        moved = {semconv.SYNC_BYTES: sum(known), semconv.SYNC_RATE: sum(known) * 1e9 / wall} if wall else {}
    return [short(wall), *_moved(moved), *(recorded(group[0], _MOVED) if len(group) == 1 else ())]


def _moved(attributes: Attributes) -> list[str]:
    units = {semconv.SYNC_BYTES: "B", semconv.SYNC_RATE: "B/s"}
    return [f"{scaled(attributes[key])}{unit}" for key, unit in units.items() if key in attributes]


def _seconds(seconds: float) -> str:
    return short(round(seconds * 1e9))


def _times(group: Sequence[End]) -> str:
    return f" x{len(group)}" if len(group) > 1 else ""


__all__ = ["phase_lines", "utilization_lines"]
