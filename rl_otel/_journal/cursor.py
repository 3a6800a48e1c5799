"""Reads the journal of one process, segment after segment, as it grows."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rl_otel import _record
from rl_otel._journal.folder import segment_path, segments
from rl_otel._journal.frames import HEAD, frame_length, payload_at
from rl_otel._journal.overflow import Overflow
from rl_otel._journal.place import Place, offset_of, place_of, segment_of
from rl_otel._journal.reader import Batch, batches, chunks, decoded

_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_BEHIND: Final = 4  # segments that have ended, which a thread that was held up in its write may still reach
_PIECE: Final = 1 << 16  # bytes that are read at a time to fetch from


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

    def __iter__(self) -> Iterator[tuple[_record.Record, Place]]:
        """Yield each record that has come since the last iteration.

        Raises:
            OSError: a file cannot be read.
        """
        for batch in self.batches():
            yield from zip(batch.records, batch.begins, strict=True)

    def batches(self) -> Iterator[Batch]:
        """Yield the records that have come since the last iteration, each with its `Place`.

        Raises:
            OSError: a file cannot be read.
        """
        yield from self._late()
        while True:
            following = self._following()  # asked first: once it is there, what this one still gets is rare
            segment = self.segment
            for batch in self._found(segment, self.offset):
                self.offset = offset_of(batch.end)
                yield batch
            if following is None:
                return
            self._ended[segment] = self.offset
            if len(self._ended) > _BEHIND:
                del self._ended[min(self._ended)]
            self.segment, self.offset = following, 0

    def fetch(self, place: Place) -> _record.Record | None:
        """Return the record at a place; None where its segment is gone."""
        data, at = self._near_to(place, HEAD)
        data, at = self._near_to(place, frame_length(data, at))
        payload = payload_at(data, at)
        return None if payload is None else decoded(payload)

    def close(self) -> None:
        """Close what `fetch` opened; it may be used again."""
        opened, self._open = self._open, None
        self._near = (-1, 0, b"")
        if opened is not None:
            os.close(opened[1])

    def _late(self) -> Iterator[Batch]:
        for segment, offset in list(self._ended.items()):
            for batch in self._found(segment, offset):
                self._ended[segment] = offset_of(batch.end)
                yield batch

    def _found(self, segment: int, offset: int) -> Iterator[Batch]:
        data = self._overflow.read(segment, offset)
        try:
            yield from batches(
                chunks(segment_path(self.base, segment), offset) if data is None else [data], place_of(segment, offset)
            )
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

    def _near_to(self, place: Place, length: int) -> tuple[bytes, int]:
        """Return bytes with so many from a place on, if they are there, and where in them the place is."""
        segment, offset = segment_of(place), offset_of(place)
        near, begin, data = self._near
        if segment == near and 0 <= offset - begin <= len(data) - length:
            return data, offset - begin
        in_memory = self._overflow.read(segment, offset, offset + length)
        if in_memory is not None:
            return in_memory, 0
        # With what is behind it: records that are fetched together lie near each other.
        data = self._from_file(segment, offset, max(length, _PIECE))
        self._near = segment, offset, data
        return data, 0

    def _from_file(self, segment: int, offset: int, length: int) -> bytes:
        if self._open is None or self._open[0] != segment:
            self.close()
            try:
                path = segment_path(self.base, segment)
                self._open = segment, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return b""
        return os.pread(self._open[1], length, offset)
