"""Delivers metrics over OTLP: one request, one attempt; who exports decides whether there is another."""

from __future__ import annotations

from rl_otel._safety import say, say_once
from rl_otel._send import Fault, Outcome, State, Target, diagnose
from rl_otel._ship.line import Line


class MetricsWire:
    """The outlet of metrics to an OTLP endpoint.

    Args:
        target: where that is.
        shared: whether spans go there too, so that one line is enough for what is wrong with it.
    """

    def __init__(self, target: Target, *, shared: bool) -> None:
        self._line = Line(target, "back" if shared else "metrics back")
        self._trouble = "send" if shared else "send metrics"

    @property
    def protocol(self) -> str:
        """How requests are encoded."""
        return self._line.target.protocol

    def send(self, body: bytes, points: int, timeout: float) -> bool:
        """Deliver one export in `timeout` seconds at most; False if it is to be tried again."""
        outcome = self._line.send(body, points, timeout)
        if outcome.fault in {Fault.PATH, Fault.NO_RECEIVER}:
            # A back end for traces alone is no reason to say so every minute.
            say_once("no metrics", "rl_otel: metrics: %s. OTEL_METRICS_EXPORTER=none sends none", self._told(outcome))
        elif not outcome.ok or outcome.rejected:
            say(self._trouble, "rl_otel: metrics: %s", self._told(outcome))
        return outcome.state is not State.RETRY

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def abandon(self) -> None:
        """In a forked child: let go of what is the parent's."""
        self._line.abandon()

    def _told(self, outcome: Outcome) -> str:
        return diagnose(self._line.target, outcome)
