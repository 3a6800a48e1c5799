"""A run's records turned into the figures of its steps: step after step, without keeping the run in memory."""

from __future__ import annotations

from rl_otel._analysis.outside import Outside
from rl_otel._analysis.ranks import absent
from rl_otel._analysis.steps import Analysis, StepReport, Unfinished
from rl_otel._analysis.trace import Played
from rl_otel._analysis.trained import Detail, links_of

__all__ = ["Analysis", "Detail", "Outside", "Played", "StepReport", "Unfinished", "absent", "links_of"]
