"""One trace while it is read: a step with its phases and trajectories, or a phase outside any step."""

from __future__ import annotations

from collections.abc import Iterator

from rl_otel import _figures, _record, semconv
from rl_otel._read import Source

_GATHERS = (semconv.ROLLOUT, semconv.EVAL)
_SKEW = 1_000_000_000  # ns by which the clocks of two hosts may differ


class Trace:
    """What is known so far of one trace; `detail` keeps calls and parts too."""

    def __init__(self, *, detail: bool = False) -> None:
        self.root: tuple[Source, _record.End] | None = None
        self.index: int | None = None
        self.restart = 0
        self.closed = False  # its figures are made; only what is still open is of interest
        self.opened: dict[bytes, tuple[Source, _record.Start]] = {}
        self.phases: list[tuple[Source, _record.End]] = []
        self.trajectories: list[tuple[Source, _record.End]] = []
        self.calls: list[_record.End] = []
        self.parts: list[_record.End] = []  # of weight syncs
        self.detail = detail
        self._names: dict[bytes, str] = {}
        self._parents: dict[bytes, bytes] = {}
        self._wanted: set[bytes] = set()  # spans that something counted is inside of, and that have not come yet
        self._direct: dict[bytes, _figures.Direct] = {}

    # --- reading ------------------------------------------------------------------------------------------------------

    def start(self, source: Source, record: _record.Start) -> None:
        """Take a span that has begun."""
        self.opened[record.span] = (source, record)
        self._place(source, record)
        self._know(record)

    def end(self, source: Source, record: _record.End) -> None:
        """Take a span that has ended."""
        self.opened.pop(record.span, None)
        if self.closed:
            return
        self._place(source, record)
        if record.name in semconv.SERVICE_SUFFIX:
            self._call(record)
        else:
            self._know(record)
        if semconv.LATE in record.attributes:
            return  # it ended after what it belongs to, whose totals were closed
        if record.name == semconv.TRAJECTORY:
            self.trajectories.append((source, record))
        elif semconv.PHASE in record.attributes:
            self.phases.append((source, record))
        elif self.detail and semconv.SYNC_PART in record.attributes:
            self.parts.append(record)
        if not record.parent:
            self.root = (source, record)

    def foreign(self, record: _record.Foreign) -> None:
        """Take another library's span, which may stand between two of ours."""
        if record.span in self._wanted:
            self._know(record)

    def _place(self, source: Source, record: _record.Start | _record.End) -> None:
        if record.name == semconv.STEP or self.index is None:
            self.index = record.attributes.get(semconv.STEP_INDEX, self.index)
        self.restart = max(self.restart, source.restart)

    def _know(self, record: _record.Start | _record.End | _record.Foreign) -> None:
        self._names[record.span] = record.name
        self._parents[record.span] = record.parent
        self._wanted.discard(record.span)
        if record.parent and record.parent not in self._parents:
            self._wanted.add(record.parent)

    def _call(self, record: _record.End) -> None:
        if self.detail:
            self.calls.append(record)
        if record.span in self._wanted:
            self._know(record)
        if self._names.get(record.parent) == semconv.TRAJECTORY or semconv.LATE in record.attributes:
            return  # the trajectory's own span tells of it
        direct = self._direct.setdefault(record.parent, _figures.Direct())
        direct.add(record.name, record.start, record.end, record.attributes)
        if record.parent not in self._parents:
            self._wanted.add(record.parent)

    # --- figures ------------------------------------------------------------------------------------------------------

    def step(self) -> _figures.StepFigures | None:
        """Return the step's figures, None while its root has not ended or where it is no step."""
        if self.root is None or self.root[1].name != semconv.STEP or self.index is None:
            return None
        source, root = self.root
        phases = self._figured_phases()
        return _figures.step(
            self.index,
            root.start,
            root.end,
            root.attributes,
            phases=[phase for owner, phase in phases if owner is source],
            trajectories=[trajectory for trajectory, _ in self._figured_trajectories()],
            elsewhere=[phase for owner, phase in phases if owner is not source],
        )

    def outside(self) -> tuple[_figures.Phase, _figures.Rollout | None] | None:
        """Return the phase that is the root of this trace, with its trajectories if it evaluates; else None."""
        if self.root is None or semconv.PHASE not in self.root[1].attributes:
            return None
        phases = [phase for _, phase in self._figured_phases()]
        phase = next(phase for phase in phases if phase.span == self.root[1].span)
        if not phase.evaluates:
            return phase, None
        # As a step with nothing but this phase, whose trajectories are counted like any other's.
        trajectories = [trajectory for trajectory, _ in self._figured_trajectories()]
        alone = _figures.step(0, phase.start, phase.end, {}, phases=phases, trajectories=trajectories)
        return phase, alone.evaluation

    def detailed(self) -> list[tuple[_figures.Trajectory, _record.End]]:
        """Return the trajectories that figures are made of, with their spans, where detail was asked for."""
        return self._figured_trajectories() if self.detail else []

    def _figured_phases(self) -> list[tuple[Source, _figures.Phase]]:
        ended = {record.span for _, record in self.phases}
        directs = self._directs()
        figured = []
        for source, record in self.phases:
            parent = next((span for span in self._above(record.parent) if span in ended), b"")
            span, direct = record.span, directs.get(record.span)
            phase = _figures.Phase(record.name, span, parent, record.start, record.end, record.attributes, direct)
            figured.append((source, phase))
        return figured

    def _directs(self) -> dict[bytes, _figures.Direct]:
        """Return the calls in no trajectory by the rollout or eval that they are in."""
        directs: dict[bytes, _figures.Direct] = {}
        for parent, direct in self._direct.items():
            around = next((span for span in self._above(parent) if self._gathers(span)), b"")
            if self._names.get(around) in _GATHERS:
                directs.setdefault(around, _figures.Direct()).update(direct)
        return directs

    def _gathers(self, span: bytes) -> bool:
        name = self._names.get(span)
        return name == semconv.TRAJECTORY or name in _GATHERS

    def _figured_trajectories(self) -> list[tuple[_figures.Trajectory, _record.End]]:
        closed = {record.span for _, record in self.phases}
        figured = []
        for source, record in self.trajectories:
            above = list(self._above(record.parent))
            around = [span for span in above if self._names.get(span) in _GATHERS]
            if self._in_time(source, record) and all(span in closed for span in around):
                nested = any(self._names.get(span) == semconv.TRAJECTORY for span in above)
                trajectory = _figures.trajectory_of(
                    record.span, record.start, record.end, record.attributes, parent_is_trajectory=nested
                )
                figured.append((trajectory, record))
        return figured

    def _in_time(self, source: Source, record: _record.End) -> bool:
        if self.root is None:
            return True
        owner, root = self.root
        return record.end <= root.end + (0 if source is owner else _SKEW)

    def _above(self, span: bytes) -> Iterator[bytes]:
        """Yield `span` and what it is inside of, as far as that is known."""
        seen = set()
        while span and span not in seen:
            seen.add(span)
            yield span
            span = self._parents.get(span, b"")

    def close(self) -> None:
        """Let go of all that the figures were made of."""
        self.closed = True
        self.phases, self.trajectories, self.calls, self.parts = [], [], [], []
        self._direct.clear()

    # --- what is open -------------------------------------------------------------------------------------------------

    def trajectory_around(self, span: bytes) -> _record.Start | None:
        """Return the open trajectory that a span is in."""
        for above in self._above(span):
            opened = self.opened.get(above)
            if opened is not None and opened[1].name == semconv.TRAJECTORY:
                return opened[1]
        return None
