"""The ranks of a run beside each other, where there are several."""

from __future__ import annotations

from rl_otel._analysis import Analysis
from rl_otel._figures import Among, RankFigures
from rl_otel._table import counted, cut, exact, numbered, short, wrapped

_WIDTH = 26  # of the first column
_COLUMN = 9
_NAMED = 3  # ranks that held up most


def rank_lines(figures: RankFigures | None) -> list[str]:
    """Return a table of the phases of a step over its ranks, and which rank held up the others."""
    if figures is None:
        return []
    held_up = ""
    if figures.clear:
        above = f"{short(figures.by)} above the median"
        held_up = f"Held up by rank {figures.slowest}: {above}, most of it in {cut(figures.phase, _WIDTH)}"
    return [*_table(f"{figures.ranks} ranks", figures), *wrapped(held_up)]


def run_rank_lines(analysis: Analysis) -> list[str]:
    """Return the same over all steps of a run: their sums, and in how many steps each rank held up the others."""
    figures, run = analysis.ranks.figures(), analysis.ranks
    if figures is None:
        return []
    most = [f"rank {rank} in {counted(steps, 'step')}" for rank, steps in run.held_up.most_common(_NAMED)]
    if len(run.held_up) > _NAMED:
        most.append("others")
    held_up = f"Held up by {', '.join(most)}" if most else ""
    return [*_table(f"{figures.ranks} ranks, {counted(run.steps, 'step')}", figures), *wrapped(held_up)]


def again_lines(analysis: Analysis, restarts: int) -> list[str]:
    """Return a sentence on the restarts of a run, and which steps were done again."""
    if restarts < 1:
        return []
    again = sorted(analysis.again)
    times = "once" if restarts == 1 else "twice" if restarts == 2 else f"{restarts} times"
    was = "was" if len(again) == 1 else "were"
    return wrapped(f"Restarted {times}" + (f": {numbered('step', again)} {was} done again" if again else ""))


def _table(title: str, figures: RankFigures) -> list[str]:
    heads = "".join(head.rjust(_COLUMN) for head in ("min", "median", "max"))
    head = f"  {title:<{_WIDTH}}{heads}  slowest"
    return [head, "  " + "-" * (len(head) - 2), *map(_row, _nested(figures.rows))]


def _nested(rows: tuple[Among, ...], around: tuple[str, ...] = ()) -> list[Among]:
    """Return rows in their order, each followed by those inside of it."""
    inside = [row for row in rows if row.path[:-1] == around]
    return [each for row in inside for each in (row, *_nested(rows, row.path))]


def _row(row: Among) -> str:
    indent = "  " * min(len(row.path) - 1, 4)
    label = f"{indent}{cut(row.path[-1], _WIDTH - len(indent) - 2)}:"
    times = [exact(time) for time in (row.min, row.median, row.max)]
    # Where the table shows no difference it names nobody for one.
    who = "" if times[0] == times[2] else f"  rank {row.rank}{' waited least' if row.waits else ''}"
    return f"  {label:<{_WIDTH}}{''.join(time.rjust(_COLUMN) for time in times)}{who}"


__all__ = ["again_lines", "rank_lines", "run_rank_lines"]
