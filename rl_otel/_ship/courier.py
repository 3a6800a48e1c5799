"""Brings spans to a back end: tries again as often as that makes sense, and notes what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rl_otel import _record, _safety
from rl_otel._send import Backoff
from rl_otel._ship.notes import Notes
from rl_otel._ship.route import Ready, Span


class Verdict(NamedTuple):
    """What became of spans that were to be delivered."""

    sent: int = 0
    dropped: int = 0
    rest: list[Span] = []  # noqa: RUF012 - never changed; to be tried again
    wait: float | None = None  # s, what the back end asked for before the next try


class Outlet(Protocol):
    """Delivers spans to a back end."""

    def deliver(self, spans: list[Span], resource: _record.Attributes, *, one_service: bool) -> Verdict:
        """Deliver spans of the process with that resource, and say what became of each. Never raises."""

    def rest(self) -> None:
        """Let go of what a forked child should not have; the next delivery opens it again."""

    def close(self) -> None:
        """Let go of connections."""


class Courier:
    """Delivers the spans of one process.

    Args:
        outlet: where to.
        resource: of the process whose spans they are.
        one_service: whether all go under one service name.
        notes: what the back end has.
        pause: waits so many seconds, if the second argument is true in a hurry too; whether to try again.
        count: takes how many more were sent and dropped.
    """

    def __init__(
        self,
        outlet: Outlet,
        resource: _record.Attributes,
        *,
        one_service: bool,
        notes: Notes,
        pause: Callable[[float, bool], bool],
        count: Callable[[int, int], None],
    ) -> None:
        self._outlet = outlet
        self._resource = resource
        self._one_service = one_service
        self._notes = notes
        self._pause = pause
        self._count = count
        self._backoff = Backoff()

    def deliver(self, ready: list[Ready]) -> bool:
        """Deliver spans; False where it was given up, and some are not delivered."""
        while ready:
            verdict = self._tried([each.span for each in ready])
            rest = set(map(id, verdict.rest))
            self._notes.add(each for each in ready if id(each.span) not in rest)
            self._count(verdict.sent, verdict.dropped)
            ready = [each for each in ready if id(each.span) in rest]
            if ready and not self._pause(self._backoff.delay(verdict.wait), verdict.wait is not None):
                return False
        self._backoff.reset()
        return True

    def _tried(self, spans: list[Span]) -> Verdict:
        try:
            return self._outlet.deliver(spans, self._resource, one_service=self._one_service)
        except Exception as error:
            _safety.swallow("sending", error)
            return Verdict(dropped=len(spans))
