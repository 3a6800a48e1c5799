"""Which spans of a segment the back end has: their ids, in a file beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rl_otel._journal.folder import MODE, OWN, PRIVATE, SENT
from rl_otel._safety import say

_ID: Final = 8  # bytes of a span id

#: In the place of an id, which it never is: nothing of this process is left to be sent.
ALL: Final = bytes(_ID)


class Sent:
    """What was delivered of one segment, or refused for good: written by whoever holds the lock of its process.

    Args:
        journal: the segment's file.
        own: whether it is about spans sent again, each trajectory as a trace of its own.
    """

    def __init__(self, journal: Path, *, own: bool = False) -> None:
        self.path = journal.with_suffix(OWN if own else SENT)
        self._descriptor: int | None = None
        self._rest = b""  # of what the disk did not take

    def add(self, ids: Iterable[bytes]) -> None:
        """Note these spans. What cannot be written goes with the next ones; a crash before that sends them again."""
        self._rest += b"".join(ids)
        if not self._rest:
            return
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            self._rest = self._rest[os.write(self._descriptor, self._rest) :]
        except OSError as error:
            say("sent", "rl_otel: cannot note in %s what was sent: %s", self.path, error)

    def ids(self) -> set[bytes]:
        """Return the ids of the spans that were noted."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            data = b""
        if self._descriptor is None:
            data = data[: len(data) - len(data) % _ID]
        data += self._rest
        return {data[at : at + _ID] for at in range(0, len(data), _ID)}

    def close(self) -> None:
        """Close the file, with a last try where something is left."""
        self.add(())
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | PRIVATE, MODE)
        size = os.fstat(descriptor).st_size
        if size % _ID:  # a process that was killed while it wrote
            os.ftruncate(descriptor, size - size % _ID)
        return descriptor
