"""Trace and span ids: from the operating system's entropy, or derived from what several processes know.

The `random` module is never touched: a seeded run keeps its numbers, and equal seeds do not make equal ids.
"""

from __future__ import annotations

import hashlib
import os
from struct import Struct
from typing import Final

_BATCH: Final = Struct("8s" * 512)
_ZERO: Final = bytes(8)

_pool: list[bytes] = []


def span_id() -> bytes:
    """Return eight random bytes, never all zero."""
    try:
        return _pool.pop()
    except IndexError:
        _refill()
        return span_id()


def trace_id() -> bytes:
    """Return sixteen random bytes, never all zero."""
    return span_id() + span_id()


def _refill() -> None:
    # One system call for many ids: urandom alone costs more than all the rest of a span's id.
    data = os.urandom(_BATCH.size)
    while _ZERO in data:
        data = os.urandom(_BATCH.size)
    _pool.extend(_BATCH.unpack(data))


def derive(*what: str | int) -> tuple[bytes, bytes]:
    """Return the trace id and root span id that every process derives from the same `what`."""
    digest = hashlib.blake2b("\x1f".join(map(str, what)).encode("utf-8", "replace"), digest_size=24).digest()
    return digest[:16], digest[16:]


def forked() -> None:
    """Drop the ids that a forked child shares with its parent."""
    _pool.clear()


os.register_at_fork(after_in_child=forked)
