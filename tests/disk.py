"""A disk that is full at will, in place of `os.write`."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Disk:
    """What is left on it: `space` bytes, or None for no end."""

    def __init__(self) -> None:
        self.space: int | None = None
        self._write = os.write

    def write(self, descriptor: int, data: bytes) -> int:
        """Write as much as there is space for, as `os.write` does."""
        if self.space is None or descriptor < 0:
            return self._write(descriptor, data)
        if self.space == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, data[: self.space])
        self.space -= written
        return written


@contextlib.contextmanager
def disk() -> Iterator[Disk]:
    """Let `os.write` go to a `Disk` meanwhile."""
    made = Disk()
    with mock.patch("os.write", made.write):
        yield made
