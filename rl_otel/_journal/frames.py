"""How records lie in a file: two marker bytes, the payload's length and checksum, the payload."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple
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
HEAD: Final = _HEAD.size  # bytes in front of a payload


def frame(payload: bytes) -> bytes:
    """Return `payload` as it is written to a journal."""
    return head(MARK, len(payload), crc32(payload)) + payload


def frame_length(data: bytes, at: int) -> int:
    """Return how many bytes the frame at a place of `data` takes, as its head says; 0 where there is none."""
    if at + _HEAD.size > len(data):
        return 0
    mark, length, _ = _HEAD.unpack_from(data, at)
    return _HEAD.size + length if mark == MARK and 0 < length <= MAX_PAYLOAD else 0


def payload_at(data: bytes, at: int) -> bytes | None:
    """Return the payload of the frame at a place of `data`, None where there is no whole one."""
    length = frame_length(data, at)
    payload = data[at + _HEAD.size : at + length]
    whole = length > 0 and len(payload) == length - _HEAD.size
    return payload if whole and crc32(payload) == _HEAD.unpack_from(data, at)[2] else None


class Frames(NamedTuple):
    """Payloads, and where the frame of each begins."""

    payloads: list[bytes]
    begins: list[int]


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

    def feed(self, data: bytes) -> Frames:
        """Return the frames that `data`, read from behind the last, makes whole."""
        data = self._data = self._data + data if self._data else data
        found = Frames([], [])
        at, unsure = self._row(0, found), None  # the first frame that may only be not all here yet
        while (at := data.find(MARK, at)) >= 0:
            begin = at + _HEAD.size
            _, length, check = _HEAD.unpack_from(data, at) if begin <= len(data) else (MARK, 0, 0)
            end = begin + length
            if end > len(data):
                # Torn, or still being written. Behind a torn one there are others; its length tells nothing.
                unsure = at if unsure is None and length <= self._longest else unsure
            elif 0 < length <= self._longest:
                if crc32(data[begin:end]) == check:
                    at, unsure = self._row(at, found), None
                    continue
                self._in_vain += length
            self._in_vain += _LOOK
            at += len(MARK)
        self._keep(unsure)
        return found

    def _row(self, at: int, found: Frames) -> int:
        """Find the frames that follow one another from `at` on, as nearly all do; return where the first does not."""
        data, began, head, longest = self._data, self._began, _HEAD.size, self._longest
        unpack, sum_of, last = _HEAD.unpack_from, crc32, len(self._data) - _HEAD.size
        add, add_begin = found.payloads.append, found.begins.append
        while at < last:
            mark, length, check = unpack(data, at)
            end = at + head + length
            if mark != MARK or not 0 < length <= longest or end > len(data):
                break
            payload = data[at + head : end]
            if sum_of(payload) != check:
                self._in_vain += length
                break
            add(payload)
            add_begin(began + at)
            at = end
        if found.begins and began + at > self.offset:
            self.offset = began + at
        return at

    @property
    def _longest(self) -> int:
        return MAX_PAYLOAD if self._in_vain < _IN_VAIN else _SHORT

    def _keep(self, unsure: int | None) -> None:
        """Keep what the next bytes can complete: a frame, or the mark of one."""
        cut = unsure if unsure is not None else max(len(self._data) - len(MARK) + 1, self.offset - self._began)
        self._data, self._began = self._data[cut:], self._began + cut
