"""Run folders as a reader sees them: which runs there are, and the records of all processes of one, in time."""

from __future__ import annotations

from rl_otel._read.also import Also, Theirs
from rl_otel._read.finding import NoRun, find_run, newest_run
from rl_otel._read.names import Names
from rl_otel._read.run import Run
from rl_otel._read.source import Source

__all__ = ["Also", "Names", "NoRun", "Run", "Source", "Theirs", "find_run", "newest_run"]
