"""The figures of trajectories, rollouts, steps and runs: computed once here for span, table, summary and report.

Pure functions over plain values. Times are nanoseconds (int); seconds only where a figure leaves as an attribute.
What is not known is None or absent, never 0.
"""

from __future__ import annotations

from rl_otel._figures.gpu import Memory
from rl_otel._figures.ranks import Among, RankFigures, RankTimes, RunRanks, place_of
from rl_otel._figures.roles import Done, Elsewhere, Role, roles
from rl_otel._figures.rollout import Direct, Rollout, Spread, dropped_of, rollout, rollout_attributes, slowest
from rl_otel._figures.run import Cumulated, RunFigures, run
from rl_otel._figures.serving import STAGES, Request, Serving, serving
from rl_otel._figures.staleness import Staleness, joined_staleness, staleness_attributes, staleness_of
from rl_otel._figures.step import Phase, Row, StepFigures, step, summary
from rl_otel._figures.trajectory import NANO, Trajectory, trajectory_attributes, trajectory_of
from rl_otel._figures.wasted import Wasted

__all__ = [
    "NANO",
    "STAGES",
    "Among",
    "Cumulated",
    "Direct",
    "Done",
    "Elsewhere",
    "Memory",
    "Phase",
    "RankFigures",
    "RankTimes",
    "Request",
    "Role",
    "Rollout",
    "Row",
    "RunFigures",
    "RunRanks",
    "Serving",
    "Spread",
    "Staleness",
    "StepFigures",
    "Trajectory",
    "Wasted",
    "dropped_of",
    "joined_staleness",
    "place_of",
    "roles",
    "rollout",
    "rollout_attributes",
    "run",
    "serving",
    "slowest",
    "staleness_attributes",
    "staleness_of",
    "step",
    "summary",
    "trajectory_attributes",
    "trajectory_of",
]
