"""From a journal to the spans that are to be sent: late values joined, the budget asked, held detail read back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias

from rl_otel import _record
from rl_otel._budget import Held, Send
from rl_otel._journal import Cursor, Ref

Span: TypeAlias = "_record.End | _record.Foreign"

PATIENCE: Final = 5_000_000_000  # ns after its end that a span waits for its late values

_SPANS: Final = (_record.End, _record.Foreign)
_DUE: Final = _record.SAMPLED | _record.AWAITED
_ALL: Final = _DUE | _record.LOCAL


class Ready(NamedTuple):
    """A span to be sent, and the segment it is in."""

    span: Span
    segment: int


class _Awaiting(NamedTuple):
    span: _record.End
    ref: Ref


class Selects(Protocol):
    """Says of one record after another which spans are to be sent: a `Selector`, or a `Picker`."""

    def take(self, record: _record.Record, ref: Ref, late: Ref | None = None) -> list[Send]:
        """Take the next record, and return what is to be sent now."""

    def finish(self) -> list[Send]:
        """Nothing more will come: return the rest that is to be sent."""


class Route:
    """The way of one process's spans. It goes by the times in the records, so that a replay takes the same decisions.

    What is on its way is kept between two calls: an iteration may be given up at any point, and the next goes on.
    """

    def __init__(self, cursor: Cursor, selector: Selects) -> None:
        self.cursor = cursor
        self._selector = selector
        self.missing = 0  # spans that were to be sent when their segment was gone
        self._awaiting: dict[bytes, _Awaiting] = {}  # the one that ended first is nearly the first
        self._queue: deque[tuple[Send, int]] = deque()  # with the segment

    def ready(self, moment: int | None = None) -> Iterator[Ready]:
        """Yield what is to be sent of what the journal holds by now.

        Args:
            moment: of now, in ns, where the process lives: values that have not come by then are waited for no longer.

        Raises:
            OSError: a file cannot be read.
        """
        for record, ref in self.cursor:
            self._take(record, ref)
            if self._queue:
                yield from self._drained()
        if moment is not None:
            self._give_up(moment)
        yield from self._drained()

    def finish(self) -> Iterator[Ready]:
        """Yield what is left to be sent where nothing more will come."""
        self._give_up(None)
        self._append(self._selector.finish(), 0)
        yield from self._drained()

    def segments(self) -> set[int]:
        """Return which segments have something that is on its way."""
        return {each.ref.segment for each in self._awaiting.values()} | {segment for _, segment in self._queue}

    def _take(self, record: _record.Record, ref: Ref) -> None:
        if isinstance(record, _record.Late):
            self._join(record, ref)
            return
        if self._awaiting and isinstance(record, (*_SPANS, _record.Start)):
            self._give_up(record.start if isinstance(record, _record.Start) else record.end)
        if isinstance(record, _record.End) and record.flags & _ALL == _DUE:
            self._awaiting[record.span] = _Awaiting(record, ref)
        else:
            self._select(record, ref)

    def _join(self, late: _record.Late, ref: Ref) -> None:
        awaiting = self._awaiting.get(late.span)
        if awaiting is None:
            return
        awaiting.span.attributes.update(late.attributes)
        if late.last:
            del self._awaiting[late.span]
            self._select(awaiting.span, awaiting.ref, ref)

    def _give_up(self, moment: int | None) -> None:
        while self._awaiting:
            id_, first = next(iter(self._awaiting.items()))
            if moment is not None and moment <= first.span.end + PATIENCE:
                return
            del self._awaiting[id_]
            self._select(first.span, first.ref)

    def _select(self, record: _record.Record, ref: Ref, late: Ref | None = None) -> None:
        sends = self._selector.take(record, ref, late)
        if sends:
            self._append(sends, ref.segment)

    def _append(self, sends: list[Send], segment: int) -> None:
        # In the order of the journal: read back like that, many come with one read.
        held = sorted(send for send in sends if isinstance(send, Held))
        self._queue.extend((send, send.span[0]) for send in held)
        self._queue.extend((send, segment) for send in sends if not isinstance(send, Held))

    def _drained(self) -> Iterator[Ready]:
        queue, cursor = self._queue, self.cursor
        while queue:
            send, segment = queue.popleft()
            span = fetch(cursor, send) if type(send) is Held else send
            if span is not None:
                yield Ready(span, segment)  # type: ignore[arg-type]
            else:
                self.missing += 1


def fetch(cursor: Cursor, held: Held) -> Span | None:
    """Return a span by its place, with its late values; None where its segment is gone."""
    place, late_place = held
    span = cursor.fetch(place)
    if not isinstance(span, _SPANS):
        return None
    if late_place is not None:
        late = cursor.fetch(late_place)
        if isinstance(late, _record.Late):
            span.attributes.update(late.attributes)
    return span
