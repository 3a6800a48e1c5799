"""Delivers metrics over OTLP: one request, one attempt; who exports decides whether there is another."""

from __future__ import annotations

from rl_otel._safety import say, say_once
from rl_otel._send import Fault, Outcome, Sender, State, Target, diagnose, sender_for


class MetricsWire:
    """The outlet of metrics to an OTLP endpoint.

    Args:
        target: where that is.
        shared: whether spans go there too, so that one line is enough for what is wrong with it.
    """

    def __init__(self, target: Target, *, shared: bool) -> None:
        self._target = target
        self._topics = ("send", "back") if shared else ("send metrics", "metrics back")
        self._sender: Sender | None = None  # made by the thread that sends, after any fork
        self._away = False

    @property
    def protocol(self) -> str:
        """How requests are encoded."""
        return self._target.protocol

    def send(self, body: bytes, points: int, timeout: float) -> bool:
        """Deliver one export in `timeout` seconds at most; False if it is to be tried again."""
        if self._sender is None:
            self._sender = sender_for(self._target)
        outcome = self._sender.send(body, points, timeout)
        trouble, back = self._topics
        if outcome.ok and self._away:
            say(back, "rl_otel: %s answers again", self._target.url)
        self._away = outcome.state is State.RETRY
        if outcome.fault in {Fault.PATH, Fault.NO_RECEIVER}:
            # A back end for traces alone is no reason to say so every minute.
            say_once("no metrics", "rl_otel: metrics: %s. OTEL_METRICS_EXPORTER=none sends none", self._told(outcome))
        elif not outcome.ok or outcome.rejected:
            say(trouble, "rl_otel: metrics: %s", self._told(outcome))
        return not self._away

    def abandon(self) -> None:
        """In a forked child: let go of what is the parent's."""
        if self._sender is not None:
            self._sender.abandon()

    def _told(self, outcome: Outcome) -> str:
        return diagnose(self._target, outcome)

    def close(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            self._sender.close()
