"""Spans that are held: as they are sent where there is room for that, else only where they are in the journal."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from rl_otel._journal import Place, segment_of
from rl_otel._otlp import Piece

_BITS: Final = 27  # of a size: no record is so long

#: Where a span is, and how many bytes it takes as it is sent: one integer, for a step may hold a hundred thousand.
Spot: TypeAlias = int

#: Where the late values of a span are.
Late: TypeAlias = tuple[Place, ...]


class Joined(NamedTuple):
    """Where a span is, and the `late` records of its values."""

    spot: Spot
    late: Late


#: A span that is held.
Held: TypeAlias = "Piece | Spot | Joined"


def spot_of(place: Place, size: int) -> Spot:
    """Return the spot of a span at a place."""
    return place << _BITS | size


def place_of(held: Spot | Joined) -> Place:
    """Return where a span is."""
    return (held.spot if isinstance(held, Joined) else held) >> _BITS


def size_of(held: Held) -> int:
    """Return how many bytes a span takes."""
    if type(held) is Piece:
        return held.size
    return (held.spot if isinstance(held, Joined) else held) & (1 << _BITS) - 1  # type: ignore[operator]


class Refs(list[Held]):
    """Held spans in the order they ended."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return sum([held.size if type(held) is Piece else size_of(held) for held in self])

    @property
    def places(self) -> set[Place]:
        """Where they are, as far as they are not at hand."""
        return {place_of(held) for held in self if not isinstance(held, Piece)}

    @property
    def segments(self) -> set[int]:
        """The segments in which they are."""
        written = {held.segment for held in self if isinstance(held, Piece)}
        return written | set(map(segment_of, self.places))
