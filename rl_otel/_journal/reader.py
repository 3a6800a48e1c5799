"""Reads a journal, also while it is being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rl_otel import _record
from rl_otel._journal.frames import Scan

_CHUNK: Final = 1 << 20


def read(path: Path, offset: int = 0) -> Iterator[tuple[_record.Record, int]]:
    """Yield each record from `offset` on, and the offset behind it, where another call can go on.

    What is torn at the end is left for the next call, what is torn in the middle is passed over.

    Raises:
        OSError: the file cannot be read.
    """
    scan = Scan(offset)
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(_CHUNK):
            for payload in scan.feed(chunk):
                record = _decoded(payload)
                if record is not None:
                    yield record, scan.offset


def _decoded(payload: bytes) -> _record.Record | None:
    try:
        return _record.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # a kind that a newer version writes
