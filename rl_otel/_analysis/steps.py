"""From records in time to steps in order: what is kept at any moment are the traces that are still open."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from rl_otel import _figures, _record, semconv
from rl_otel._analysis.checked import checked
from rl_otel._analysis.trace import Trace
from rl_otel._read import Run, Source

_GRACE = 5_000_000_000  # ns for which a step that has ended is held: writers send late values until then
_HELD = 2  # and at least so many steps, for clocks of hosts differ


@dataclass(frozen=True)
class StepReport:
    """A step that has ended.

    Where detail was asked for also `trajectories`, `calls`, its generate and env spans, `phases`, and `parts`, those of
    its weight syncs.

    `again` where an attempt before had ended it as well.
    """

    figures: _figures.StepFigures
    root: _record.End
    again: bool
    trajectories: list[tuple[_figures.Trajectory, _record.End]]
    calls: list[_record.End]
    phases: list[_record.End]
    parts: list[_record.End]


@dataclass(frozen=True)
class Unfinished:
    """A trace in which something is still open; `index` is None outside a step."""

    index: int | None
    trace: Trace


class Analysis:
    """The figures of a run; iterate over `steps()` to the end, then ask for the rest.

    Args:
        run: What to read.
        detail: The step whose generate and env spans are kept.
    """

    def __init__(self, run: Run, detail: int | None = None) -> None:
        self.figures: _figures.RunFigures | None = None
        self.numbers: tuple[int, int] | None = None  # the lowest and the highest step that has ended
        self.unfinished: list[Unfinished] = []
        self.outside = array("q")  # ns that each trajectory took which no step and no evaluation has
        self._run = run
        self._detail = detail
        self._traces: dict[bytes, Trace] = {}
        self._closing: deque[bytes] = deque()
        self._done: set[bytes] = set()
        self._awaited: dict[bytes, _record.Attributes] = {}
        self._attempts: dict[int, tuple[int, int]] = {}

    def steps(self) -> Iterator[StepReport]:
        """Yield each step that has ended, in the order of time; of one that was done again the last restart's."""
        if len({source.restart for source in self._run.sources}) > 1:
            self._attempts = _attempts(self._run)
        for moment, source, record in self._run.records():
            self._take(source, record)
            while len(self._closing) > _HELD and moment > self._end_of(self._closing[0]) + _GRACE:
                yield from self._close(self._closing.popleft())
        while self._closing:
            yield from self._close(self._closing.popleft())
        self._leave_open()

    # --- records ------------------------------------------------------------------------------------------------------

    def _take(self, source: Source, record: _record.Record) -> None:
        if isinstance(record, (_record.Late, _record.Start, _record.End)):
            record.attributes = checked(record.attributes)
        if isinstance(record, _record.Late):
            self._amend(record)
        elif isinstance(record, (_record.Start, _record.End, _record.Foreign)) and record.trace not in self._done:
            trace = self._trace_of(record)
            if trace is None:
                return
            if isinstance(record, _record.Start):
                trace.start(source, record)
            elif isinstance(record, _record.Foreign):
                trace.foreign(record)
            else:
                self._take_end(trace, source, record)

    def _take_end(self, trace: Trace, source: Source, record: _record.End) -> None:
        again = trace.root is not None  # a root that comes twice, as in a journal that somebody has copied
        trace.end(source, record)
        if record.flags & _record.AWAITED and not trace.closed:
            self._awaited[record.span] = record.attributes
        if trace.closed:
            if not trace.opened:
                self._forget(record.trace)
        elif record.name == semconv.TRAJECTORY and not record.parent:
            self.outside.append(record.end - record.start)
            del self._traces[record.trace]  # a trace of its own
        elif not record.parent and not again:
            self._closing.append(record.trace)

    def _trace_of(self, record: _record.Start | _record.End | _record.Foreign) -> Trace | None:
        """Return the trace of a record, a new one only for what may be part of figures."""
        trace = self._traces.get(record.trace)
        counts = record.name in (semconv.STEP, semconv.TRAJECTORY) or semconv.PHASE in record.attributes
        if trace is None and counts and not isinstance(record, _record.Foreign):
            index = record.attributes.get(semconv.STEP_INDEX)
            detail = self._detail is not None and index == self._detail
            trace = self._traces[record.trace] = Trace(detail=detail)
        return trace

    def _amend(self, record: _record.Late) -> None:
        attributes = self._awaited.get(record.span)
        if attributes is not None:
            attributes.update(record.attributes)
            if record.last:
                del self._awaited[record.span]

    # --- traces that have ended ---------------------------------------------------------------------------------------

    def _end_of(self, trace_id: bytes) -> int:
        root = self._traces[trace_id].root
        return root[1].end if root is not None else 0

    def _close(self, trace_id: bytes) -> Iterator[StepReport]:
        trace = self._traces[trace_id]
        for _, record in (*trace.phases, *([trace.root] if trace.root else [])):
            self._awaited.pop(record.span, None)
        outside, figures = trace.outside(), trace.step()
        if outside is not None:
            self._figures_since(trace).add_outside(*outside)
            if outside[1] is None:
                self.outside.extend(record.end - record.start for _, record in trace.trajectories)
        if figures is not None:
            yield from self._ended(trace, figures)
        trace.close()
        if not trace.opened:
            self._forget(trace_id)

    def _ended(self, trace: Trace, figures: _figures.StepFigures) -> Iterator[StepReport]:
        index = figures.index
        first, last = self._attempts.get(index, (0, 0))
        if trace.root is None or trace.restart < last:
            return
        self._figures_since(trace).add(figures)
        lowest, highest = self.numbers or (index, index)
        self.numbers = min(lowest, index), max(highest, index)
        phases = [record for _, record in trace.phases] if trace.detail else []
        again = first < last
        yield StepReport(figures, trace.root[1], again, trace.detailed(), trace.calls, phases, trace.parts)

    def _forget(self, trace_id: bytes) -> None:
        del self._traces[trace_id]
        self._done.add(trace_id)

    def _figures_since(self, trace: Trace) -> _figures.RunFigures:
        began = trace.root[0].began if trace.root is not None else 0
        if self.figures is None:
            self.figures = _figures.RunFigures(began)
        self.figures.began = min(self.figures.began, began)
        return self.figures

    def _leave_open(self) -> None:
        for trace in self._traces.values():
            done_later = trace.index is not None and self._attempts.get(trace.index, (-1, -1))[1] > trace.restart
            if trace.opened and not done_later:
                self.unfinished.append(Unfinished(trace.index, trace))
        self.unfinished.sort(key=lambda each: (each.index is None, each.index or 0))


def _attempts(run: Run) -> dict[int, tuple[int, int]]:
    """Return for each step the first and the last restart of the run that ended it."""
    attempts: dict[int, tuple[int, int]] = {}
    for source in run.sources:
        for _, _, record in source.records():
            if isinstance(record, _record.End) and record.name == semconv.STEP and not record.parent:
                index = checked(record.attributes).get(semconv.STEP_INDEX, 0)
                first, last = attempts.get(index, (source.restart, source.restart))
                attempts[index] = min(source.restart, first), max(source.restart, last)
    return attempts
