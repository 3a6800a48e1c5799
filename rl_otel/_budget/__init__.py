"""Which spans of a trace are sent: back ends open a trace of some size and refuse a larger one.

    refs, candidates     what is held: places in the journal, and the figures of trajectories that ended
    rank, decision       which trajectories keep their detail when their rollout ends
    limits, purse, books how much a trace may have, and what is left of it
    trace, selector      each record on its way: sent now, held, or kept in the journal alone

Pure logic: no clock, no file, no chance. The same records give the same decisions, so a replay after a crash sends
what the first pass would have sent.
"""

from __future__ import annotations

from rl_otel._budget.limits import Budget, quota
from rl_otel._budget.measure import Measure
from rl_otel._budget.rank import in_share
from rl_otel._budget.refs import Held, Joined, Late, Refs, place_of, size_of, spot_of
from rl_otel._budget.selector import Selector
from rl_otel._budget.trace import Send

__all__ = [
    "Budget",
    "Held",
    "Joined",
    "Late",
    "Measure",
    "Refs",
    "Selector",
    "Send",
    "in_share",
    "place_of",
    "quota",
    "size_of",
    "spot_of",
]
