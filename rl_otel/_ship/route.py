"""From a journal to the spans that are to be sent: late values joined, the budget asked, held detail read back."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from rl_otel import _record
from rl_otel._budget import Held, Joined, Late, Send, place_of
from rl_otel._journal import Batch, Cursor, Place, segment_of
from rl_otel._otlp import Piece, Span
from rl_otel._ship.ready import Due, Ready

PATIENCE: Final = 5_000_000_000  # ns after its end that a span waits for its late values
_TOGETHER: Final = 512  # spans that are read back at a time

_SPANS: Final = (_record.End, _record.Foreign)
_WAITS: Final = _record.AWAITED | _record.LOCAL  # of these two only the first: late values are to be joined


class _Awaiting(NamedTuple):
    span: _record.End
    place: Place
    late: list[Place]


class Selects(Protocol):
    """Says of one record after another which spans are to be sent: a `Selector`, or a `Picker`."""

    def hold(self, batch: Batch, at: int, until: float) -> int:
        """Take records of a batch from one on for which nothing is to be sent, and that ended before `until`.

        Returns which is the first that is more: for `take`.
        """

    def take(self, record: _record.Record, place: Place, late: Late = ()) -> list[Send]:
        """Take the next record, and return what is to be sent now."""

    def finish(self) -> list[Send]:
        """Nothing more will come: return the rest that is to be sent."""


class Route:
    """The way of one process's spans. It goes by the times in the records, so that a replay takes the same decisions.

    What is on its way is kept between two calls: an iteration may be given up at any point, and the next goes on.

    Args:
        cursor: reads its journal.
        selector: says what is to be sent.
    """

    def __init__(self, cursor: Cursor, selector: Selects) -> None:
        self.cursor = cursor
        self._selector = selector
        self.missing = 0  # spans that were to be sent when their segment was gone
        self._awaiting: dict[bytes, _Awaiting] = {}  # the one that ended first is nearly the first
        self._queue: deque[Held | Due] = deque()

    def ready(self, moment: int | None = None) -> Iterator[list[Due]]:
        """Yield what is to be sent of what the journal holds by now, many at a time.

        Args:
            moment: of now, in ns, where the process lives: values that have not come by then are waited for no longer.

        Raises:
            OSError: a file cannot be read.
        """
        for batch in self.cursor.batches():
            self._take_all(batch)
            if self._queue:
                yield from self._drained()
        if moment is not None:
            self._give_up(moment)
        yield from self._drained()

    def finish(self) -> Iterator[list[Due]]:
        """Yield what is left to be sent where nothing more will come."""
        self._give_up(None)
        self._append(self._selector.finish(), 0)
        yield from self._drained()

    def spans(self, *, finish: bool) -> Iterator[Ready]:
        """Yield the same one by one, with what is left to be sent at the `finish`; for who keeps nothing written."""
        for due in chain(self.ready(), self.finish() if finish else ()):
            yield from (each for each in due if isinstance(each, Ready))

    def segments(self) -> set[int]:
        """Return which segments have something that is on its way."""
        return {segment_of(each.place) for each in self._awaiting.values()} | set(map(_segment, self._queue))

    def _take_all(self, batch: Batch) -> None:
        at, end = 0, len(batch.records)
        while at < end:
            at = self._selector.hold(batch, at, self._patience)
            if at < end:
                self._take(batch.records[at], batch.begins[at])
                at += 1

    @property
    def _patience(self) -> float:
        """How long nobody is waited for too long."""
        return next(iter(self._awaiting.values())).span.end + PATIENCE + 1 if self._awaiting else math.inf

    def _take(self, record: _record.Record, place: Place) -> None:
        if isinstance(record, _record.Late):
            self._join(record, place)
            return
        if self._awaiting and isinstance(record, (*_SPANS, _record.Start)):
            self._give_up(record.start if isinstance(record, _record.Start) else record.end)
        if isinstance(record, _record.End) and record.flags & _WAITS == _record.AWAITED:
            self._awaiting[record.span] = _Awaiting(record, place, [])
        else:
            self._select(record, place)

    def _join(self, late: _record.Late, place: Place) -> None:
        awaiting = self._awaiting.get(late.span)
        if awaiting is None:
            return
        awaiting.span.attributes.update(late.attributes)
        awaiting.late.append(place)
        if late.last:
            del self._awaiting[late.span]
            self._select(awaiting.span, awaiting.place, tuple(awaiting.late))

    def _give_up(self, moment: int | None) -> None:
        while self._awaiting:
            id_, first = next(iter(self._awaiting.items()))
            if moment is not None and moment <= first.span.end + PATIENCE:
                return
            del self._awaiting[id_]
            self._select(first.span, first.place, tuple(first.late))

    def _select(self, record: _record.Record, place: Place, late: Late = ()) -> None:
        sends = self._selector.take(record, place, late)
        if sends:
            self._append(sends, segment_of(place))

    def _append(self, sends: list[Send], segment: int) -> None:
        self._queue.extend([send for send in sends if type(send) is Piece])
        others = [send for send in sends if type(send) is not Piece]
        # In the order of the journal: read back like that, many come with one read.
        held = sorted((send for send in others if isinstance(send, int | Joined)), key=place_of)
        self._queue.extend(held)
        self._queue.extend([Ready(send, segment) for send in others if isinstance(send, _SPANS)])

    def _drained(self) -> Iterator[list[Due]]:
        queue = self._queue
        while queue:
            together = min(len(queue), _TOGETHER)
            due = [send if type(send) is Piece else self._fetched(send) for send in islice(queue, together)]
            for _ in range(together):
                queue.popleft()
            found = [each for each in due if each is not None]
            self.missing += together - len(found)
            yield found

    def _fetched(self, send: Held | Due) -> Due | None:
        if isinstance(send, Ready | Piece):
            return send
        span = fetch(self.cursor, send)
        return None if span is None else Ready(span, segment_of(place_of(send)))


def fetch(cursor: Cursor, held: int | Joined) -> Span | None:
    """Return a span by its place, with its late values; None where its segment is gone."""
    span = cursor.fetch(place_of(held))
    if not isinstance(span, _SPANS):
        return None
    for late in map(cursor.fetch, held.late if isinstance(held, Joined) else ()):
        if isinstance(late, _record.Late):
            span.attributes.update(late.attributes)
    return span


def _segment(send: Held | Due) -> int:
    return send.segment if isinstance(send, Ready | Piece) else segment_of(place_of(send))
