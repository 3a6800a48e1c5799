"""Which spans somebody wants who asks for more than the budget let through."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rl_otel import _record, semconv
from rl_otel._budget import Held, Joined, Late, Send, spot_of
from rl_otel._journal import Batch, Place
from rl_otel._otlp import Span
from rl_otel._ship.slowest import SlowestRanks


@dataclass(frozen=True)
class Wish:
    """What somebody asks for: nothing more than is pending, or the detail of some trajectories, or all."""

    step: int | None = None
    trajectory: str | None = None
    slowest: int = 0
    all: bool = False
    slowest_rank: bool = False

    @property
    def more(self) -> bool:
        """Whether it is for what the budget kept back."""
        return self.all or self.slowest_rank or self.slowest > 0 or self.trajectory is not None


class _Ended(NamedTuple):
    duration: int
    span: bytes


class Survey:
    """What the journals of a run say of steps and trajectories: fed with all their records, it knows what is wanted."""

    def __init__(self, wish: Wish) -> None:
        self.phases = {b""}  # what is directly inside one of these, or nothing, is inside no trajectory
        self._wish = wish
        self._ranks = SlowestRanks()
        self._steps: set[bytes] = set()  # traces of the step that is asked for
        self._trajectories: set[bytes] = set()
        self._named: list[tuple[bytes, bytes]] = []  # trace and span of those with the name that is asked for
        self._slowest: defaultdict[bytes, list[_Ended]] = defaultdict(list)  # by trace, a heap

    def begin(self, base: Path, process: _record.Process) -> None:
        """Take the records of a process from now on, whose files begin with `base`."""
        self._ranks.begin(base, process)

    def take(self, record: _record.Record) -> None:
        """Take one more record."""
        if not isinstance(record, _record.Start | _record.End):
            return
        if record.attributes.get(semconv.STEP_INDEX) == self._wish.step is not None:
            self._steps.add(record.trace)
        if self._wish.slowest_rank:
            self._ranks.take(record)
        if record.name == semconv.TRAJECTORY:
            self._trajectory(record)
        elif record.name == semconv.STEP or semconv.PHASE in record.attributes:
            self.phases.add(record.span)

    @property
    def whole(self) -> bool:
        """Whether all traces are asked for."""
        return self._wish.step is None

    @property
    def found(self) -> bool:
        """Whether the step that is asked for is there."""
        return self.whole or bool(self._steps)

    def wants(self, trace: bytes) -> bool:
        """Whether a trace is one of those asked for."""
        return self._wish.step is None or trace in self._steps

    def wanted_of(self, base: Path) -> Callable[[bytes], bool]:
        """Return what says of which traces a process's spans are wanted, where no trajectories are."""
        if not self._wish.slowest_rank:
            return self.wants
        traces = {trace for trace, bases in self._ranks.found.items() if base in bases and self.wants(trace)}
        return traces.__contains__

    @property
    def several_ranks(self) -> bool:
        """Whether a step that is asked for has more than one."""
        return any(map(self.wants, self._ranks.found))

    def roots(self) -> set[bytes]:
        """Return the trajectories whose detail is wanted; those inside another one come with that."""
        if self._wish.trajectory is not None:
            return {span for trace, span in self._named if self.wants(trace)}
        heaps = [heap for trace, heap in self._slowest.items() if not trace or self.wants(trace)]
        return {ended.span for heap in heaps for ended in heap}

    def _trajectory(self, record: _record.Start | _record.End) -> None:
        self._trajectories.add(record.span)
        name = str(record.attributes.get(semconv.TRAJECTORY_ID, ""))
        if not isinstance(record, _record.End):
            return
        if name == self._wish.trajectory:
            self._named.append((record.trace, record.span))
        if record.parent not in self._trajectories and (record.parent or self._wish.step is None):
            self._rank(record)

    def _rank(self, record: _record.End) -> None:
        heap = self._slowest[record.trace if record.parent else b""]  # those of no step are compared with each other
        heapq.heappush(heap, _Ended(record.end - record.start, record.span))
        if not self._wish.all and len(heap) > self._wish.slowest:
            heapq.heappop(heap)


class Picker:
    """Picks from one journal, in the place of a `Selector`, what is wanted; whether it was sent is for others to say.

    What the sampler left out is wanted like what the budget left out: who asks for it has his reasons.

    Args:
        survey: of all journals of the run.
        roots: trajectories to pick with what is inside them; None for all spans of the traces that are wanted.
        wants: says of a trace whether its spans are wanted, where `roots` is None.
        undecided: places of records that are not to be picked.
    """

    def __init__(
        self,
        survey: Survey,
        roots: set[bytes] | None,
        wants: Callable[[bytes], bool],
        undecided: Container[Place] = (),
    ) -> None:
        self.root_of: dict[bytes, bytes] = {}  # by span that was picked: its trajectory
        self._survey = survey
        self._roots = roots
        self._wants = wants
        self._undecided = undecided
        self._waiting: dict[bytes, list[tuple[Held, bytes]]] = {}  # by parent that has not ended

    def hold(self, batch: Batch, at: int, until: float) -> int:
        """Take no record: `take` says of each whether it is wanted."""
        return at

    def take(self, record: _record.Record, place: Place, late: Late = ()) -> list[Send]:
        """Take the next record, and return what is wanted."""
        if not isinstance(record, _record.End | _record.Foreign):
            return []
        held: Held | None = None
        if not record.flags & _record.LOCAL and place not in self._undecided:
            spot = spot_of(place, 0)
            held = Joined(spot, late) if late else spot
        if self._roots is None:
            return [held] if held is not None and self._wants(record.trace) else []
        return self._inside(record, held, self._roots)

    def finish(self) -> list[Send]:
        """Nothing more will come; what still waits for its parent is inside nothing that is wanted."""
        self._waiting.clear()
        return []

    def _inside(self, record: Span, held: Held | None, roots: set[bytes]) -> list[Send]:
        root = record.span if record.span in roots else self._root(record.parent, roots)
        waiting = self._waiting.pop(record.span, [])
        if held is not None:
            waiting.append((held, record.span))
        if root is not None:
            self.root_of[record.span] = root
            self.root_of.update((span, root) for _, span in waiting)
            return [each for each, _ in waiting]
        if waiting and record.parent not in self._survey.phases:
            self._waiting.setdefault(record.parent, []).extend(waiting)
        return []

    def _root(self, parent: bytes, roots: set[bytes]) -> bytes | None:
        return parent if parent in roots else self.root_of.get(parent)
