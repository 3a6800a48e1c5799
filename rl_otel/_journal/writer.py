"""Writes a journal: a plain append when a span ends, so that a kill -9 loses nothing that ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final
from zlib import crc32

from rl_otel import _record
from rl_otel._journal.cleaning import cleaned
from rl_otel._journal.file import NOWHERE, File, set_apart
from rl_otel._journal.folder import MODE, PRIVATE, base_path, make_folder, segment_path, segments
from rl_otel._journal.frames import MARK, MAX_PAYLOAD, frame, head
from rl_otel._journal.overflow import LIMIT, Overflow
from rl_otel._journal.reader import batches, chunks
from rl_otel._safety import pass_on, say

_TAIL: Final = 1 << 18  # bytes of a segment that are looked through for a span
_SPANS: Final = (_record.End, _record.Foreign)
SEGMENT: Final = 16 << 20  # bytes, after which another segment begins


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

    Threads may append at once: each record is one `write` to a file opened for appending, which needs no lock. A full
    segment is followed by another. While no disk takes anything, segments are in memory.
    """

    def __init__(self, folder: Path, host: str, pid: int, instance: str, process: Callable[[], _record.Process]):
        self.folder = folder
        self.base = base_path(folder, host, pid, instance)
        self.overflow = Overflow()
        self._ended = Tally()
        self._count_ended = self._ended.add
        self._lost = Tally()
        self._vanished = 0  # spans in segments that somebody removed while they were written
        self._process = process
        self._size = 0  # bytes of this segment; less where two threads have counted at once
        self._file: File | None = None
        self._files: dict[int, File] = {}  # by segment: those that are being begun, and the current one
        self._changing = threading.RLock()  # a signal handler may open spans as well
        self._turning = threading.Lock()
        self._closed = False

    @property
    def ended(self) -> int:
        """How many spans have ended, lost ones too."""
        return self._ended.total

    @property
    def written(self) -> int:
        """How many spans are in the journal."""
        return self._ended.total - self.lost

    @property
    def lost(self) -> int:
        """How many spans could not be written."""
        return self._lost.total + self._vanished

    def end(self, span: _record.End | _record.Foreign) -> None:
        """Write a span that has ended, and count it: once, also where an exception of the host strikes meanwhile."""
        counted = False
        try:
            written = self.append(span)
            counted = True
            self._count_ended()
            if not written:
                self._lost.add()
        except BaseException:
            if not counted:
                self._end_again(span)
            raise

    def _end_again(self, span: _record.End | _record.Foreign) -> None:
        written = False
        try:
            written = self.has(span.span) or self.append(span)
        finally:
            self._count_ended()
            if not written:
                self._lost.add()

    def has(self, span: bytes) -> bool:
        """Whether the end of the span of that id is among what was written last."""
        try:
            records = (record for tail in self._tails() for batch in batches(tail, 0) for record in batch.records)
            return any(isinstance(record, _SPANS) and record.span == span for record in records)
        except OSError as error:
            pass_on(error)
            return False

    def _tails(self) -> Iterator[Iterable[bytes]]:
        for number in self.overflow.numbers[-2:]:
            yield [self.overflow.read(number) or b""]
        for number in segments(self.base)[-2:]:
            path = segment_path(self.base, number)
            yield chunks(path, max(path.stat().st_size - _TAIL, 0))

    def miss(self) -> None:
        """Count a span that failed before there was anything to write."""
        self._ended.add()
        self._lost.add()

    def append(self, record: _record.Record) -> bool:
        """Write `record`; False where it could not be written."""
        try:
            payload = _record.encode(record)
        except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
            pass_on(error)
            payload = _record.encode(cleaned(record))
        length = len(payload)
        if length > MAX_PAYLOAD:
            return False
        data = head(MARK, length, crc32(payload)) + payload  # `frame`, without the call
        file = self._file or self._open()
        try:
            written = os.write(file.descriptor, data)
        except OSError as error:
            pass_on(error)
            return self._spill(file, data, error)
        if written < len(data):
            return self._finish(file, data, written)
        self._size += written
        if self._size >= SEGMENT:
            self._turn()
        return True

    def tend(self) -> None:
        """Give a sign of life, and write what waits in memory; now and then, on a thread of ours."""
        file = self._file
        if file is NOWHERE:
            self.save()
        elif file is not None:
            self._look_after(file)

    def _look_after(self, file: File) -> None:
        try:
            os.utime(file.descriptor)
            removed = os.fstat(file.descriptor).st_nlink == 0
        except OSError:
            return  # closed behind our back: the next record finds out
        if removed:
            self._begin_anew(file)

    def _begin_anew(self, file: File) -> None:
        """Go on in another segment, for somebody has removed the one we write to."""
        with self._changing:
            if self._file is not file:
                return
            vanished = self._ended.total - file.before
            self._vanished += vanished
            say("removed", "rl_otel: %s was removed during the run, and %d spans with it", self.folder, vanished)
            try:
                make_folder(self.folder)
                self._size = 0
                self._change(file, self._begun(file.segment + 1))
            except OSError as error:
                pass_on(error)
                self._to_memory(file.segment + 1, f"the run folder {self.folder}", error)

    def save(self) -> None:
        """Try to write what waits in memory."""
        with self._changing:
            if self._file is not NOWHERE or self._closed:
                return
            try:
                self._write_memory()
            except OSError as error:
                pass_on(error)
                return
            say("journal back", "rl_otel: %s can be written again", self.folder)

    def close(self) -> None:
        """Close the file; what comes later is counted as lost."""
        with self._changing:
            self.tend()
            if self.lost and self._file is not None and self._file is not NOWHERE:
                self.append(_record.Lost({"journal": self.lost}))
            self.abandon()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's file."""
        self._closed = True
        self._file = NOWHERE
        self._files.clear()

    # --- files --------------------------------------------------------------------------------------------------------

    def _open(self) -> File:
        with self._changing:
            if self._file is None:
                try:
                    make_folder(self.folder)
                    self._change(None, self._begun(0))
                except OSError as error:
                    pass_on(error)
                    self._to_memory(0, f"the run folder {self.folder}", error)
            return self._file or NOWHERE

    def _finish(self, file: File, data: bytes, written: int) -> bool:
        """Write the rest of a frame, of which a nearly full disk took a part."""
        # Behind another thread's record the rest is garbage, which readers pass over: the try harms nobody.
        try:
            written += os.write(file.descriptor, data[written:])
        except OSError as error:
            pass_on(error)
            return self._spill(file, data, error)
        return written == len(data) or self._spill(file, data, None)

    def _turn(self) -> None:
        """Go on in another segment."""
        if not self._turning.acquire(blocking=False):
            return  # another thread is at it, or a signal handler has interrupted this one there
        try:
            with self._changing:
                file = self._file
                if file is None or file is NOWHERE or self._is_short(file):
                    return
                self._size = 0  # also where no other can be opened: then this one goes on
                self._change(file, self._begun(file.segment + 1))
        except OSError as error:
            pass_on(error)
        finally:
            self._turning.release()

    def _is_short(self, file: File) -> bool:
        # A thread that was held up in counting has written back an old sum.
        self._size = os.fstat(file.descriptor).st_size
        return self._size < SEGMENT

    def _begun(self, segment: int) -> File:
        """Return a segment with its first record in it: only then may other threads see it."""
        return self._filled(segment, self._head())

    def _filled(self, segment: int, data: bytes) -> File:
        # A signal handler that interrupts us here may begin the same segment. Each fills a file that has no name yet;
        # that of the first to finish, which `setdefault` tells in one operation, gets the segment's name.
        new = self.base.with_name(f"{self.base.name}.{os.urandom(4).hex()}.new")
        opened = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_EXCL | PRIVATE, MODE)
        mine = File(set_apart(opened), segment, self._ended.total)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(mine.descriptor, rest) :]
            file = self._files.setdefault(segment, mine)
            if file is mine:
                os.link(new, segment_path(self.base, segment))  # fails where something has that name
        except BaseException:
            if self._files.get(segment) is mine:
                del self._files[segment]
                if os.fstat(mine.descriptor).st_nlink > 1:  # it has the name already
                    segment_path(self.base, segment).unlink()
            raise
        finally:
            new.unlink(missing_ok=True)
        return file

    def _head(self) -> bytes:
        return frame(_record.encode(cleaned(self._process())))

    def _change(self, before: File | None, file: File) -> None:
        if self._file is before:  # else a signal handler has been quicker: closed, or found the disk full
            self._file = file
        for segment in [each for each in self._files if each < file.segment]:
            self._files.pop(segment, None)  # so that it closes

    # --- memory -------------------------------------------------------------------------------------------------------

    def _spill(self, file: File, data: bytes, error: OSError | None) -> bool:
        """Keep in memory what `file` did not take."""
        with self._changing:
            if self._closed:
                return False
            if self._file is not None and self._file is not file:
                return self._finish(self._file, data, 0)  # another thread has moved on meanwhile
            if file is not NOWHERE:
                self._to_memory(file.segment + 1, str(self.base), error or "the disk is full")
            if self.overflow.is_full:
                self.overflow.begin(self.overflow.last + 1, self._head())
            return self.overflow.add(data)

    def _to_memory(self, segment: int, what: str, error: object) -> None:
        self.overflow.begin(segment, self._head())
        self._file = NOWHERE
        say(
            "journal write",
            "rl_otel: cannot write to %s, spans wait in memory (%d MiB at most, what does not fit is counted): %s",
            what,
            LIMIT >> 20,
            error,
        )

    def _write_memory(self) -> None:
        make_folder(self.folder)
        *full, last = self.overflow.numbers
        for segment in full:
            self._filled(segment, self.overflow.read(segment) or b"")
            self.overflow.remove(segment)
        data = self.overflow.read(last) or b""
        file = self._filled(last, data)
        self._size = len(data)
        self._change(NOWHERE, file)
        rest = self.overflow.remove(last)[len(data) :]
        if rest:  # a signal handler has added to it meanwhile
            self._finish(file, rest, 0)
