"""From the journal to a back end.

plan                what decides, besides the spans, which go and how
ready               a span on its way out
route               a journal's spans: late values joined, the budget asked, detail read back
notes, courier      what the back end has, and how the rest gets there
wire, line, target  over OTLP, where the settings say
shipper             the thread that does it as the run goes on
replay              the same for a process that is gone
later, extra, file  `rl-otel ship`: the same from outside, and more than the budget let through

What goes is decided by the records alone, so whoever delivers a journal sends the same spans as the same bytes.
"""

from __future__ import annotations

from rl_otel._ship.courier import Outlet, Verdict
from rl_otel._ship.delivery import Delivery
from rl_otel._ship.metrics_wire import MetricsWire
from rl_otel._ship.plan import CALLS, Plan
from rl_otel._ship.ready import Due, Ready
from rl_otel._ship.shipper import Shipper, Tally
from rl_otel._ship.target import metrics_target_of, target_of
from rl_otel._ship.wire import Wire

__all__ = [
    "CALLS",
    "Delivery",
    "Due",
    "MetricsWire",
    "Outlet",
    "Plan",
    "Ready",
    "Shipper",
    "Tally",
    "Verdict",
    "Wire",
    "metrics_target_of",
    "target_of",
]
