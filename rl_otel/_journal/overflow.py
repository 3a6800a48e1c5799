"""Segments in memory, for as long as no disk takes them."""

from __future__ import annotations

from typing import Final

from rl_otel import _record
from rl_otel._journal.reader import batches

LIMIT: Final = 8 << 20  # bytes
PART: Final = 1 << 20  # bytes of a segment: what was delivered makes room in such pieces


class Overflow:
    """At most `LIMIT` bytes of segments that are byte for byte as they will be on disk, if ever.

    So a place in one of them stays true when it is written. One thread at a time writes.
    """

    def __init__(self) -> None:
        self._segments: dict[int, bytearray] = {}
        self._released: set[int] = set()

    def __contains__(self, segment: int) -> bool:
        return segment in self._segments

    @property
    def numbers(self) -> list[int]:
        """The segments that are here, in order."""
        return sorted(self._segments)

    @property
    def spans(self) -> int:
        """How many spans that ended are here and nowhere else."""
        found = (batch for number in self.numbers for batch in batches([self.read(number) or b""], 0))
        return sum(isinstance(record, _record.End | _record.Foreign) for batch in found for record in batch.records)

    def read(self, segment: int, begin: int = 0, end: int | None = None) -> bytes | None:
        """Return what a segment holds between two places; None where it is not here."""
        data = self._segments.get(segment)
        return None if data is None else bytes(data[begin:end])

    @property
    def last(self) -> int:
        """The segment that is being written."""
        return max(self._segments)

    @property
    def is_full(self) -> bool:
        """Whether the next record should begin another segment."""
        return len(self._segments[self.last]) >= PART

    def begin(self, segment: int, head: bytes) -> None:
        """Begin a segment with its first record."""
        self._segments.setdefault(segment, bytearray(head))

    def add(self, data: bytes) -> bool:
        """Append a frame; False where there is no room."""
        if not self._has_room(len(data)):
            return False
        self._segments[self.last] += data
        return True

    def release(self, segment: int) -> None:
        """Let a delivered segment go when its room is needed: nobody will ask for it again."""
        self._released.add(segment)

    def remove(self, segment: int) -> bytes:
        """Forget a segment, which is on disk now, and return it."""
        return bytes(self._segments.pop(segment, b""))

    def _has_room(self, size: int) -> bool:
        for number in self.numbers[:-1]:
            if self._size + size > LIMIT and number in self._released:
                self.remove(number)
        return self._size + size <= LIMIT

    @property
    def _size(self) -> int:
        return sum(map(len, self._segments.values()))
