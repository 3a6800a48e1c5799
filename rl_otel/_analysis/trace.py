"""One trace while it is read: a step with its phases and trajectories, or a phase outside any step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from rl_otel import _figures, _record, semconv
from rl_otel._analysis import ranks
from rl_otel._analysis.checked import stages_of
from rl_otel._analysis.clocks import Visit, Visits
from rl_otel._read import Source, Theirs

GATHERS = (semconv.ROLLOUT, semconv.EVAL)
_SKEW = 1_000_000_000  # ns by which a trajectory of another process may outlive its step
_EXPECTED = (semconv.TRAJECTORY, semconv.ROLLOUT, semconv.EVAL)


class Span:
    """As much of a span as what is inside of it needs to know; `end` is 0 while it is open."""

    __slots__ = ("end", "name", "parent", "source", "start")

    def __init__(self, source: Source | None, name: str, parent: bytes, start: int, end: int) -> None:
        self.source = source
        self.name = name
        self.parent = parent
        self.start = start
        self.end = end


class Played(NamedTuple):
    """A trajectory that has ended, its span, and the process it ran in; `staleness` as whoever trained on it says."""

    figures: _figures.Trajectory
    record: _record.End
    source: Source
    staleness: int | None = None


class Playing(NamedTuple):
    """A trajectory that is open: its own span will tell of its calls, so that nobody has to decode them."""

    source: Source
    wanted: set[bytes]  # the calls in its trace that something else is inside of


class Trace:
    """What is known so far of one trace; `detail` keeps calls and parts too, `clocks` what tells of those."""

    def __init__(self, *, detail: bool = False, clocks: bool = False) -> None:
        self.root: tuple[Source, _record.End] | None = None
        self.steps: list[tuple[Source, _record.End]] = []  # the root, and the steps that other ranks have below it
        self.stepping: set[bytes] = set()  # those of them that are open
        self.reached = 0  # when the last of its steps ended, or the phase that is its root
        self.index: int | None = None
        self.begun = False  # its root is known, ended or not
        self.restart = 0
        self.closed = False  # its figures are made; only what is still open is of interest
        self.opened: dict[bytes, tuple[Source, _record.Start]] = {}
        self.phases: list[tuple[Source, _record.End]] = []
        self.trajectories: list[tuple[Source, _record.End]] = []
        self.late: list[_record.End] = []  # trajectories that ended after what they belong to
        self.calls: list[_record.End] = []
        self.parts: list[_record.End] = []  # of weight syncs
        self.detail = detail
        self._spans: dict[bytes, Span] = {}
        self.wanted: set[bytes] = set()  # spans that something counted is inside of, and that have not come yet
        self._direct: dict[bytes, _figures.Direct] = {}
        self._theirs: list[Theirs] = []
        self._visits = Visits() if clocks else None

    # --- reading ------------------------------------------------------------------------------------------------------

    def start(self, source: Source, record: _record.Start) -> None:
        """Take a span that has begun."""
        self.opened[record.span] = (source, record)
        self.begun = self.begun or not record.parent
        if record.name == semconv.STEP:
            self.stepping.add(record.span)
        self._place(source, record)
        self._know(source, record, 0)

    def end(self, source: Source, record: _record.End) -> None:
        """Take a span that has ended."""
        self.opened.pop(record.span, None)
        self.stepping.discard(record.span)
        if self.closed:
            return
        if record.name in semconv.SERVICE_SUFFIX:
            self._place(source, record)
            self._call(source, record)
            return
        if self.index is None or record.name == semconv.STEP:
            self._place(source, record)
        self._know(source, record, record.end)
        attributes = record.attributes
        if semconv.LATE in attributes:
            self.late += [record] if record.name == semconv.TRAJECTORY else []
            return  # it ended after what it belongs to, whose totals were closed
        if self._visits is not None:
            self._visits.add(source, record)
        if record.name == semconv.TRAJECTORY:
            self.trajectories.append((source, record))
        elif semconv.PHASE in attributes:
            self.phases.append((source, record))
        elif self.detail and semconv.SYNC_PART in attributes:
            self.parts.append(record)
        elif record.name == semconv.STEP:
            self.steps.append((source, record))
        if not record.parent or record.name == semconv.STEP:
            self.reached = max(self.reached, record.end + source.shift)
        if not record.parent:
            self.root, self.begun = (source, record), True
            self.restart = max(self.restart, source.restart)

    def foreign(self, record: _record.Foreign) -> None:
        """Take another library's span, which may stand between two of ours."""
        if record.span in self.wanted:
            self._know(None, record, record.end)

    def beneath(self, spans: Iterable[Theirs]) -> None:
        """Take what other services recorded in it; most of that comes before the call that it is beneath of."""
        self._theirs = list({span.span: span for span in spans}.values())  # one that was sent again comes twice
        for span in self._theirs:
            self._spans[span.span] = Span(None, span.name, span.parent, 0, 0)
        self.wanted |= {span.parent for span in self._theirs if span.parent not in self._spans}

    def _place(self, source: Source, record: _record.Start | _record.End) -> None:
        index = record.attributes.get(semconv.STEP_INDEX)
        if (record.name == semconv.STEP or self.index is None) and type(index) is int:
            self.index = index
        self.restart = max(self.restart, source.restart)

    def _know(self, source: Source | None, record: _record.Start | _record.End | _record.Foreign, end: int) -> None:
        known = self._spans.get(record.span)
        if known is not None:
            known.end = end or known.end
            return
        parent = record.parent
        self._spans[record.span] = Span(source, record.name, parent, record.start, end)
        self.wanted.discard(record.span)
        if parent and parent not in self._spans:
            self.wanted.add(parent)

    def _call(self, source: Source, record: _record.End) -> None:
        if self.detail:
            self.calls.append(record)
        if record.span in self.wanted:
            self._know(source, record, record.end)
        if semconv.LATE in record.attributes:
            return
        if self._visits is not None:
            self._visits.add(source, record)
        around = self._spans.get(record.parent)
        if around is not None and around.name == semconv.TRAJECTORY:
            return  # the trajectory's own span tells of it
        direct = self._direct.setdefault(record.parent, _figures.Direct())
        direct.add(record.name, record.start, record.end, record.attributes)
        if around is None:
            self.wanted.add(record.parent)

    # --- figures ------------------------------------------------------------------------------------------------------

    def visits(self) -> Iterator[Visit]:
        """Yield what the spans of one host inside those of another say of their clocks."""
        return self._visits.of(self._spans) if self._visits is not None else iter(())

    def step(self, around: Iterable[_figures.Phase] = ()) -> _figures.StepFigures | None:
        """Return the step's figures, None while its root has not ended or where it is no step.

        Args:
            around: the phases of other timelines that are in no step.
        """
        if self.root is None or self.root[1].name != semconv.STEP or self.index is None:
            return None
        source, root = self.root
        phases = self._figured_phases()
        return _figures.step(
            self.index,
            root.start + source.shift,
            root.end + source.shift,
            root.attributes,
            phases=[phase for owner, phase in phases if owner is source],
            trajectories=[played.figures for played in self._played()],
            elsewhere=[*(phase for owner, phase in phases if owner is not source), *around],
        )

    def stand_in(self) -> None:
        """Where the root never came, take the step of the lowest rank for it."""
        if self.root is None:
            self.root = ranks.lowest(self.steps)

    def ranks(self) -> _figures.RankTimes | None:
        """Return what its phases took on each rank, None where only one has it."""
        if self.root is None or len(self.steps) < 2:
            return None
        return ranks.of_step(self.root[0], self.steps, self._figured_phases())

    def elsewhere(self) -> list[_figures.Elsewhere]:
        """Return the phases of other roles than the step's, each with the process it ran in."""
        if self.root is None:
            return []
        owner, root = self.root
        role = root.attributes.get(semconv.ROLE, owner.role)
        roles = (
            (source, phase, phase.attributes.get(semconv.ROLE, source.role)) for source, phase in self._figured_phases()
        )
        return [(source.name, _of_role(phase, other)) for source, phase, other in roles if other != role]

    def served(self) -> Iterator[tuple[bytes, _figures.Request]]:
        """Yield the requests that servers tell of, but for evaluation, each with its trajectory, if any."""
        for span in self._theirs:
            stages = stages_of(span.attributes)
            around = {self._name(above): above for above in reversed(list(self._above(span.parent)))}
            if stages and semconv.GENERATE in around and semconv.EVAL not in around:
                yield around.get(semconv.TRAJECTORY, b""), _figures.Request(around[semconv.GENERATE], stages)

    def outside(self) -> tuple[_figures.Phase, _figures.Rollout | None] | None:
        """Return the phase that is the root of this trace, with its trajectories if it evaluates; else None."""
        if self.root is None or semconv.PHASE not in self.root[1].attributes:
            return None
        phases = [phase for _, phase in self._figured_phases()]
        phase = next(phase for phase in phases if phase.span == self.root[1].span)
        if not phase.evaluates:
            return phase, None
        # As a step with nothing but this phase, whose trajectories are counted like any other's.
        trajectories = [played.figures for played in self._played()]
        alone = _figures.step(0, phase.start, phase.end, {}, phases=phases, trajectories=trajectories)
        return phase, alone.evaluation

    def detailed(self) -> list[Played]:
        """Return the trajectories that figures are made of, with their spans, where detail was asked for."""
        return list(self._played()) if self.detail else []

    def outermost(self) -> Iterator[tuple[_record.End, int]]:
        """Yield the trajectories that ended and are in no other one, with the tokens of those inside them."""
        inside: dict[bytes, int] = {}
        tops = {}
        around: dict[bytes, bytes] = {}  # of several in one rollout it is looked up once
        for record in (*(record for _, record in self.trajectories), *self.late):
            top = around.get(record.parent)
            if top is None:
                top = around[record.parent] = self._top(record.parent)
            if top:
                tokens = record.attributes.get(semconv.TRAJECTORY_OUTPUT_TOKENS, 0)
                inside[top] = inside.get(top, 0) + tokens
            else:
                tops[record.span] = record
        for span, record in tops.items():
            yield record, inside.get(span, 0)

    def _top(self, span: bytes) -> bytes:
        """Return the outermost trajectory that a span is or is inside of."""
        return ([b""] + [each for each in self._above(span) if self._name(each) == semconv.TRAJECTORY])[-1]

    def _figured_phases(self) -> list[tuple[Source, _figures.Phase]]:
        ended = {record.span for _, record in self.phases}
        directs = self._directs()
        figured = []
        for source, record in self.phases:
            parent = next((span for span in self._above(record.parent) if span in ended), b"")
            span, direct = record.span, directs.get(record.span)
            start, end = record.start + source.shift, record.end + source.shift
            phase = _figures.Phase(record.name, span, parent, start, end, record.attributes, direct)
            figured.append((source, phase))
        return figured

    def _directs(self) -> dict[bytes, _figures.Direct]:
        """Return the calls in no trajectory by the rollout or eval that they are in."""
        directs: dict[bytes, _figures.Direct] = {}
        for parent, direct in self._direct.items():
            around = next((span for span in self._above(parent) if self._name(span) in _EXPECTED), b"")
            if self._name(around) in GATHERS:
                directs.setdefault(around, _figures.Direct()).update(direct)
        return directs

    def _name(self, span: bytes) -> str:
        known = self._spans.get(span)
        return "" if known is None else known.name

    def _played(self) -> Iterator[Played]:
        """Yield the trajectories that ended in time, each with what it comes to."""
        closed = {record.span for _, record in self.phases}
        places: dict[bytes, tuple[bool, bool]] = {}  # trajectories of one rollout share it
        for source, record in self.trajectories:
            place = places.get(record.parent)
            if place is None:
                place = places[record.parent] = self._place_of(record.parent, closed)
            counts, nested = place
            if counts and self._in_time(source, record):
                start, end = record.start + source.shift, record.end + source.shift
                figures = _figures.trajectory_of(
                    record.span, start, end, record.attributes, parent_is_trajectory=nested
                )
                yield Played(figures, record, source)

    def _place_of(self, parent: bytes, closed: set[bytes]) -> tuple[bool, bool]:
        """Return whether what it is inside of has ended, and whether that is a trajectory."""
        above = list(self._above(parent))
        names = [self._name(span) for span in above]
        ended = all(span in closed for span, name in zip(above, names, strict=True) if name in GATHERS)
        return ended, semconv.TRAJECTORY in names

    def _in_time(self, source: Source, record: _record.End) -> bool:
        if self.root is None:
            return True
        owner, root = self.root
        return record.end + source.shift <= root.end + owner.shift + (0 if source is owner else _SKEW)

    def _above(self, span: bytes) -> Iterator[bytes]:
        """Yield `span` and what it is inside of, as far as that is known."""
        seen = set()
        while span and span not in seen:
            seen.add(span)
            yield span
            known = self._spans.get(span)
            span = b"" if known is None else known.parent

    def close(self) -> None:
        """Let go of all that the figures were made of."""
        self.closed = True
        self.phases, self.trajectories, self.late = [], [], []
        self.calls, self.parts, self.steps = [], [], []
        self._direct.clear()
        self._theirs = []
        self._visits = None

    # --- what is open -------------------------------------------------------------------------------------------------

    def trajectory_around(self, span: bytes) -> _record.Start | None:
        """Return the open trajectory that a span is in."""
        for above in self._above(span):
            opened = self.opened.get(above)
            if opened is not None and opened[1].name == semconv.TRAJECTORY:
                return opened[1]
        return None


def _of_role(phase: _figures.Phase, role: str) -> _figures.Phase:
    return replace(phase, attributes={**phase.attributes, semconv.ROLE: role})
