"""What a reader of a run sees beyond the tables: the slowest trajectories and what is open."""

from __future__ import annotations

from rl_otel._render.openings import open_lines, open_summary
from rl_otel._render.slowest import slowest_lines

__all__ = ["open_lines", "open_summary", "slowest_lines"]
