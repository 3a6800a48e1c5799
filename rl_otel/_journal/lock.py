"""Who delivers a journal: one at a time, the living process or whoever comes after it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rl_otel._journal.folder import LOCK, MODE, PRIVATE
from rl_otel._safety import pass_on


class Lock:
    """The right to deliver the journal of one process; free again when its holder is gone, however it went.

    Args:
        base: what the names of the process's files begin with.
    """

    def __init__(self, base: Path) -> None:
        self.path = base.with_name(base.name + LOCK)
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock without waiting; False where somebody else has it.

        Where files cannot be locked, or nothing can be written, nobody is kept out.
        """
        while self._descriptor is None:
            try:
                descriptor = os.open(self.path, os.O_RDWR | PRIVATE, MODE)
            except OSError as error:
                pass_on(error)
                return True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            except OSError:
                pass
            if self._is_there(descriptor):
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        return True

    @property
    def held(self) -> bool:
        """Whether it was really taken, not only given up as hopeless."""
        return self._descriptor is not None

    def release(self) -> None:
        """Let go of the lock. In a forked child too: the parent still has it."""
        # Never unlocked, only closed: what a child inherits is the parent's lock itself.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _is_there(self, descriptor: int) -> bool:
        """Whether the file is still the one of that name: a holder may have removed it before it let go."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))  # noqa: PTH116 - beside fstat
        except OSError:
            return False
