"""From the journal to a back end."""

from __future__ import annotations

from rl_otel._ship.delivery import Delivery
from rl_otel._ship.shipper import Outlet, Shipper, Span, Tally, Verdict
from rl_otel._ship.wire import Wire

__all__ = ["Delivery", "Outlet", "Shipper", "Span", "Tally", "Verdict", "Wire"]
