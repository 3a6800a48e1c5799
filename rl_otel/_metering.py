"""The meter of a runtime: what it watches, and what it tells of the spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rl_otel._metrics import Meter, Outlet, Watched, nothing_known

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime


def meter_of(runtime: Runtime, outlet: Callable[[Runtime], Outlet | None]) -> Meter | None:
    """Return what measures for this runtime, None where no metrics are wanted."""
    out = outlet(runtime)
    if out is None:
        return None
    return Meter(
        runtime.config,
        runtime.resource,
        runtime.began,
        Watched(runtime.timelines, runtime.in_flight, runtime.buffers, lambda: runtime.gpu, nothing_known()),
        counts=lambda: _counts(runtime),
        overhead=runtime.overhead.spent,
        outlet=out,
    )


def _counts(runtime: Runtime) -> dict[str, int]:
    """Tell what became of the spans so far."""
    written, lost = runtime.journal.written, runtime.journal.lost
    told = runtime.states(written, lost)
    return {"ended": written + lost, "sent": told.sent, "kept": told.kept, "dropped": told.dropped}
