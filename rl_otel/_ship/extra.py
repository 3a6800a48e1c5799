"""What one journal has of the spans that somebody wants beyond the budget, and the way it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rl_otel import _ids, _record, semconv
from rl_otel._journal import Cursor
from rl_otel._ship.courier import Courier, Outlet
from rl_otel._ship.notes import Notes
from rl_otel._ship.ready import Ready
from rl_otel._ship.replay import batched
from rl_otel._ship.route import Route
from rl_otel._ship.wanted import Picker, Survey

if TYPE_CHECKING:
    from rl_otel._ship.later import Journal, Pause

_OWN: Final = "own trace"
_SERVICES: Final = 3


class Extra:
    """The spans of one journal that are wanted.

    Args:
        journal: whose.
        survey: of the whole run.
        roots: the trajectories whose detail is wanted; None for all.
        own_trace: whether each of these becomes a trace of its own, with its detail whatever was sent of it.
    """

    def __init__(self, journal: Journal, survey: Survey, roots: set[bytes] | None, *, own_trace: bool) -> None:
        self.sizes: Counter[bytes] = Counter()  # by trace: bytes that it would grow by, or has grown by earlier
        self.spans: Counter[bytes] = Counter()  # spans that would be sent
        self.steps: dict[bytes, int | None] = {}
        self.before = 0  # spans of these that an earlier command has sent
        self._journal = journal
        self._survey = survey
        self._roots = roots
        self._wants = survey.wanted_of(journal.base)
        self._own_trace = own_trace
        self._notes = Notes(journal.base, own=own_trace)

    def survey(self) -> None:
        """Find out how much it is."""
        journal, earlier = self._journal, Counter[bytes]()
        for ready in self._picked():
            trace, size = ready.span.trace, journal.measure(ready.span)
            if self._notes.has(ready):
                earlier[trace] += size
            elif ready.span.span not in journal.chosen:
                self.sizes[trace] += size
                self.spans[trace] += 1
            self.steps.setdefault(trace, ready.span.attributes.get(semconv.STEP_INDEX))
        for trace, spans in self.spans.items():
            requests = -(-spans // journal.replay.plan.batch)
            self.sizes[trace] += requests * _SERVICES * journal.measure.envelope
        # What was sent before is what was chosen, and what somebody has asked for earlier.
        self.sizes.update({trace: max(size - journal.sizes[trace], 0) for trace, size in earlier.items()})

    def deliver(self, outlet: Outlet, pause: Pause, refused: Container[bytes]) -> tuple[int, int, int]:
        """Deliver all but what is in traces that are refused; return how many were sent, dropped, and left."""
        counts = [0, 0, 0]

        def count(sent: int, dropped: int) -> None:
            counts[0] += sent
            counts[1] += dropped

        journal = self._journal
        courier = Courier(
            outlet,
            journal.process.resource,
            one_service=journal.replay.plan.one_service,
            notes=self._notes,
            pause=pause,
            count=count,
        )
        for batch in batched(each for each in self._due() if each.span.trace not in refused):
            before = counts[0] + counts[1]
            if counts[2] or not courier.deliver(batch):
                counts[2] += len(batch) - (counts[0] + counts[1] - before)
        self._notes.close()
        return counts[0], counts[1], counts[2]

    def _due(self) -> Iterator[Ready]:
        for ready in self._picked():
            if self._notes.has(ready):
                self.before += 1
            elif self._own_trace or ready.span.span not in self._journal.chosen:
                yield ready

    def _picked(self) -> Iterator[Ready]:
        undecided = self._journal.replay.selector.undecided()
        picker = Picker(self._survey, self._roots, self._wants, undecided)
        cursor = Cursor(self._journal.base)
        route = Route(cursor, picker)
        for ready in map(self._whole, route.spans(finish=True)):
            yield self._owned(ready, picker) if self._own_trace else ready
        cursor.close()

    def _whole(self, ready: Ready) -> Ready:
        """Return a span with what it would have said if the budget had not kept it."""
        said = self._journal.replay.selector.said(ready.id)
        if not said:
            return ready
        return Ready(replace(ready.span, attributes={**ready.span.attributes, **said}), ready.segment)

    def _owned(self, ready: Ready, picker: Picker) -> Ready:
        span = ready.span
        root = picker.root_of[span.span]
        trace = _ids.derive(_OWN, span.trace.hex(), root.hex())[0]
        if span.span == root:
            link = _record.Link(span.trace, span.span, {})
            span = replace(span, trace=trace, parent=b"", links=[*span.links, link])
        else:
            span = replace(span, trace=trace)
        return Ready(span, ready.segment)
