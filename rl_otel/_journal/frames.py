"""How records lie in a file: two marker bytes, the payload's length, the payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

# 0xC1 is the one byte that msgpack never begins a value with, so a reader can look for the next frame.
MARK: Final = b"\xc1R"
_HEAD: Final = len(MARK) + 4
MAX_PAYLOAD: Final = 64 << 20


def frame(payload: bytes) -> bytes:
    """Return `payload` as it is written to a journal."""
    return MARK + len(payload).to_bytes(4, "little") + payload


def frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each whole frame's payload and the offset behind it; what is no frame is passed over.

    The last offset yielded is where a reader goes on when the file has grown: a torn tail is not behind it.
    """
    at = 0
    while at + _HEAD <= len(data):
        end = _end_of(data, at)
        if end is None:
            found = _next_frame(data, at + 1)
            if found is None:
                return
            at = found
        elif end > len(data):
            # Torn, or still being written; but a tear in the middle of a file has good frames behind it.
            found = _next_frame(data, at + 1)
            if found is None:
                return
            at = found
        else:
            yield data[at + _HEAD : end], end
            at = end


def _end_of(data: bytes, at: int) -> int | None:
    """Return the offset behind the frame at `at`, or None where no frame begins."""
    if data[at : at + len(MARK)] != MARK:
        return None
    length = int.from_bytes(data[at + len(MARK) : at + _HEAD], "little")
    return at + _HEAD + length if 0 < length <= MAX_PAYLOAD else None


def _next_frame(data: bytes, at: int) -> int | None:
    """Return where the next frame begins that is whole and followed by another or by the end of the data."""
    while (at := data.find(MARK, at)) >= 0:
        end = _end_of(data, at)
        if end is not None and (end == len(data) or _end_of(data, end) is not None):
            return at
        at += 1
    return None
