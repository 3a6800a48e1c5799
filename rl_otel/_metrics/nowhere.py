"""No place for metrics: what a `MeterProvider` of the host does not take goes nowhere."""

from __future__ import annotations

from rl_otel._kinds import JSON


class Nowhere:
    """The outlet of a process that has a way out for spans alone."""

    protocol = JSON

    def send(self, body: bytes, points: int, timeout: float) -> bool:
        """Let go of one export."""
        return True

    def close(self) -> None:
        """Do nothing: there is nothing."""

    def abandon(self) -> None:
        """Do nothing, for the same reason."""
