"""The journal: one small append-only file a process, which everything else reads.

    <run folder>/<host>-<pid>-<instance>.<segment>.journal

A file is a row of frames, and begins with a `Process` record. Frames can be found again after garbage, so a torn
write costs the record it tore and nothing else. `docs/journal.md` describes it for readers.
"""

from __future__ import annotations

from rl_otel._journal.folder import SUFFIX, journals, make_folder
from rl_otel._journal.frames import frame
from rl_otel._journal.reader import read
from rl_otel._journal.writer import Writer

__all__ = ["SUFFIX", "Writer", "frame", "journals", "make_folder", "read"]
