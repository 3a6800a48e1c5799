"""Values that were not there when their span ended: polled now and then, and written as `late` records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from rl_otel import _record, semconv
from rl_otel._deferred import Pending

_MOST = 4096  # spans that wait for a value at a time

#: Sets the attributes that a word's value becomes, in a dict; the value is as it was read.
Put: TypeAlias = "Callable[[semconv.Word, Any, dict[str, Any]], None]"


class _Waiting(NamedTuple):
    put: Put
    values: list[tuple[semconv.Word, Pending]]


class Late:
    """The spans of this process that wait for a value; polled by one thread, added to by any."""

    def __init__(
        self, write: Callable[[_record.Record], object], tell: Callable[[bytes, dict[str, Any]], object]
    ) -> None:
        self._write = write
        self._tell = tell
        self._waiting: dict[bytes, _Waiting] = {}

    def add(self, span: bytes, put: Put, values: list[tuple[semconv.Word, Pending]]) -> None:
        """Wait for `values` of a span that has ended; `put` sets what they become."""
        if len(self._waiting) >= _MOST:
            oldest = next(iter(self._waiting))
            if self._waiting.pop(oldest, None) is not None:
                self._give(oldest, {})
        self._waiting[span] = _Waiting(put, values)

    def poll(self, *, last: bool = False) -> None:
        """Write what is there now; at the `last` call give up on the rest. Only on a thread of ours."""
        for span, waiting in list(self._waiting.items()):
            if last or all(deferred.ready() for _, deferred in waiting.values):
                self._resolve(span)

    def waits(self, span: bytes) -> bool:
        """Whether a span still waits for a value."""
        return span in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def _resolve(self, span: bytes) -> None:
        waiting = self._waiting.get(span)
        if waiting is None:
            return
        attributes: dict[str, Any] = {}
        try:
            for word, deferred in waiting.values:
                if deferred.ready():
                    waiting.put(word, deferred.read(), attributes)
        finally:  # whatever went wrong: nobody shall wait for it any longer
            if self._waiting.pop(span, None) is not None:  # else it was given up on meanwhile
                self._give(span, attributes)

    def _give(self, span: bytes, attributes: dict[str, Any]) -> None:
        self._write(_record.Late(span, attributes))
        self._tell(span, attributes)
