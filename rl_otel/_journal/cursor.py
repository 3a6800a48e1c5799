"""Reads the journal of one process, segment after segment, as it grows."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rl_otel import _record
from rl_otel._journal.folder import segment_path, segments
from rl_otel._journal.frames import payload_of
from rl_otel._journal.overflow import Overflow
from rl_otel._journal.reader import Found, chunks, decoded, found

_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_BEHIND: Final = 4  # segments that have ended, which a thread that was held up in its write may still reach
_PIECE: Final = 1 << 16  # bytes that are read at a time to fetch from


class Ref(NamedTuple):
    """Where a record is: `length` bytes at `offset` of a segment."""

    segment: int
    offset: int
    length: int


class Cursor:
    """A place in a journal, for one reader. Each iteration goes on there, as far as there is something.

    Args:
        base: what the names of the process's files begin with.
        segment: where to begin.
        offset: where in that segment, behind a record.
        overflow: what the process has in memory, where the reader is in that process.
    """

    def __init__(self, base: Path, segment: int = 0, offset: int = 0, overflow: Overflow | None = None) -> None:
        self.base = base
        self.segment = segment
        self.offset = offset
        self._inside = overflow is not None
        self._overflow = overflow or Overflow()
        self._ended: dict[int, int] = {}  # the segments just before, and how far each was read
        self._open: tuple[int, int] | None = None  # the segment fetched from last, and its descriptor
        self._near = (-1, 0, b"")  # a piece of it that was read: segment, offset, bytes

    def __iter__(self) -> Iterator[tuple[_record.Record, Ref]]:
        """Yield each record that has come since the last iteration.

        Raises:
            OSError: a file cannot be read.
        """
        yield from self._late()
        while True:
            following = self._following()  # asked first: once it is there, what this one still gets is rare
            segment = self.segment
            for record, begin, end in self._found(segment, self.offset):
                self.offset = end
                yield record, Ref(segment, begin, end - begin)
            if following is None:
                return
            self._ended[segment] = self.offset
            if len(self._ended) > _BEHIND:
                del self._ended[min(self._ended)]
            self.segment, self.offset = following, 0

    def fetch(self, place: tuple[int, int, int]) -> _record.Record | None:
        """Return a record by its place, a `Ref`; None where its segment is gone."""
        segment, offset, length = place
        near, begin, data = self._near
        at = offset - begin
        if segment != near or at < 0 or at + length > len(data):
            data, at = self._piece(segment, offset, length), 0
        payload = payload_of(data[at : at + length])
        return None if payload is None else decoded(payload)

    def close(self) -> None:
        """Close what `fetch` opened; it may be used again."""
        opened, self._open = self._open, None
        self._near = (-1, 0, b"")
        if opened is not None:
            os.close(opened[1])

    def _late(self) -> Iterator[tuple[_record.Record, Ref]]:
        for segment, offset in list(self._ended.items()):
            for record, begin, end in self._found(segment, offset):
                self._ended[segment] = end
                yield record, Ref(segment, begin, end - begin)

    def _found(self, segment: int, offset: int) -> Iterator[Found]:
        data = self._overflow.read(segment, offset)
        try:
            yield from found(chunks(segment_path(self.base, segment), offset) if data is None else [data], offset)
        except OSError as error:
            if error.errno not in _NOT_THERE:  # yet, or any more
                raise

    def _following(self) -> int | None:
        if self._is_there(self.segment + 1):
            return self.segment + 1
        if self._inside and self._is_there(self.segment):
            return None  # of a living process segments go from the oldest on, so the next one is not missing
        return min((n for n in (*segments(self.base), *self._overflow.numbers) if n > self.segment), default=None)

    def _is_there(self, segment: int) -> bool:
        if segment in self._overflow:
            return True
        try:
            return segment_path(self.base, segment).exists()
        except OSError:
            return False  # a folder that may not be looked into

    def _piece(self, segment: int, offset: int, length: int) -> bytes:
        """Return a record with what is behind it: those that are fetched together lie near each other."""
        data = self._overflow.read(segment, offset, offset + length)
        if data is None:
            data = self._from_file(segment, offset, max(length, _PIECE))
            self._near = segment, offset, data
        return data

    def _from_file(self, segment: int, offset: int, length: int) -> bytes:
        if self._open is None or self._open[0] != segment:
            self.close()
            try:
                path = segment_path(self.base, segment)
                self._open = segment, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return b""
        return os.pread(self._open[1], length, offset)
