"""The way of each record: sent now, held, or kept in the journal alone."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final, TypeVar

from rl_otel import semconv
from rl_otel._budget.books import Books, Counts, Size
from rl_otel._budget.limits import Budget
from rl_otel._budget.purse import Purse
from rl_otel._budget.refs import Held, Ref
from rl_otel._budget.trace import Send, Trace
from rl_otel._otlp import Span
from rl_otel._record import LOCAL, SAMPLED, End, Foreign, Record, Start

_MOST: Final = 1024  # traces that are followed, and purses that are remembered

_SPANS: Final = (Start, End, Foreign)

State = TypeVar("State")


class Selector:
    """Takes the records of one process in the order of its journal, and says what to send.

    Args:
        budget: What one trace may have.
        size: How large a span is, encoded: a `Measure`.
        quota: How many spans this process may send of a trace that others share; default: all.
    """

    def __init__(self, budget: Budget, size: Size, *, quota: int | None = None) -> None:
        self._budget = budget
        self._shared = budget if quota is None else _part(budget, quota)
        self._size = size
        self._counts = Counts()
        self._traces: OrderedDict[bytes, Trace] = OrderedDict()
        self._purses: OrderedDict[bytes, Purse] = OrderedDict()  # of traces that are over

    @property
    def kept(self) -> int:
        """How many spans stay in the journal alone, by the budget or because nobody sampled them."""
        return self._counts.kept

    @property
    def held(self) -> int:
        """How many spans nothing has been decided on."""
        return self._counts.held

    def spent(self, trace: bytes) -> tuple[int, int]:
        """Return how many spans and bytes of a trace were to be sent, as far as it is remembered."""
        purse = self._traces[trace].books.purse if trace in self._traces else self._purses.get(trace)
        return (purse.spans, purse.size) if purse is not None else (0, 0)

    def segments(self) -> set[int]:
        """Return in which segments something is that nothing has been decided on."""
        return set().union(*(refs.segments for trace in self._traces.values() for refs in trace.held()))

    def undecided(self) -> set[tuple[int, int]]:
        """Return where that is: segment and offset of each record."""
        return set().union(*(refs.places for trace in self._traces.values() for refs in trace.held()))

    def take(self, record: Record, ref: Ref, late: Ref | None = None) -> list[Send]:
        """Take the next record, and return what is to be sent now, in this order.

        Args:
            record: With its late values, where there are any.
            ref: Where it is in the journal.
            late: Where its late values are.
        """
        if not isinstance(record, _SPANS):
            return []
        if record.flags & (SAMPLED | LOCAL) != SAMPLED:
            self._pass_on(record)
            return []
        trace, sends = self._trace(record)
        if isinstance(record, Start):
            return sends + trace.start(record)
        sends += trace.end(record, Held(ref, late))
        if trace.over:
            del self._traces[record.trace]
            _remember(self._purses, record.trace, trace.books.purse)
        return sends

    def finish(self) -> list[Send]:
        """The run is over: decide what is undecided, and return what is to be sent."""
        sends: list[Send] = []
        while self._traces:
            id_, trace = self._traces.popitem(last=False)
            sends += trace.finish()
            _remember(self._purses, id_, trace.books.purse)
        return sends

    def _pass_on(self, record: Start | Span) -> None:
        """Take a span that is not ours to send; it may still be between two that are."""
        if not isinstance(record, Start):
            self._counts.kept += not record.flags & LOCAL  # what another exporter sends is nowhere counted
            if record.trace in self._traces:
                self._traces[record.trace].pass_on(record.span, record.parent)

    def _trace(self, record: Start | Span) -> tuple[Trace, list[Send]]:
        """Return the trace of a record, and what is to be sent because another one is followed no longer."""
        trace, sends = self._traces.get(record.trace), []
        if trace is None:
            purse = self._purses.pop(record.trace, None) or Purse(self._budget_of(record))
            trace = self._traces[record.trace] = Trace(Books(purse, self._size, self._counts))
            if len(self._traces) > _MOST:
                id_, oldest = self._traces.popitem(last=False)
                sends = oldest.finish()
                _remember(self._purses, id_, oldest.books.purse)
        self._traces.move_to_end(record.trace)
        return trace, sends

    def _budget_of(self, record: Start | Span) -> Budget:
        own = not record.parent and record.name != semconv.STEP  # it begins here, and nobody else knows of it
        return self._budget if own else self._shared


def _part(budget: Budget, spans: int) -> Budget:
    part = Budget.of(spans)
    return replace(budget, spans=part.spans, live=min(part.live, budget.live), total=min(part.total, budget.total))


def _remember(states: OrderedDict[bytes, State], id_: bytes, state: State) -> None:
    states[id_] = state
    if len(states) > _MOST:
        states.popitem(last=False)
