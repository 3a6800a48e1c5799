"""Whether a process that wrote a journal still runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_otel import semconv

if TYPE_CHECKING:
    from rl_otel import _record

_SECOND: Final = 1_000_000_000

PARENT: Final = 1  # fields of `stat`: the number of the process that started it
STARTED: Final = 19  # and when that was, in ticks since the system began


def is_here(process: _record.Process) -> bool:
    """Return whether a process ran on this host."""
    return process.resource.get(semconv.HOST_NAME) == socket.gethostname()


def lives(process: _record.Process) -> bool:
    """Return whether a process still runs on this host; of another host nothing is known, and the answer is no."""
    pid = process.resource.get(semconv.PROCESS_PID)
    return is_here(process) and isinstance(pid, int) and runs_since(pid, process.time)


def runs_since(pid: int, time: int) -> bool:
    """Return whether the process that had this number at a time (ns since the epoch) still runs on this host."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is somebody else's, and there
    # One that has ended keeps its number until its parent has asked how.
    if stat(pid)[:1] in (["Z"], ["X"]):
        return False
    started = started_at(pid)
    # A number that was given to another process since began after ours did.
    return started is None or started <= time + _SECOND


def started_at(pid: int) -> int | None:
    """Return when a process started, in ns since the epoch; None where the system does not tell."""
    try:
        ticks = int(stat(pid)[STARTED])
        booted = int(Path("/proc/stat").read_text().partition("btime ")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return booted * _SECOND + ticks * _SECOND // os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on; nothing where it does not tell."""
    try:
        # The program's name, in brackets, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return []
