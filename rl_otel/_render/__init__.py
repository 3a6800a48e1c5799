"""What a reader of a run sees beyond the tables: a step in detail, what is outside the steps, and what is open."""

from __future__ import annotations

from rl_otel._render.missing import missing_lines
from rl_otel._render.openings import open_lines, open_summary
from rl_otel._render.ranks import again_lines, run_rank_lines
from rl_otel._render.step import detail_lines, outside_lines, table_lines, wasted_lines

__all__ = [
    "again_lines",
    "detail_lines",
    "missing_lines",
    "open_lines",
    "open_summary",
    "outside_lines",
    "run_rank_lines",
    "table_lines",
    "wasted_lines",
]
