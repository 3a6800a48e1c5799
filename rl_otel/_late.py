"""Values that were not there when their span ended: polled now and then, and written as `late` records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rl_otel import _record, _values, semconv
from rl_otel._deferred import Deferred

_MOST = 4096  # spans that wait for a value at a time


class _Waiting(NamedTuple):
    span: bytes
    values: list[tuple[semconv.Word, Deferred]]


class Late:
    """The spans of this process that wait for a value; polled by one thread, added to by any."""

    def __init__(
        self, write: Callable[[_record.Record], object], tell: Callable[[bytes, dict[str, Any]], object]
    ) -> None:
        self._write = write
        self._tell = tell
        self._waiting: list[_Waiting] = []

    def add(self, span: bytes, values: list[tuple[semconv.Word, Deferred]]) -> None:
        """Wait for `values` of a span that has ended."""
        if len(self._waiting) >= _MOST:
            self._resolve(self._waiting.pop(0), given_up=True)
        self._waiting.append(_Waiting(span, values))

    def poll(self, *, last: bool = False) -> None:
        """Write what is there now; at the `last` call give up on the rest."""
        for waiting in list(self._waiting):
            ready = all(deferred.ready() for _, deferred in waiting.values)
            if ready or last:
                self._waiting.remove(waiting)
                self._resolve(waiting, given_up=not ready)

    def __len__(self) -> int:
        return len(self._waiting)

    def _resolve(self, waiting: _Waiting, *, given_up: bool) -> None:
        attributes = {}
        for word, deferred in waiting.values:
            if not given_up or deferred.ready():
                value = _values.as_type(deferred.read(), word.type)
                if value is not None:
                    attributes[word.attribute] = value
        self._write(_record.Late(waiting.span, attributes))
        self._tell(waiting.span, attributes)
