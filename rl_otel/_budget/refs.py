"""Spans that are held: not the spans, only where they are in the journal."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

#: Where a record is: segment, offset, length.
Ref: TypeAlias = tuple[int, int, int]

#: In place of a size: this entry is where the late values of the span before it are.
_LATE: Final = -1

#: One entry as it lies in the array; four appends would cost twice as much.
_entry: Final = Struct("=4q").pack


class Held(NamedTuple):
    """A span to be read back and sent, with the `late` record of its values where there is one."""

    span: Ref
    late: Ref | None = None

    @property
    def length(self) -> int:
        """Bytes in the journal."""
        return self.span[2] + (0 if self.late is None else self.late[2])


class Refs:
    """Held spans in the order they ended, four integers each: a step may hold a hundred thousand of them."""

    __slots__ = ("_ints", "size", "spans")

    def __init__(self) -> None:
        self.spans = 0
        self.size = 0  # bytes, encoded
        self._ints = array("q")

    def add(self, held: Held, size: int) -> None:
        """Hold one more."""
        self._ints.frombytes(_entry(*held.span, size))
        if held.late is not None:
            self._ints.frombytes(_entry(*held.late, _LATE))
        self.spans += 1
        self.size += size

    def extend(self, other: Refs) -> None:
        """Hold what `other` holds."""
        self._ints.extend(other._ints)
        self.spans += other.spans
        self.size += other.size

    def __iter__(self) -> Iterator[tuple[Held, int]]:
        """Iterate over what is held, each with its size."""
        return self.part(0, self.end)

    @property
    def segments(self) -> set[int]:
        """The segments in which something is held."""
        return set(self._ints[::4])

    @property
    def places(self) -> set[tuple[int, int]]:
        """Segment and offset of all that is held."""
        return set(zip(self._ints[::4], self._ints[1::4], strict=True))

    @property
    def end(self) -> int:
        """Where the next one will begin."""
        return len(self._ints)

    def part(self, begin: int, end: int) -> Iterator[tuple[Held, int]]:
        """Iterate over what lies between two places, which `end` gave."""
        ints, at = self._ints, begin
        while at < end:
            span, size = (ints[at], ints[at + 1], ints[at + 2]), ints[at + 3]
            at += 4
            late = None
            if at < end and ints[at + 3] == _LATE:
                late = ints[at], ints[at + 1], ints[at + 2]
                at += 4
            yield Held(span, late), size
