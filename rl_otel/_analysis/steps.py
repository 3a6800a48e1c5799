"""From records in time to steps in order: what is kept at any moment are the traces that are still open."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from rl_otel import _figures, _record, semconv
from rl_otel._analysis.beside import Beside, Owners
from rl_otel._analysis.checked import checked
from rl_otel._analysis.clocks import Clocks
from rl_otel._analysis.early import Early
from rl_otel._analysis.heads import look
from rl_otel._analysis.outside import Outside
from rl_otel._analysis.ranks import Expected, rank_of
from rl_otel._analysis.trace import GATHERS, Playing, Trace
from rl_otel._analysis.trained import Detail, Trained, by_trajectory, trained_on
from rl_otel._analysis.waste import Waste
from rl_otel._journal import decoded
from rl_otel._read import Also, Names, Run, Source

_GRACE = 5_000_000_000  # ns for which a step that has ended is held: writers send late values until then
_HELD = 2  # and at least so many steps, for clocks of hosts differ
_WAITING = 64  # and at most so many, where a rank has not ended one of them
_NEVER = 1 << 62  # as a restart


@dataclass(frozen=True)
class StepReport:
    """A step that has ended.

    Where detail was asked for also `detail` of its trajectories, `trained`, those of other traces that it trained on,
    `phases`, and `parts`, those of its weight syncs.

    `again` where an attempt before had begun it as well, and `ended` it. `ranks` is what its phases took on each rank,
    where there are several; `stand_in` the one whose step stands for all, where the root never came. `serving` is what
    inference servers say of its generate calls. `roles` is what other timelines did meanwhile, `names` what the
    processes are called.
    """

    figures: _figures.StepFigures
    root: _record.End
    again: bool
    ended: bool
    ranks: _figures.RankFigures | None
    stand_in: int | None
    roles: tuple[_figures.Role, ...]
    detail: Detail
    trained: Trained | None
    phases: list[_record.End]
    parts: list[_record.End]
    names: Names
    serving: _figures.Serving | None


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
        also: What other services recorded in its traces.
    """

    def __init__(self, run: Run, detail: int | None = None, also: Also | None = None) -> None:
        self.figures: _figures.RunFigures | None = None
        self.numbers: tuple[int, int] | None = None  # the lowest and the highest step that has ended
        self.unfinished: list[Unfinished] = []
        self.rootless: set[int] = set()  # steps of which no journal has the beginning
        self.again: set[int] = set()  # steps that were begun before a restart as well
        self.ranks = _figures.RunRanks()
        self.outside = Outside()
        self.clocks = Clocks(run.sources)
        self.waste = Waste()
        self.names = Names(run.sources)
        self._run = run
        self._also = also or Also((), [])
        self._detail = detail
        self._traces: dict[bytes, Trace] = {}
        self._early = Early()
        self._closing: deque[bytes] = deque()
        self._done: set[bytes] = set()
        self._playing: dict[bytes, Playing] = {}  # the trajectories that are open
        self._awaited: dict[bytes, _record.Attributes] = {}
        self._attempts: dict[int, Attempts] = {}
        self._expected = Expected(run.sources)
        self._owners = Owners(run, set())
        self._beside = Beside()

    def steps(self) -> Iterator[StepReport]:
        """Yield each step that has ended, in the order of time; of one that was done again the last restart's."""
        if len({source.restart for source in self._run.sources}) > 1:
            self._attempts = _attempts(self._run)
        if len(self._run.sources) > 1:
            self._owners = Owners(self._run, look(self._run, self.clocks))
        for until, source, payloads in self._run.batches():
            for record in self._of_interest(source, payloads):
                end = self._take(source, record)
                if end is not None:
                    yield from self._close_until(min(until, end))
            yield from self._close_until(until)
        yield from self._close_until(None)
        self._leave_open()

    # --- records ------------------------------------------------------------------------------------------------------

    def _of_interest(self, source: Source, payloads: list[bytes]) -> Iterator[_record.Record]:
        """Yield the records that figures are made of; of nine in ten, calls in trajectories, little is decoded."""
        playing, call_ids = self._playing, _record.call_ids
        for payload in payloads:
            ids = call_ids(payload)
            if ids is not None:
                told = playing.get(ids[1])
                if told is not None and told.source is source and ids[0] not in told.wanted:
                    continue
            record = decoded(payload)
            if record is not None:
                yield record

    def _take(self, source: Source, record: _record.Record) -> int | None:
        """Take a record, and return the moment at which it ended a trace; of any other None."""
        if isinstance(record, (_record.Start, _record.End)):
            trace = self._traces.get(record.trace) or self._new_trace(record)
            if trace is None:
                self._keep(source, record)
                return None
            if isinstance(record, _record.Start):
                trace.start(source, record)
                if record.name == semconv.TRAJECTORY and not trace.detail:
                    self._playing[record.span] = Playing(source, trace.wanted)
                return None
            if record.name == semconv.TRAJECTORY:
                self._playing.pop(record.span, None)
            record.attributes = checked(record.attributes)
            return record.end + source.shift if self._take_end(trace, source, record) else None
        elif isinstance(record, _record.Late):
            self._amend(record)
        elif isinstance(record, _record.Foreign):
            if record.trace in self._traces:
                self._traces[record.trace].foreign(record)
        elif isinstance(record, _record.Lost):
            source.lost = record.counts
        return None

    def _take_end(self, trace: Trace, source: Source, record: _record.End) -> bool:
        """Take a span that has ended; whether its trace has."""
        # Others of its ranks were here before, or a root comes twice, as in a journal that somebody has copied.
        again = trace.root is not None or bool(trace.steps)
        trace.end(source, record)
        self.waste.end(record)
        if trace.closed:
            if record.name == semconv.TRAJECTORY:
                self.waste.add(record, 0)
            if not trace.opened:
                self._forget(record.trace)
            return False
        if record.flags & _record.AWAITED:
            self._awaited[record.span] = record.attributes
        if again or (record.parent and record.name != semconv.STEP):
            return False
        if record.name == semconv.TRAJECTORY:
            self.outside.add(record)
            self._count_waste(trace)
            del self._traces[record.trace]  # a trace of its own
        else:
            self._closing.append(record.trace)
            if self._is_beside(source, record):
                self._beside.add(source, record)
        return True

    def _is_beside(self, source: Source, root: _record.End) -> bool:
        """Whether the root of a trace is a phase of another timeline than that of the steps."""
        other = semconv.ROLE in root.attributes or not self._owners.has(source)
        return other and semconv.PHASE in root.attributes

    def _new_trace(self, record: _record.Start | _record.End) -> Trace | None:
        """Return a trace for what may be part of figures, None for all else."""
        attributes = record.attributes
        counts = record.name in (semconv.STEP, semconv.TRAJECTORY) or semconv.PHASE in attributes
        if not counts or record.trace in self._done:
            return None
        detail = self._detail is not None and attributes.get(semconv.STEP_INDEX) == self._detail
        trace = self._traces[record.trace] = Trace(detail=detail, clocks=self.clocks.differ)
        trace.beneath(self._also.of(record.trace))
        for source, call in self._early.take(record.trace):
            trace.end(source, call)
        return trace

    def _keep(self, source: Source, record: _record.Start | _record.End) -> None:
        """Keep a call that others of its trace may follow: its process may have been read before theirs."""
        if not isinstance(record, _record.End) or record.name not in semconv.SERVICE_SUFFIX:
            return
        if record.parent and record.trace not in self._done:
            record.attributes = checked(record.attributes)
            self._early.keep(source, record)

    def _amend(self, record: _record.Late) -> None:
        attributes = self._awaited.get(record.span)
        if attributes is not None:
            attributes.update(checked(record.attributes))
            if record.last:
                del self._awaited[record.span]

    # --- traces that have ended ---------------------------------------------------------------------------------------

    def _close_until(self, moment: int | None) -> Iterator[StepReport]:
        """Close the traces that nothing can come of any more at a moment, all of them where there is none."""
        while self._closing:
            if moment is not None and (len(self._closing) <= _HELD or not self._over(self._closing[0], moment)):
                return
            yield from self._close(self._closing.popleft())

    def _over(self, trace_id: bytes, moment: int) -> bool:
        """Whether nothing will come of a trace any more, as far as one can tell at a moment."""
        trace = self._traces[trace_id]
        if (trace.stepping or self._expected.of(trace.steps) > len(trace.steps)) and len(self._closing) <= _WAITING:
            return False
        return moment > trace.reached + _GRACE

    def _close(self, trace_id: bytes) -> Iterator[StepReport]:
        trace = self._traces[trace_id]
        trace.stand_in()
        for _, record in (*trace.phases, *([trace.root] if trace.root else [])):
            self._awaited.pop(record.span, None)
        if self.clocks.differ and trace.root is not None:
            self.clocks.settle(trace.root[0].host, trace.visits())
        self._count_waste(trace)
        outside = trace.outside()
        if outside is not None:
            self._ended_outside(trace, *outside)
        else:
            yield from self._ended(trace)
        trace.close()
        if not trace.opened:
            self._forget(trace_id)

    def _count_waste(self, trace: Trace) -> None:
        for record, nested in trace.outermost() if self.waste.known else ():
            self.waste.add(record, nested)

    def _ended_outside(self, trace: Trace, phase: _figures.Phase, evaluation: _figures.Rollout | None) -> None:
        if evaluation is None:
            for _, record in trace.trajectories:
                self.outside.add(record)
        if trace.root is not None and not self._is_beside(*trace.root):
            self._figures_since(trace).add_outside(phase, evaluation)
        elif self.figures is not None:
            self.figures.add_elsewhere(phase, evaluation)

    def _ended(self, trace: Trace) -> Iterator[StepReport]:
        if trace.index is None:
            return
        if trace.root is None:
            self.rootless.add(trace.index)
            return
        owner, root = trace.root
        self.waste.step()
        beside = self._beside.during(root.start + owner.shift, root.end + owner.shift, self._traces.values())
        # What a rollout of another trace has gathered is none of this step's.
        figures = trace.step([phase for _, phase in beside if phase.name not in GATHERS])
        attempts = self._attempts.get(trace.index, Attempts())
        if figures is None or trace.restart < attempts.last:
            return
        self._figures_since(trace).add(figures)
        index = figures.index
        lowest, highest = self.numbers or (index, index)
        self.numbers = min(lowest, index), max(highest, index)
        if attempts.begun < trace.restart:
            self.again.add(index)
        served = list(trace.served())
        yield StepReport(
            figures=figures,
            root=root,
            again=attempts.begun < trace.restart,
            ended=attempts.first < trace.restart,
            ranks=self._ranks(trace),
            stand_in=rank_of(owner) if root.parent else None,
            roles=_figures.roles([*trace.elsewhere(), *beside], figures.start, figures.end),
            detail=Detail(trace.detailed(), trace.calls, by_trajectory(served) if trace.detail else {}),
            trained=trained_on(self._run, self._also, trace) if trace.detail else None,
            phases=[record for _, record in trace.phases] if trace.detail else [],
            parts=trace.parts,
            names=self.names,
            serving=_figures.serving(request for _, request in served),
        )

    def _ranks(self, trace: Trace) -> _figures.RankFigures | None:
        times = trace.ranks()
        figures = times.figures() if times is not None else None
        if times is not None and figures is not None:
            self.ranks.add(times, figures)
        return figures

    def _forget(self, trace_id: bytes) -> None:
        del self._traces[trace_id]
        self._done.add(trace_id)

    def _figures_since(self, trace: Trace) -> _figures.RunFigures:
        began = trace.root[0].began + trace.root[0].shift if trace.root is not None else 0
        if self.figures is None:
            self.figures = _figures.RunFigures(began)
        self.figures.began = min(self.figures.began, began)
        return self.figures

    def _leave_open(self) -> None:
        for trace in self._traces.values():
            if trace.index is not None and not trace.begun:
                self.rootless.add(trace.index)
            done_later = trace.index is not None and self._attempts.get(trace.index, Attempts()).last > trace.restart
            if trace.opened and not done_later:
                for _, record in trace.opened.values():
                    record.attributes = checked(record.attributes)
                self.unfinished.append(Unfinished(trace.index, trace))
        self.unfinished.sort(key=lambda each: (each.index is None, each.index or 0))


@dataclass
class Attempts:
    """Restarts of the run that had a step: the first that began it, and the first and the last that ended it."""

    begun: int = _NEVER
    first: int = _NEVER
    last: int = -1


def _attempts(run: Run) -> dict[int, Attempts]:
    """Return for each step which restarts of the run had it, by the roots."""
    attempts: defaultdict[int, Attempts] = defaultdict(Attempts)
    for source in run.sources:
        for record in source.spans(semconv.STEP):
            if record.parent:
                continue
            known = attempts[checked(record.attributes).get(semconv.STEP_INDEX, 0)]
            known.begun = min(known.begun, source.restart)
            if isinstance(record, _record.End):
                known.first, known.last = min(known.first, source.restart), max(known.last, source.restart)
    return attempts
