"""Brings spans to a back end: tries again as often as that makes sense, and notes what it has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from rl_otel import _record, _safety
from rl_otel._otlp import Writer
from rl_otel._send import Backoff
from rl_otel._ship.notes import Notes
from rl_otel._ship.ready import Due


class Verdict(NamedTuple):
    """What became of spans that were to be delivered."""

    sent: int = 0
    dropped: int = 0
    rest: Collection[bytes] = ()  # ids of those that are to be tried again
    wait: float | None = None  # s, what the back end asked for before the next try


class Outlet(Protocol):
    """Delivers spans to a back end."""

    def writer(self, resource: _record.Attributes, *, one_service: bool) -> Writer | None:
        """Return what writes the spans of the process with that resource; None where they are wanted as they are."""

    def deliver(self, spans: Sequence[Due], resource: _record.Attributes, *, one_service: bool) -> Verdict:
        """Deliver spans, as they are or as `writer` wrote them, and say what became of each. Never raises."""

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

    def deliver(self, ready: Sequence[Due]) -> bool:
        """Deliver spans; False where it was given up, and some are not delivered."""
        while ready:
            verdict = self._tried(ready)
            self._notes.add([each for each in ready if each.id not in verdict.rest] if verdict.rest else ready)
            self._count(verdict.sent, verdict.dropped)
            ready = [each for each in ready if each.id in verdict.rest] if verdict.rest else []
            if ready and not self._pause(self._backoff.delay(verdict.wait), verdict.wait is not None):
                return False
        self._backoff.reset()
        return True

    def _tried(self, spans: Sequence[Due]) -> Verdict:
        try:
            return self._outlet.deliver(spans, self._resource, one_service=self._one_service)
        except Exception as error:
            _safety.swallow("sending", error)
            return Verdict(dropped=len(spans))
