"""What is paid, held and kept: the spans of a trace as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rl_otel._budget.purse import NOTHING, Purse, Rest
from rl_otel._budget.refs import Held, Refs
from rl_otel._otlp import Span

#: How large a span is, encoded; with its length in the journal, where that is known.
Size: TypeAlias = Callable[[Span, "int | None"], int]


class Counts:
    """Spans of all traces: decided to stay in the journal alone, and not decided yet."""

    def __init__(self) -> None:
        self.kept = 0
        self.held = 0


class Books:
    """One trace's purse and clock, with the counts of all traces.

    Args:
        purse: What the trace may still send.
        size: How large a span is, encoded; given also how long it is in the journal, where that is known.
        counts: Those of all traces.
    """

    __slots__ = ("_size", "counts", "now", "purse")

    def __init__(self, purse: Purse, size: Size, counts: Counts) -> None:
        self.purse = purse
        self.now = 0  # the latest time of any record
        self.counts = counts
        self._size = size

    def cost(self, record: Span, held: Held | None = None) -> int:
        """Return the bytes of a span, which is at `held` as it is; nothing for one that cannot be encoded."""
        try:
            return self._size(record, None if held is None else held.length)
        except Exception:
            return 0  # whoever sends it finds the same, and counts it as dropped

    def send(self, size: int, rest: Rest = NOTHING, *, detail: bool = False) -> bool:
        """Pay for a span that is at hand; whether it may leave."""
        return self.purse.pay(1, size, self.now, rest, detail=detail)

    def send_or_keep(self, size: int, rest: Rest = NOTHING, *, detail: bool = False) -> bool:
        """Pay for a span that is at hand, or keep it for good."""
        sent = self.send(size, rest, detail=detail)
        self.counts.kept += not sent
        return sent

    def hold(self, refs: Refs, held: Held, size: int) -> None:
        """Hold one more span among `refs`."""
        refs.add(held, size)
        self.counts.held += 1

    def release(self, refs: Refs, rest: Rest) -> list[Held] | None:
        """Return all that is held together if it can be paid, else nothing: then it stays held."""
        if not self.purse.pay(refs.spans, refs.size, self.now, rest, detail=True):
            return None
        self.counts.held -= refs.spans
        return [held for held, _ in refs]

    def release_each(self, refs: Refs) -> list[Held]:
        """Return as much of what is held as can be paid, and keep the others."""
        rest = self.purse.for_phases
        sends = [held for held, size in refs if self.send(size, rest, detail=True)]
        self.counts.held -= refs.spans
        self.counts.kept += refs.spans - len(sends)
        return sends

    def keep(self, refs: Refs) -> None:
        """Keep all that is held."""
        self.counts.held -= refs.spans
        self.counts.kept += refs.spans
