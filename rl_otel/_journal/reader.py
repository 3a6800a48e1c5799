"""Reads a journal, also while it is being written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rl_otel import _record
from rl_otel._journal.frames import Scan, frame_size

_CHUNK: Final = 1 << 20


class Found(NamedTuple):
    """A record, and where its frame begins and ends."""

    record: _record.Record
    begin: int
    end: int


def read(path: Path, offset: int = 0) -> Iterator[tuple[_record.Record, int]]:
    """Yield each record from `offset` on, and the offset behind it, where another call can go on.

    What is torn at the end is left for the next call, what is torn in the middle is passed over.

    Raises:
        OSError: the file cannot be read.
    """
    for record, _, end in found(chunks(path, offset), offset):
        yield record, end


def chunks(path: Path, offset: int) -> Iterator[bytes]:
    """Yield the bytes of a file from `offset` on, a megabyte at a time.

    Raises:
        OSError: the file cannot be read.
    """
    while True:
        with path.open("rb") as file:  # anew each time: a run can have more journals than a process may have open
            file.seek(offset)
            chunk = file.read(_CHUNK)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)


def found(data: Iterable[bytes], offset: int) -> Iterator[Found]:
    """Yield the records in `data`, which begins at `offset` of its segment."""
    scan = Scan(offset)
    for chunk in data:
        for payload in scan.feed(chunk):
            record = decoded(payload)
            if record is not None:
                yield Found(record, scan.offset - frame_size(payload), scan.offset)


def decoded(payload: bytes) -> _record.Record | None:
    """Return the record in `payload`, None where it is of a kind that a newer version writes."""
    try:
        return _record.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
