"""Reads a journal, also while it is being written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from rl_otel import _record
from rl_otel._journal.frames import Scan

CHUNK: Final = 1 << 20
_TOGETHER: Final = 256  # records that are decoded at a time: few enough for the processor's caches
_MANY: Final = b"\xdd"  # begins a msgpack array, with its length in four bytes
_ARRAY: Final = Struct(">cI").pack
_NO_RECORD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_array: Final = msgspec.msgpack.Decoder(list[_record.Record]).decode


class Batch(NamedTuple):
    """Records that follow one another, where the frame of each begins, and where the last one ends."""

    records: list[_record.Record]
    begins: list[int]
    end: int


def read(path: Path, offset: int = 0) -> Iterator[tuple[_record.Record, int]]:
    """Yield each record from `offset` on, and an offset behind it, where another call can go on.

    What is torn at the end is left for the next call, what is torn in the middle is passed over.

    Raises:
        OSError: the file cannot be read.
    """
    for records, begins, end in batches(chunks(path, offset), offset):
        yield from zip(records, [*begins[1:], end], strict=True)


def payloads(path: Path, size: int = CHUNK) -> Iterator[list[bytes]]:
    """Yield the payloads of a file, not decoded, as many at a time as lie in `size` bytes.

    Raises:
        OSError: the file cannot be read.
    """
    scan = Scan(0)
    for chunk in chunks(path, 0, size):
        found = scan.feed(chunk).payloads
        if found:
            yield found


def chunks(path: Path, offset: int, size: int = CHUNK) -> Iterator[bytes]:
    """Yield the bytes of a file from `offset` on, so many at a time.

    Raises:
        OSError: the file cannot be read.
    """
    while True:
        with path.open("rb") as file:  # anew each time: a run can have more journals than a process may have open
            file.seek(offset)
            chunk = file.read(size)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)


def batches(data: Iterable[bytes], offset: int) -> Iterator[Batch]:
    """Yield the records in `data`, of which the first byte lies at `offset`."""
    scan = Scan(offset)
    for chunk in data:
        payloads, begins = scan.feed(chunk)
        for at in range(0, len(payloads), _TOGETHER):
            part = slice(at, at + _TOGETHER)
            end = begins[part.stop] if part.stop < len(begins) else scan.offset
            batch = _decoded(payloads[part], begins[part], end)
            if batch.records:
                yield batch


def _decoded(payloads: list[bytes], begins: list[int], end: int) -> Batch:
    # One call for all costs half as much. What one of them has that is not known takes the way of each alone.
    try:
        return Batch(_array(b"".join((_ARRAY(_MANY, len(payloads)), *payloads))), begins, end)
    except _NO_RECORD:
        records = [(decoded(payload), begin) for payload, begin in zip(payloads, begins, strict=True)]
    known = [(record, begin) for record, begin in records if record is not None]
    return Batch([record for record, _ in known], [begin for _, begin in known], end)


def decoded(payload: bytes) -> _record.Record | None:
    """Return the record in `payload`, None where it is of a kind that a newer version writes."""
    try:
        return _record.decode(payload)
    except _NO_RECORD:
        return None
