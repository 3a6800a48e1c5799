"""All processes of one run, and their records in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from rl_otel import semconv
from rl_otel._journal import CHUNK, SUFFIX, base_of, journals
from rl_otel._read.source import Source

_TOGETHER: Final = 4 << 20  # bytes of all journals that are read at once, each at least
_LEAST: Final = 1 << 16
_NEVER: Final = 1 << 63


class Batch(NamedTuple):
    """Records of one process, not decoded. What is yet to come of the others is of `until` or later."""

    until: int
    source: Source
    payloads: list[bytes]


class Run:
    """All processes of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.sources = list(self._sources())

    @property
    def lost(self) -> int:
        """How many spans never reached a journal, as far as their processes could still say so."""
        return sum(sum(source.lost.values()) for source in self.sources)

    def batches(self) -> Iterator[Batch]:
        """Yield the records of all processes in the order of time, as nearly as whole batches can be."""
        size = min(max(_TOGETHER // max(len(self.sources), 1), _LEAST), CHUNK)
        rows = [(source, source.batches(size)) for source in self.sources]
        firsts = [(next(batches, None), number) for number, (_, batches) in enumerate(rows)]
        heap = [(first.moment + rows[at][0].shift, at, first.payloads) for first, at in firsts if first is not None]
        heapify(heap)
        while heap:
            _, at, payloads = heap[0]
            source, batches = rows[at]
            yield Batch(min((each[0] for each in heap[1:3]), default=_NEVER), source, payloads)
            following = next(batches, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following.moment + source.shift, at, following.payloads))

    def _sources(self) -> Iterator[Source]:
        """Yield the processes that can be read, each once: one may have been copied there twice."""
        self._name_folders()
        seen: dict[str, Source] = {}
        for base, paths in groupby(journals(self.folder), key=base_of):
            source = Source(base.name, list(paths), self.problems)
            if source.readable:
                instance = str(source.resource.get(semconv.SERVICE_INSTANCE_ID, base))
                if seen.setdefault(instance, source) is source:
                    yield source
                else:
                    self.problems.append(f"{base} is the process of {seen[instance].name} once more: left out")

    def _name_folders(self) -> None:
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            if not path.is_file():
                self.problems.append(f"{path} is no file: left out")
