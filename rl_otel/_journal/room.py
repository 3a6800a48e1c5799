"""How much of the disk a journal may take where it only serves the sending."""

from __future__ import annotations

import logging
from collections.abc import Container
from pathlib import Path
from typing import Final

from rl_otel import _record
from rl_otel._journal.cursor import Cursor
from rl_otel._journal.folder import segment_path, segments
from rl_otel._journal.reader import read
from rl_otel._journal.sent import Sent
from rl_otel._safety import say

CAP: Final = 256_000_000  # bytes of a process


class Room:
    """The segments of a process in a folder that only serves the sending.

    Args:
        cursor: who reads them; what it has not come to is lost when its segment goes.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._base = cursor.base

    @property
    def is_short(self) -> bool:
        """Whether a segment should go."""
        sizes = self._sizes()
        return sum(sizes.values()) > CAP and len(sizes) > 1

    def trim(self, delivered: Container[int]) -> int:
        """Remove segments until the rest fits: the oldest of those delivered, without any the oldest of all.

        Returns how many spans went with them that the cursor had not read. What it had read and kept to itself is for
        whoever holds it to count: such a record can no longer be fetched.
        """
        sizes = self._sizes()
        unread = 0
        while sum(sizes.values()) > CAP and len(sizes) > 1:
            old = list(sizes)[:-1]  # the last one is being written
            segment = next((number for number in old if number in delivered), old[0])
            unread += self._remove(segment, whole=segment in delivered)
            del sizes[segment]
        return unread

    def _sizes(self) -> dict[int, int]:
        return {number: segment_path(self._base, number).stat().st_size for number in segments(self._base)}

    def _remove(self, segment: int, *, whole: bool) -> int:
        path = segment_path(self._base, segment)
        unread = 0 if whole else self._unread(path, segment)
        path.unlink()
        Sent(path).path.unlink(missing_ok=True)
        megabytes = CAP // 1_000_000
        if whole:
            say("room", "rl_otel: %s: more than %d MB, what was sent goes", path.parent, megabytes, level=logging.INFO)
        else:
            say("no room", "rl_otel: %s: more than %d MB wait to be sent, the oldest go", path.parent, megabytes)
        return unread

    def _unread(self, path: Path, segment: int) -> int:
        if segment < self._cursor.segment:
            return 0
        offset = self._cursor.offset if segment == self._cursor.segment else 0
        spans = (record for record, _ in read(path, offset) if isinstance(record, _record.End | _record.Foreign))
        return sum(not span.flags & _record.LOCAL for span in spans)
