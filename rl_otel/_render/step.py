"""What a report tells of a step beyond its table."""

from __future__ import annotations

from rl_otel import semconv
from rl_otel._analysis import Outside, StepReport
from rl_otel._figures import Wasted
from rl_otel._render.phases import phase_lines, utilization_lines
from rl_otel._render.ranks import rank_lines
from rl_otel._render.roles import role_lines
from rl_otel._render.serving import serving_lines
from rl_otel._render.slowest import slowest_lines, trained_lines
from rl_otel._render.words import recorded
from rl_otel._split import percentile
from rl_otel._table import LONGEST_ID, counted, cut, percent, scaled, short, step_lines, wrapped

_SHOWN = frozenset({semconv.LOSS, semconv.REWARD_MEAN, semconv.SAMPLES})


def table_lines(report: StepReport) -> list[str]:
    """Return a step's table, as the run printed it, with ranks, servers and other roles, and whether it ran again."""
    lines = [*step_lines(report.figures), *rank_lines(report.ranks), *serving_lines(report), *role_lines(report)]
    return [*lines, *_notes(report)]


def _notes(report: StepReport) -> list[str]:
    notes = []
    if report.again:
        notes.append("done again after a restart" + ("" if report.ended else ", which came in the midst of it"))
    if report.stand_in is not None:
        notes.append(f"told by rank {report.stand_in}: the step of rank 0 has not ended, or is not here")
    return [f"  ({note})" for note in notes]


def detail_lines(report: StepReport) -> list[str]:
    """Return a step's table and all there is to it: what was recorded, its slowest trajectories, its trace's id."""
    told = ", ".join(recorded(report.root, _SHOWN))
    phases = phase_lines(report)
    words = wrapped(f"Recorded: {told}".rstrip() if told or phases else "") + phases
    table = table_lines(report) + utilization_lines(report)
    trajectories = slowest_lines(report) + trained_lines(report)
    return [*table, *words, *trajectories, f"  Trace: {report.root.trace.hex()}"]


def outside_lines(outside: Outside) -> list[str]:
    """Return a line on the trajectories outside any step."""
    if not outside:
        return []
    number = len(outside.durations)
    median, longest = short(percentile(outside.durations, 0.5)), short(max(outside.durations))
    slowest = f", slowest {cut(outside.slowest, LONGEST_ID)}" if number > 1 and outside.slowest else ""
    failed = f"; {outside.failed} failed" if outside.failed else ""
    told = f"{counted(number, 'trajectory')} outside any step: p50 {median}  max {longest}"
    return wrapped(f"{told}{slowest}{failed}", indent="")


def wasted_lines(wasted: Wasted | None) -> list[str]:
    """Return a line on what was generated and never trained on, where that is known."""
    if wasted is None:
        return []
    share = f" ({percent(wasted.tokens / wasted.of_tokens)})" if wasted.of_tokens else ""
    tokens = f", {scaled(wasted.tokens)} of {scaled(wasted.of_tokens)} tok out{share}"
    whole = counted(wasted.of_trajectories, "trajectory")
    return wrapped(f"Generated, never trained on: {wasted.trajectories} of {whole}{tokens}")
