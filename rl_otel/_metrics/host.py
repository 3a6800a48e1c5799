"""The `MeterProvider` that the host has set, if it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


def provider_of_host() -> MeterProvider | None:
    """Return it; None where there is OpenTelemetry's stand-in, or one that does nothing."""
    from opentelemetry import metrics  # it takes a while to load

    present = metrics.get_meter_provider()
    return present if hasattr(present, "force_flush") else None
