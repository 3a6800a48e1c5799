"""What is open now: the phases of a role's loop, and the trajectories and calls in flight.

Whoever watches a running step asks here: the start records of calls that take long, later the phase gauge, the GPU
peaks and the sampler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rl_otel import _record


class Open(Protocol):
    """A span that has begun, as far as a timeline has to know it."""

    @property
    def name(self) -> str:
        """The span's name, a constant of `semconv`."""

    @property
    def began(self) -> int:
        """When it began, in nanoseconds since the epoch."""

    def within(self, other: object) -> bool:
        """Whether `other` encloses this span."""

    def start_record(self) -> _record.Start:
        """What a journal says of a span that has only begun."""


class Timeline:
    """The loop of one role in this process: on it one phase at a time is the active one."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._phases: list[Open] = []  # in the order they were opened
        self.steps: set[int] = set()  # those that are open, by id()
        self.calls: set[Open] = set()  # generate and env.step in flight

    @property
    def active(self) -> Open | None:
        """The phase opened last of those that are open."""
        return next(iter(self._phases[-1:]), None)

    def enter(self, phase: Open) -> Open | None:
        """Make `phase` the active one. Returns the phase that was active though it does not enclose it, if any."""
        before = self.active
        self._phases.append(phase)
        return None if before is None or phase.within(before) else before

    def leave(self, phase: Open) -> None:
        """Take `phase` off; the one opened before it, if still open, is active again."""
        try:
            self._phases.remove(phase)  # in one go: other threads enter and leave meanwhile
        except ValueError:
            pass  # it was a part of a trajectory, not a phase

    def calls_since(self, moment: int) -> Iterator[Open]:
        """Yield the calls in flight that began before `moment` (ns since the epoch)."""
        # Copied in one go, for other threads begin and end calls meanwhile.
        for call in list(self.calls):
            if call.began < moment:
                yield call
