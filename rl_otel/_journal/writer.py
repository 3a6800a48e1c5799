"""Writes a journal: a plain append when a span ends, so that a kill -9 loses nothing that ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from rl_otel import _record, _values
from rl_otel._journal.folder import journal_path, make_folder
from rl_otel._journal.frames import frame
from rl_otel._safety import say

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class Tally:
    """A count that any thread may raise without a lock: `next` of `itertools.count` is one operation."""

    def __init__(self) -> None:
        self._next = count().__next__
        self._lock = threading.Lock()
        self._read = 0  # reading draws a number too

    def add(self) -> None:
        """Count one."""
        self._next()

    @property
    def total(self) -> int:
        """How many were counted."""
        with self._lock:
            self._read += 1
            return self._next() - self._read + 1


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
        self._opening = threading.Lock()
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
        if not self.append(span):
            self._lost.add()

    def append(self, record: _record.Record) -> bool:
        """Write `record`; False where it could not be written."""
        try:
            data = frame(_record.encode(record))
        except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
            data = frame(_record.encode(cleaned(record)))
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._open()
        try:
            written = os.write(descriptor, data)
        except OSError as error:
            return self._failed(error)
        return written == len(data) or self._short(descriptor, data[written:])

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
                self._descriptor = -1  # a write to it fails and is counted
                try:
                    make_folder(self.folder)
                    self._descriptor = os.open(self.path, _FLAGS, 0o600)
                    os.write(self._descriptor, frame(_record.encode(cleaned(self._process()))))
                except OSError as error:
                    say("journal open", "rl_otel: cannot write to the run folder %s: %s", self.folder, error)
            return self._descriptor

    def _failed(self, error: OSError) -> bool:
        if not self._closed and self._descriptor != -1:
            say("journal write", "rl_otel: cannot write to %s, spans are lost (and counted): %s", self.path, error)
        return False

    def _short(self, descriptor: int, rest: bytes) -> bool:
        # A nearly full disk takes a part. Behind another thread's record the rest would be garbage, which readers
        # pass over; so finishing is worth the try and harms nobody.
        try:
            if os.write(descriptor, rest) == len(rest):
                return True
            error = OSError("short write")
        except OSError as failed:
            error = failed
        return self._failed(error)


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
    return _values.plain(value) if value is not None else ""
