"""Metrics in the run folder: a line of OTLP JSON for each export, in two files of a bounded size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rl_otel._journal import MODE, PRIVATE, make_folder
from rl_otel._kinds import JSON
from rl_otel._safety import pass_on, say

SUFFIX: Final = ".metrics.jsonl"
EARLIER: Final = ".metrics.1.jsonl"
SIZE: Final = 16 << 20  # bytes, after which a file becomes the earlier one


class File:
    """The outlet to the run folder.

    Args:
        base: what the names of all files of the process begin with.
    """

    protocol = JSON

    def __init__(self, base: Path) -> None:
        self._path = base.with_name(base.name + SUFFIX)
        self._earlier = base.with_name(base.name + EARLIER)

    def send(self, body: bytes, points: int, timeout: float) -> bool:
        """Append a line; what cannot be written is left out, for the next one tells the same and more."""
        try:
            make_folder(self._path.parent)
            if self._path.exists() and self._path.stat().st_size >= SIZE:
                self._path.replace(self._earlier)
            self._append(body + b"\n")
        except OSError as error:
            pass_on(error)
            say("journal write", "rl_otel: cannot write metrics to %s: %s", self._path, error)
        return True

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def abandon(self) -> None:
        """Do nothing, for the same reason."""

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | PRIVATE, MODE)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, line) < len(line):  # a full disk
                os.ftruncate(descriptor, before)
        finally:
            os.close(descriptor)
