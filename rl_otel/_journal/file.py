"""The file that a journal is written to. It closes itself, also when Python ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import Final

_APART: Final = 512  # descriptors of a journal begin here


class File:
    """An open segment. It closes with the last thread that is inside a write to it, however late that is.

    Closed earlier, its number might be that of another file of the host by the time the thread writes.
    """

    __slots__ = ("before", "descriptor", "segment")

    def __init__(self, descriptor: int, segment: int, before: int = 0) -> None:
        self.descriptor = descriptor
        self.segment = segment
        self.before = before  # spans that had ended when it began

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        try:
            if self.descriptor >= 0:
                close(self.descriptor)
        except (OSError, AttributeError):
            pass  # the host has closed everything, as daemons do, or its exception struck as this was made


NOWHERE: Final = File(-1, -1)  # a write to it fails, and takes the way of all failed writes


def set_apart(descriptor: int) -> int:
    """Return the descriptor under a high number: a host that closes all it knows and opens anew must not get ours."""
    try:
        apart = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _APART)
    except OSError:
        return descriptor  # a process of few descriptors
    os.close(descriptor)
    return apart
