"""How records lie in a file: two marker bytes, the payload's length and checksum, the payload."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final
from zlib import crc32

# 0xC1 is the one byte that msgpack never begins a value with, so a reader can look for the next frame.
MARK: Final = b"\xc1R"
MAX_PAYLOAD: Final = 64 << 20
# Each mark in garbage may promise a long frame: when so many bytes have been looked at in vain, only short ones count.
_IN_VAIN: Final = 4 * MAX_PAYLOAD
_SHORT: Final = 4096  # bytes
_LOOK: Final = 256  # bytes that could be summed while a mark is looked at
_HEAD: Final = Struct("<2sII")  # the mark, the payload's length, its CRC-32
head: Final = _HEAD.pack


def frame(payload: bytes) -> bytes:
    """Return `payload` as it is written to a journal."""
    return head(MARK, len(payload), crc32(payload)) + payload


def frame_size(payload: bytes) -> int:
    """Return how many bytes `payload` takes in a journal."""
    return _HEAD.size + len(payload)


def payload_of(data: bytes) -> bytes | None:
    """Return the payload of a frame, None where `data` is not exactly one."""
    if len(data) < _HEAD.size:
        return None
    mark, length, check = _HEAD.unpack_from(data)
    payload = data[_HEAD.size :]
    return payload if mark == MARK and length == len(payload) and crc32(payload) == check else None


class Scan:
    """The payloads in a journal's bytes; what is no whole frame is passed over.

    Args:
        offset: where in the file the first bytes lie that it is fed.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset  # behind the last frame that was found
        self._data = b""
        self._began = offset  # where in the file `_data` begins
        self._in_vain = 0  # bytes of which no payload came

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the payloads that `data`, read from behind the last, makes whole."""
        data = self._data = self._data + data
        at, unsure = 0, None  # the first frame that may only be not all here yet
        while (at := data.find(MARK, at)) >= 0:
            begin = at + _HEAD.size
            _, length, check = _HEAD.unpack_from(data, at) if begin <= len(data) else (MARK, 0, 0)
            end = begin + length
            if end > len(data):
                # Torn, or still being written. Behind a torn one there are others; its length tells nothing.
                unsure = at if unsure is None and length <= self._longest else unsure
            elif 0 < length <= self._longest:
                if crc32(payload := data[begin:end]) == check:
                    self.offset = self._began + end
                    yield payload
                    at, unsure = end, None
                    continue
                self._in_vain += length
            self._in_vain += _LOOK
            at += len(MARK)
        self._keep(unsure)

    @property
    def _longest(self) -> int:
        return MAX_PAYLOAD if self._in_vain < _IN_VAIN else _SHORT

    def _keep(self, unsure: int | None) -> None:
        """Keep what the next bytes can complete: a frame, or the mark of one."""
        cut = unsure if unsure is not None else max(len(self._data) - len(MARK) + 1, self.offset - self._began)
        self._data, self._began = self._data[cut:], self._began + cut
