"""Reads a journal, also while it is being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rl_otel import _record
from rl_otel._journal.frames import frames

_CHUNK: Final = 1 << 20


def read(path: Path, offset: int = 0) -> Iterator[tuple[_record.Record, int]]:
    """Yield each record from `offset` on, and the offset behind it.

    What is torn at the end is left for the next call, what is torn in the middle is passed over.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(offset)
        rest = b""
        while chunk := file.read(_CHUNK):
            data, taken = rest + chunk, 0
            for payload, taken in frames(data):
                record = _decoded(payload)
                if record is not None:
                    yield record, offset + taken
            rest = data[taken:]
            offset += taken


def _decoded(payload: bytes) -> _record.Record | None:
    try:
        return _record.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
