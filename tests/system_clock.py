"""The system's clocks as some processes see them, which a test puts forward: waits and times follow.

Such a process is started with `environment(file)`; `forward(file, seconds)` moves its time. Between two moves that goes
on as everybody's does.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from tests import compiled

FILE = "RL_OTEL_TEST_CLOCK"
NAME = "libclock.so"
SECOND = 1_000_000_000


def environment(file: Path, seconds: float = 0.0) -> dict[str, str]:
    """Return what processes need to have clocks of their own, which are `seconds` ahead of the machine's."""
    file.write_bytes(struct.pack("q", round(seconds * SECOND)))
    return {FILE: str(file), "LD_PRELOAD": str(compiled.folder("clock.c", NAME) / NAME)}


def forward(file: Path, seconds: float) -> None:
    """Let so much time have gone by, at once, for all who have that clock."""
    (ahead,) = struct.unpack("q", file.read_bytes())
    with file.open("r+b", buffering=0) as there:  # in one write, and never shorter: they have it mapped
        there.write(struct.pack("q", ahead + round(seconds * SECOND)))


def mine() -> Path:
    """Return the file of the clock that this process has."""
    return Path(os.environ[FILE])
