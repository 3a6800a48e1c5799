"""Writes a journal: a plain append when a span ends, so that a kill -9 loses nothing that ended."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from rl_otel import _record, _values
from rl_otel._journal.folder import journal_path, make_folder
from rl_otel._journal.frames import MAX_PAYLOAD, frame
from rl_otel._safety import say

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class Tally:
    """A count that any thread may raise without a lock: `next` of `itertools.count` is one operation."""

    def __init__(self) -> None:
        self.add = count().__next__  # counts one
        self._lock = threading.RLock()
        self._read = 0  # reading draws a number too

    @property
    def total(self) -> int:
        """How many were counted."""
        with self._lock:
            self._read += 1
            return self.add() - self._read + 1


class Writer:
    """The journal of this process. The file is made with the first record: who records nothing leaves nothing.

    Threads may append at once: each record is one `write` to a file opened for appending, which needs no lock.
    """

    def __init__(self, folder: Path, host: str, pid: int, instance: str, process: Callable[[], _record.Process]):
        self.folder = folder
        self.path = journal_path(folder, host, pid, instance, 0)
        self._ended = Tally()
        self._lost = Tally()
        self._process = process
        self._descriptor: int | None = None
        self._opening = threading.RLock()  # a signal handler may open spans as well
        self._closed = False

    @property
    def written(self) -> int:
        """How many spans are in the journal."""
        return self._ended.total - self._lost.total

    @property
    def lost(self) -> int:
        """How many spans could not be written."""
        return self._lost.total

    def end(self, span: _record.End | _record.Foreign) -> None:
        """Write a span that has ended, and count it."""
        self._ended.add()
        written = False
        try:
            written = self.append(span)
        finally:
            if not written:
                self._lost.add()

    def append(self, record: _record.Record) -> bool:
        """Write `record`; False where it could not be written."""
        try:
            payload = _record.encode(record)
        except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
            payload = _record.encode(cleaned(record))
        if len(payload) > MAX_PAYLOAD:
            return False
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._open()
        return self._write(descriptor, frame(payload))

    def close(self) -> None:
        """Close the file; what comes later is counted as lost."""
        with self._opening:
            if self._lost.total and self._descriptor is not None:
                self.append(_record.Lost({"journal": self._lost.total}))
            self.abandon()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file."""
        self._closed = True
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor is not None and descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> int:
        with self._opening:
            if self._descriptor is None:
                try:
                    self._descriptor = self._begun()
                except OSError as error:
                    self._descriptor = -1  # a write to it fails and is counted
                    say("journal open", "rl_otel: cannot write to the run folder %s: %s", self.folder, error)
            return self._descriptor

    def _begun(self) -> int:
        """Return the file with its first record in it: only then may other threads see it."""
        make_folder(self.folder)
        descriptor = os.open(self.path, _FLAGS, 0o600)
        self._write(descriptor, frame(_record.encode(cleaned(self._process()))))
        return descriptor

    def _write(self, descriptor: int, data: bytes) -> bool:
        reason: object = os.strerror(errno.ENOSPC)
        try:
            written = os.write(descriptor, data)
            if written < len(data):
                # A nearly full disk takes a part. Behind another thread's record the rest would be garbage, which
                # readers pass over; so finishing is worth the try and harms nobody.
                written += os.write(descriptor, data[written:])
            if written == len(data):
                return True
        except OSError as error:
            reason = error
        if not self._closed and descriptor != -1:
            say("journal write", "rl_otel: cannot write to %s, spans are lost (and counted): %s", self.path, reason)
        return False


def cleaned(record: Any) -> Any:
    """Return `record` with every string valid and every number one that a back end knows."""
    fields = {name: _clean(getattr(record, name)) for name in record.__struct_fields__}
    return type(record)(**fields)


def _clean(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return {_values.text(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], _record.Link | _record.Event):
        return [cleaned(item) for item in value]
    try:
        return _values.plain(value) if value is not None else ""
    except Exception:  # whatever it is, the rest of its record is none the worse
        return f"<{type(value).__qualname__}>"
