"""Calls that are read before anything else of their trace: processes are read by the batch, the oldest first."""

from __future__ import annotations

from typing import Final

from rl_otel import _record
from rl_otel._read import Source

_MOST: Final = 1 << 15  # about as many as two batches hold


class Early:
    """Keeps such calls until their trace is there; above a number those of the trace that waits longest are let go."""

    def __init__(self) -> None:
        self._calls: dict[bytes, list[tuple[Source, _record.End]]] = {}
        self._kept = 0

    def keep(self, source: Source, call: _record.End) -> None:
        """Take a call of a trace that is not known."""
        self._calls.setdefault(call.trace, []).append((source, call))
        self._kept += 1
        while self._kept > _MOST:
            self.take(next(iter(self._calls)))

    def take(self, trace: bytes) -> list[tuple[Source, _record.End]]:
        """Return the calls of a trace, and forget them."""
        calls = self._calls.pop(trace, [])
        self._kept -= len(calls)
        return calls
