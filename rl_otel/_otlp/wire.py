"""The protobuf wire format: the few shapes that OTLP uses, and a reader for short answers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

_SHORT: Final = tuple(bytes((n,)) for n in range(128))
_FIXED: Final = {1: 8, 5: 4}


def varint(number: int) -> bytes:
    """Return a non-negative integer below 2**64 as a varint."""
    if number < 128:
        return _SHORT[number]
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    written = bytearray()
    while number >= 128:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)


def sized(content: bytes) -> bytes:
    """Return `content` with its length in front."""
    return varint(len(content)) + content


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: number, then an int for a varint or the bytes of anything else.

    Raises:
        ValueError: it is no protobuf message.
    """
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        wire = key & 7
        if wire == 0:
            number, at = _read_varint(message, at)
            yield key >> 3, number
            continue
        if wire == 2:
            length, at = _read_varint(message, at)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise ValueError(f"no protobuf: wire type {wire}")
        if at + length > len(message):
            raise ValueError("no protobuf: it ends inside a field")
        yield key >> 3, message[at : at + length]
        at += length


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("no protobuf: it ends inside a number")
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & (2**64 - 1), at
    raise ValueError("no protobuf: a number of more than ten bytes")


double: Final = struct.Struct("<d").pack
fixed32: Final = struct.Struct("<I").pack
fixed64: Final = struct.Struct("<Q").pack
