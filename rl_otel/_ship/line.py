"""A line to one receiver: made when it is first used, and it says when the receiver answers again."""

from __future__ import annotations

from rl_otel._safety import say
from rl_otel._send import Outcome, Sender, State, Target, sender_for


class Line:
    """Sends to one target. Used by one thread, which makes the connection after any fork.

    Args:
        target: where to.
        back: the topic under which its return is said.
    """

    def __init__(self, target: Target, back: str) -> None:
        self.target = target
        self._back = back
        self._sender: Sender | None = None
        self._away = False

    def send(self, body: bytes, items: int, timeout: float) -> Outcome:
        """Send one request of so many spans or data points, and return what came of it."""
        if self._sender is None:
            self._sender = sender_for(self.target)
        outcome = self._sender.send(body, items, timeout)
        if outcome.ok and self._away:
            say(self._back, "rl_otel: %s answers again", self.target.url)
        self._away = outcome.state is State.RETRY or (outcome.fault.of_address and not outcome.ok)
        return outcome

    def close(self) -> None:
        """Close the connection; the next request opens one."""
        if self._sender is not None:
            self._sender.close()

    def abandon(self) -> None:
        """In a forked child: let go of what is the parent's."""
        if self._sender is not None:
            self._sender.abandon()
