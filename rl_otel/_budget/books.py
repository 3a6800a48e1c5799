"""What is paid, held and kept: the spans of a trace as numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from rl_otel._budget.purse import NOTHING, Purse, Rest
from rl_otel._budget.refs import Held, Joined, Late, Refs, size_of, spot_of
from rl_otel._budget.window import Window
from rl_otel._journal import Place, segment_of
from rl_otel._otlp import Piece, Span
from rl_otel._record import Attributes

#: Writes a span that is in that segment of its journal.
Write: TypeAlias = Callable[[Span, int], Piece]

_MOST: Final = 4096  # rollouts


class Counts:
    """Spans of all traces: decided to stay in the journal alone, and not decided yet."""

    def __init__(self, room: int) -> None:
        self.kept = 0
        self.held = 0
        self.said: OrderedDict[bytes, Attributes] = OrderedDict()  # by rollout that was kept: what is shown of it
        self.room = room  # bytes that held spans may still take in memory

    def keep_said(self, rollout: bytes, said: Attributes) -> None:
        """Remember what a rollout that is kept would have said, for who asks for it later."""
        self.said[rollout] = said
        if len(self.said) > _MOST:
            self.said.popitem(last=False)


class Books:
    """One trace's purse and clock, with the counts of all traces.

    Args:
        purse: What the trace may still send.
        write: How spans are written: that tells how large they are.
        counts: Those of all traces.
        window: What traces that are one trajectory each may show together.
    """

    __slots__ = ("counts", "now", "purse", "taken", "window", "write")

    def __init__(self, purse: Purse, write: Write, counts: Counts, window: Window) -> None:
        self.purse = purse
        self.window = window
        self.now = 0  # the latest time of any record
        self.counts = counts
        self.write = write
        self.taken = 0  # of the room of all: given back when the trace is over

    def cost(self, record: Span) -> int:
        """Return the bytes of a span; nothing for one that cannot be encoded."""
        try:
            return self.write(record, 0).size
        except Exception:
            return 0  # whoever sends it finds the same, and counts it as dropped

    def written(self, record: Span, place: Place, late: Late) -> Held:
        """Return what is to be held of a span that ended, which is at a place, with its late values at others."""
        try:
            piece = self.write(record, segment_of(place))
        except Exception:
            piece = None
        size = 0 if piece is None else piece.size
        if piece is not None and size <= self.counts.room:
            self.take_room(size)
            return piece
        spot = spot_of(place, size)
        return Joined(spot, late) if late else spot

    def take_room(self, size: int) -> None:
        """Take so much of the room of all."""
        self.counts.room -= size
        self.taken += size

    def close(self) -> Purse:
        """Return the purse of a trace that is over."""
        self.take_room(-self.taken)
        return self.purse

    def send(self, size: int, rest: Rest = NOTHING, *, detail: bool = False) -> bool:
        """Pay for a span that is at hand; whether it may leave."""
        return self.purse.pay(1, size, self.now, rest, detail=detail)

    def send_or_keep(self, size: int, rest: Rest = NOTHING, *, detail: bool = False) -> bool:
        """Pay for a span that is at hand, or keep it for good."""
        sent = self.send(size, rest, detail=detail)
        self.counts.kept += not sent
        return sent

    def hold(self, refs: Refs, held: Held) -> None:
        """Hold one more span among `refs`."""
        refs.append(held)
        self.counts.held += 1

    def release(self, refs: Refs, rest: Rest) -> list[Held] | None:
        """Return all that is held together if it can be paid, else nothing: then it stays held."""
        if not self.purse.pay(len(refs), refs.size, self.now, rest, detail=True):
            return None
        self.counts.held -= len(refs)
        return refs

    def release_each(self, refs: Refs) -> list[Held]:
        """Return as much of what is held as can be paid, and keep the others."""
        rest = self.purse.for_phases
        sends = [held for held in refs if self.send(size_of(held), rest, detail=True)]
        self.counts.held -= len(refs)
        self.counts.kept += len(refs) - len(sends)
        return sends

    def keep(self, refs: Refs) -> None:
        """Keep all that is held."""
        self.counts.held -= len(refs)
        self.counts.kept += len(refs)
