"""The way of each record: sent now, held, or kept in the journal alone."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from rl_otel import semconv
from rl_otel._budget.books import Books, Counts, Write
from rl_otel._budget.limits import Budget
from rl_otel._budget.purse import Purse
from rl_otel._budget.refs import Late
from rl_otel._budget.trace import Send, Trace
from rl_otel._budget.window import Window
from rl_otel._journal import Batch, Place
from rl_otel._otlp import Span
from rl_otel._record import LOCAL, SAMPLED, Attributes, End, Foreign, Record, Start

_MOST: Final = 1024  # traces that are followed, and purses that are remembered

_SPANS: Final = (Start, End, Foreign)
_OURS: Final = SAMPLED | LOCAL  # of these two flags only the first: ours to send

State = TypeVar("State")


class Selector:
    """Takes the records of one process in the order of its journal, and says what to send.

    Args:
        budget: What one trace may have.
        write: How spans are written.
        quota: How many spans this process may send of a trace that others share; default: all.
        room: How many bytes of what it has written it keeps while that is held; nothing it decides depends on it.
    """

    def __init__(self, budget: Budget, write: Write, *, quota: int | None = None, room: int = 0) -> None:
        self._budget = budget
        self._shared = budget if quota is None else _part(budget, quota)
        self._write = write
        self._counts = Counts(room)
        self._window = Window(budget)
        self._traces: OrderedDict[bytes, Trace] = OrderedDict()
        self._purses: OrderedDict[bytes, Purse] = OrderedDict()  # of traces that are over
        self._last: tuple[bytes, Trace | None] = b"", None  # the last of the traces

    @property
    def kept(self) -> int:
        """How many spans stay in the journal alone, by the budget or because nobody sampled them."""
        return self._counts.kept

    @property
    def held(self) -> int:
        """How many spans nothing has been decided on."""
        return self._counts.held

    def held_in(self, wanted: Callable[[bytes], bool]) -> int:
        """Return how many that are in traces that are wanted."""
        return sum(len(refs) for id_, trace in self._traces.items() if wanted(id_) for refs in trace.held())

    def said(self, rollout: bytes) -> Attributes:
        """Return what a rollout that was kept says besides of what is shown of it."""
        return self._counts.said.get(rollout, {})

    def spent(self, trace: bytes) -> tuple[int, int]:
        """Return how many spans and bytes of a trace were to be sent, as far as it is remembered."""
        purse = self._traces[trace].books.purse if trace in self._traces else self._purses.get(trace)
        return (purse.spans, purse.size) if purse is not None else (0, 0)

    def segments(self) -> set[int]:
        """Return in which segments something is that nothing has been decided on."""
        return set().union(*(refs.segments for trace in self._traces.values() for refs in trace.held()))

    def undecided(self) -> set[Place]:
        """Return where that is."""
        return set().union(*(refs.places for trace in self._traces.values() for refs in trace.held()))

    def hold(self, batch: Batch, at: int, until: float = math.inf) -> int:
        """Take the records of a batch from one on that only join what is held, as most do; none that ended at `until`.

        Returns which is the first that is more: for `take`.
        """
        id_, trace = self._last
        return at if trace is None else trace.hold(id_, batch, at, until)

    def take(self, record: Record, place: Place, late: Late = ()) -> list[Send]:
        """Take the next record, and return what is to be sent now, in this order.

        Args:
            record: With its late values, where there are any.
            place: Where it is in the journal.
            late: Where its late values are.
        """
        if not isinstance(record, _SPANS):
            return []
        if record.flags & _OURS != SAMPLED:
            self._pass_on(record)
            return []
        trace, sends = self._trace(record)
        if isinstance(record, Start):
            return sends + trace.start(record)
        sends += trace.end(record, place, late)
        if trace.over:
            del self._traces[record.trace]
            self._last = b"", None
            _remember(self._purses, record.trace, trace.books.close())
        return sends

    def finish(self) -> list[Send]:
        """The run is over: decide what is undecided, and return what is to be sent."""
        sends: list[Send] = []
        self._last = b"", None
        while self._traces:
            id_, trace = self._traces.popitem(last=False)
            sends += trace.finish()
            _remember(self._purses, id_, trace.books.close())
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
            trace = self._traces[record.trace] = Trace(Books(purse, self._write, self._counts, self._window))
            if len(self._traces) > _MOST:
                id_, oldest = self._traces.popitem(last=False)
                sends = oldest.finish()
                _remember(self._purses, id_, oldest.books.close())
        self._traces.move_to_end(record.trace)
        self._last = record.trace, trace
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
