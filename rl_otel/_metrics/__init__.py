"""Metrics: taken on the host's threads at next to no cost, exported by a thread of ours.

Steps, phases and trajectories go through instruments of OpenTelemetry's SDK, on the host's provider where there is one;
calls, of which there are thousands, through bucket arrays of our own. `prepare` imports the SDK, this package does not.
"""

from __future__ import annotations

from rl_otel._metrics import events
from rl_otel._metrics.file import File
from rl_otel._metrics.host import provider_of_host
from rl_otel._metrics.meter import Meter, Outlet, nothing_known, prepare
from rl_otel._metrics.nowhere import Nowhere
from rl_otel._metrics.observed import Watched

__all__ = ["File", "Meter", "Nowhere", "Outlet", "Watched", "events", "nothing_known", "prepare", "provider_of_host"]
