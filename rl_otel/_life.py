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


def is_here(process: _record.Process) -> bool:
    """Return whether a process ran on this host."""
    return process.resource.get(semconv.HOST_NAME) == socket.gethostname()


def lives(process: _record.Process) -> bool:
    """Return whether a process still runs on this host; of another host nothing is known, and the answer is no."""
    pid = process.resource.get(semconv.PROCESS_PID)
    if not is_here(process) or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is somebody else's, and there
    started = started_at(pid)
    # A number that was given to another process since began after ours did.
    return started is None or started <= process.time + _SECOND


def started_at(pid: int) -> int | None:
    """Return when a process started, in ns since the epoch; None where the system does not tell."""
    try:
        # The program's name, in brackets, may hold anything; the start is the 20th field after it.
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        booted = int(Path("/proc/stat").read_text().partition("btime ")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return booted * _SECOND + ticks * _SECOND // os.sysconf("SC_CLK_TCK")
