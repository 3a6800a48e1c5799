"""What a reader of a run sees beyond the tables: the slowest trajectories, what is open, and the terminal itself."""

from __future__ import annotations

from rl_otel._render.openings import open_lines, open_summary
from rl_otel._render.slowest import slowest_lines
from rl_otel._render.terminal import Terminal

__all__ = ["Terminal", "open_lines", "open_summary", "slowest_lines"]
