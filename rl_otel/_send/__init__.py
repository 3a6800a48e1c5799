"""One attempt to deliver a request, over http or grpc, and what came of it.

A sender never raises and never outlives its timeout. Whether and when to try again is decided above.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from rl_otel._safety import pass_on
from rl_otel._send.backoff import Backoff
from rl_otel._send.diagnosis import diagnose
from rl_otel._send.endpoint import GRPC, METRICS, PROTOCOLS, TRACES, Target, resolve, shown
from rl_otel._send.outcome import Fault, Outcome, State
from rl_otel._send.over_grpc import GrpcSender
from rl_otel._send.over_http import HttpSender
from rl_otel._send.proxy import proxy_for
from rl_otel._send.untraced import untraced

__all__ = [
    "METRICS",
    "PROTOCOLS",
    "TRACES",
    "Backoff",
    "Fault",
    "Outcome",
    "Sender",
    "State",
    "Target",
    "diagnose",
    "prepare",
    "proxy_for",
    "resolve",
    "sender_for",
    "shown",
    "untraced",
]


class Sender(Protocol):
    """Delivers requests to one target."""

    def send(self, body: bytes, spans: int, timeout: float) -> Outcome:
        """Make one attempt, of `timeout` seconds at most, to deliver a request of `spans` spans."""

    def close(self) -> None:
        """Close what is open; the next `send` opens it again."""

    def abandon(self) -> None:
        """In a forked child: let go of what is the parent's, and close nothing."""


def prepare(target: Target) -> None:
    """Import what sending needs, on the caller's thread.

    On the thread that sends, a fork meanwhile would leave the child waiting for ever for the same import.
    """
    for module in ("grpc",) if target.protocol == GRPC else ("encodings.idna",):
        try:
            import_module(module)
        except Exception as error:  # the first attempt to send says it
            pass_on(error)


def sender_for(target: Target) -> Sender:
    """Return what sends to `target`; nothing is opened yet."""
    return GrpcSender(target) if target.protocol == GRPC else HttpSender(target)
