"""What is open now: the phases of each role's loop, and the trajectories and calls in flight.

Whoever watches a running step asks here: the start records of calls that take long, the phase gauge, the GPU peaks and
the sampler.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final, Protocol

from rl_otel import _record, semconv

MOST_NAMES: Final = 128  # of phases; what comes after them counts as `other`
MOST_WAITS: Final = 4096  # of a role that are remembered for the steps they lie in
_RANKS: Final = {name: semconv.PARTS.index(part) for name, part in semconv.PART_OF.items()}
_STATES: Final = (*semconv.PARTS, semconv.OTHER)


class Open(Protocol):
    """A span that has begun, as far as a timeline has to know it."""

    @property
    def name(self) -> str:
        """The span's name, a constant of `semconv`."""

    @property
    def began(self) -> int:
        """When it began, in nanoseconds since the epoch."""

    @property
    def enclosing(self) -> Open | None:
        """The span directly around it."""

    def within(self, other: object) -> bool:
        """Whether `other` encloses this span."""

    def start_record(self) -> _record.Start:
        """What a journal says of a span that has only begun."""


class Here:
    """A role that was opened: tasks that begin inside have it, also when it has been left where it was opened.

    Args:
        role: its name.
        opener: the handle that opened it, which many threads and tasks may share.
        outside: what is around it.
    """

    __slots__ = ("opener", "outside", "role")

    def __init__(self, role: str, opener: object, outside: Here | None) -> None:
        self.role = role
        self.opener = opener
        self.outside = outside

    def without(self, opener: object) -> Here | None:
        """Return what is here once the innermost role that `opener` opened is left, also where others are inside it."""
        inside: list[Here] = []
        node: Here | None = self
        while node is not None and node.opener is not opener:
            inside.append(node)
            node = node.outside
        if node is None:
            return self  # left in another context, as a generator is that is closed elsewhere
        left = node.outside
        for each in reversed(inside):
            left = Here(each.role, each.opener, left)
        return left


here: Final[ContextVar[Here | None]] = ContextVar("rl_otel_role", default=None)
get_here: Final = here.get  # looked up once: each call asks


class Timeline:
    """The loop of one role in this process: on it one phase at a time is the active one."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._phases: list[Open] = []  # in the order they were opened
        self.steps: set[int] = set()  # those that are open, by id()
        self.lone: set[int] = set()  # trajectories in flight that are traces of their own, by id()
        self.names: dict[str, None] = {}  # of the phases so far
        self.waits: deque[tuple[str, int, int]] = deque(maxlen=MOST_WAITS)  # that ended: reason, beginning, end

    @property
    def active(self) -> Open | None:
        """The phase opened last of those that are open."""
        return next(iter(self._phases[-1:]), None)

    def enter(self, phase: Open) -> Open | None:
        """Make `phase` the active one.

        Returns the phase that was active though it does not enclose it, if any; several may wait at once.
        """
        before = self.active
        self._phases.append(phase)
        if len(self.names) < MOST_NAMES:
            self.names[phase.name] = None
        waiting = before is not None and before.name == phase.name == semconv.WAIT
        return None if before is None or waiting or phase.within(before) else before

    def leave(self, phase: Open) -> None:
        """Take `phase` off; the one opened before it, if still open, is active again."""
        try:
            self._phases.remove(phase)  # in one go: other threads enter and leave meanwhile
        except ValueError:
            pass  # it was a part of a trajectory, not a phase

    def waits_until(self, moment: int) -> Iterator[tuple[str, int, int]]:
        """Yield reason, beginning and end of the waits so far, of those that are open until `moment` (ns)."""
        yield from list(self.waits)
        for phase in list(self._phases):
            if phase.name == semconv.WAIT:
                yield phase.start_record().attributes.get(semconv.WAIT_REASON, ""), phase.began, moment

    # --- for the gauges -----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """What the loop is doing now: the active phase, `other` between two phases, `idle` where nothing is open."""
        active = self.active
        if active is not None:
            return active.name if active.name in self.names else semconv.OTHER
        return semconv.OTHER if self.steps or self.lone else semconv.IDLE

    def began(self) -> dict[str, int]:
        """Return since when a phase of each name has been open, of those that are."""
        found: dict[str, int] = {}
        for phase in list(self._phases):
            found.setdefault(phase.name, phase.began)
        return found


class Timelines:
    """The timelines of a process: its own, and one for each role that was opened in it."""

    def __init__(self, role: str) -> None:
        self.own = Timeline(role)
        self._by_role = {role: self.own}

    def here(self) -> Timeline:
        """Return the timeline on which a phase would begin that is opened here."""
        opened = get_here()
        if opened is None:
            return self.own
        return self._by_role.get(opened.role) or self._by_role.setdefault(opened.role, Timeline(opened.role))

    def beside(self, own: Timeline | None) -> Iterator[Timeline]:
        """Yield the others."""
        return (timeline for timeline in self if timeline is not own)

    def __iter__(self) -> Iterator[Timeline]:
        return iter(list(self._by_role.values()))


class InFlight:
    """The trajectories of a process that are open, and what goes on inside them."""

    def __init__(self) -> None:
        self.calls: set[Open] = set()  # generate and env.step
        self.parts: set[Open] = set()  # rewards and waits
        self.trajectories: set[Open] = set()

    def calls_since(self, moment: int) -> Iterator[Open]:
        """Yield the calls in flight that began before `moment` (ns since the epoch)."""
        # Copied in one go, for other threads begin and end calls meanwhile.
        for call in list(self.calls):
            if call.began < moment:
                yield call

    def open_trajectories(self) -> list[Open]:
        """Return the trajectories in flight."""
        return list(self.trajectories)

    def doing(self) -> Counter[str]:
        """Count the trajectories in flight by what they are doing; of several things at once, the first of `PARTS`."""
        ranks: dict[Open | None, int] = dict.fromkeys(list(self.trajectories), len(semconv.PARTS))
        for part in (*list(self.calls), *list(self.parts)):
            around = part.enclosing
            if around in ranks:
                ranks[around] = min(ranks[around], _RANKS[part.name])
        return Counter(_STATES[rank] for rank in ranks.values())
