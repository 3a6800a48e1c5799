"""What the back end has of one process, segment by segment: read to send nothing twice, written after each delivery."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

from rl_otel._journal import ALL, Overflow, Sent, segment_path, segments
from rl_otel._ship.ready import Due

_KNOWN: Final = 4  # segments whose ids are in memory at a time
_segment: Final = attrgetter("segment")


class Notes:
    """The `.sent` files of one process.

    Args:
        base: what the names of its files begin with.
        overflow: what it has in memory, where it is this process: beside nothing on disk nothing can be noted.
        own: whether they are about spans sent again, each trajectory as a trace of its own.
    """

    def __init__(self, base: Path, overflow: Overflow | None = None, *, own: bool = False) -> None:
        self._base = base
        self._own = own
        self._overflow = overflow or Overflow()
        self._known: dict[int, set[bytes]] = {}
        self._writing: tuple[int, Sent] | None = None
        self._waiting: dict[int, list[bytes]] = {}  # of segments in memory

    def has(self, due: Due) -> bool:
        """Whether a span was sent before, by whoever had this journal then."""
        return due.id in self._ids(due.segment)

    def unsent(self, due: list[Due]) -> list[Due]:
        """Return what of `due` was not sent before."""
        if not any(map(self._ids, set(map(_segment, due)))):
            return due
        return [each for each in due if not self.has(each)]

    def add(self, sent: Iterable[Due]) -> None:
        """Note spans that the back end has, or has refused for good."""
        for segment, group in groupby(sent, key=_segment):
            self._add(segment, [each.id for each in group])
        for segment in [each for each in self._waiting if each not in self._overflow]:
            self._add(segment, self._waiting.pop(segment))

    def count(self) -> int:
        """Return how many spans are noted."""
        return sum(len(self._read(segment) - {ALL}) for segment in segments(self._base))

    def tells_all(self) -> bool:
        """Whether nothing of this process is left to be sent."""
        written = segments(self._base)
        return bool(written) and ALL in self._read(written[-1])

    def add_all(self) -> None:
        """Note that nothing is left to be sent."""
        written = segments(self._base)
        if written:
            self._add(written[-1], [ALL])

    def close(self) -> None:
        """Close the file that is open."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing[1].close()

    def _ids(self, segment: int) -> set[bytes]:
        known = self._known.get(segment)
        if known is None:
            known = self._known[segment] = self._read(segment)
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]
        return known

    def _add(self, segment: int, ids: list[bytes]) -> None:
        if segment in self._overflow:
            self._waiting.setdefault(segment, []).extend(ids)
            return
        if self._writing is None or self._writing[0] != segment:
            self.close()
            self._writing = segment, Sent(segment_path(self._base, segment), own=self._own)
        self._writing[1].add(ids)

    def _read(self, segment: int) -> set[bytes]:
        try:
            return Sent(segment_path(self._base, segment), own=self._own).ids()
        except OSError:
            return set()
