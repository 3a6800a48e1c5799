"""The journal: append-only files of each process, which everything else reads.

    <run folder>/<host>-<pid>-<instance>.<segment>.journal

A file is a row of frames, and begins with a `Process` record. Frames can be found again after garbage, so a torn
write costs the record it tore and nothing else. `docs/journal.md` describes it for readers.

    writer, overflow    the process that records: on disk, or in memory while no disk takes anything
    reader, cursor      one file, or all segments of a process as they grow
    place               where a record is
    sent, lock          what was delivered, and who may deliver
    room                how much may lie there where it only serves the sending
"""

from __future__ import annotations

from rl_otel._journal.cursor import Cursor
from rl_otel._journal.folder import (
    MODE,
    PRIVATE,
    SUFFIX,
    base_of,
    base_path,
    journals,
    make_folder,
    remove,
    segment_path,
    segments,
)
from rl_otel._journal.frames import frame
from rl_otel._journal.lock import Lock
from rl_otel._journal.overflow import Overflow
from rl_otel._journal.place import Place, offset_of, place_of, segment_of
from rl_otel._journal.reader import CHUNK, Batch, decoded, payloads, read
from rl_otel._journal.room import Room
from rl_otel._journal.sent import ALL, Sent
from rl_otel._journal.writer import Writer

__all__ = [
    "ALL",
    "CHUNK",
    "MODE",
    "PRIVATE",
    "SUFFIX",
    "Batch",
    "Cursor",
    "Lock",
    "Overflow",
    "Place",
    "Room",
    "Sent",
    "Writer",
    "base_of",
    "base_path",
    "decoded",
    "frame",
    "journals",
    "make_folder",
    "offset_of",
    "payloads",
    "place_of",
    "read",
    "remove",
    "segment_of",
    "segment_path",
    "segments",
]
