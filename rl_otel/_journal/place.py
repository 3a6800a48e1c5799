"""Where a record is in the journal of its process: the segment, and the offset in it, as one integer."""

from __future__ import annotations

from typing import Final, TypeAlias

Place: TypeAlias = int

_BITS: Final = 40  # of the offset: a segment is never so long, and a place fits in 64 bits


def place_of(segment: int, offset: int = 0) -> Place:
    """Return the place at `offset` of a segment."""
    return segment << _BITS | offset


def segment_of(place: Place) -> int:
    """Return the segment of a place."""
    return place >> _BITS


def offset_of(place: Place) -> int:
    """Return the offset of a place in its segment."""
    return place & (1 << _BITS) - 1
