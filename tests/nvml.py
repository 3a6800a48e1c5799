"""A driver library whose devices do what a test says, behind the real pynvml of nvidia-ml-py.

It is compiled from `standins/nvml.c` and loaded before pynvml looks for the driver's: here once for all tests, in
other processes through LD_LIBRARY_PATH.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import astuple, dataclass
from functools import cache
from typing import TYPE_CHECKING

from tests import compiled

if TYPE_CHECKING:
    from pathlib import Path

NAME = "libnvidia-ml.so.1"
SCRIPT = "RL_OTEL_TEST_NVML"
GIB = 1 << 30

NOT_SUPPORTED, LOST = 3, 15  # as NVML numbers its errors


def uuid(number: int) -> str:
    """Return the UUID of a device; the first six digits tell devices apart."""
    return f"GPU-{number:06x}00-1111-2222-3333-444444444444"


@dataclass
class Device:
    """A line of the script."""

    uuid: str = uuid(0)
    name: str = "H200"
    total: int = 140 * GIB
    used: int = 10 * GIB
    utilization: int = 50  # per cent
    power: int = 300_000  # mW
    memory_error: int = 0
    utilization_error: int = 0
    power_error: int = 0
    name_error: int = 0
    uuid_error: int = 0
    wait: int = 0  # us that each call takes


def folder() -> Path:
    """Return where the library lies."""
    return compiled.folder("nvml.c", NAME)


@cache
def library() -> ctypes.CDLL:
    """Return the library, loaded into this process: who asks for the driver's by its name gets it from now on."""
    loaded = ctypes.CDLL(str(folder() / NAME), mode=ctypes.RTLD_GLOBAL)
    loaded.standin_calls.restype = ctypes.c_uint
    return loaded


def calls(function: str) -> int:
    """Return how often a function was called: init, shutdown, memory, utilization or power."""
    return int(library().standin_calls(function.encode()))


class Script:
    """What the devices do, from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.devices: list[Device] = []

    def set(self, *devices: Device) -> None:
        """Put devices in place of all that were there."""
        self.devices = list(devices)
        self.write()

    def write(self) -> None:
        """Let what was changed of the devices be so."""
        lines = ("\t".join(map(str, astuple(device))) + "\n" for device in self.devices)
        new = self.path.with_suffix(".new")
        new.write_text("".join(lines))
        new.replace(self.path)  # at once: other processes read it

    @property
    def environment(self) -> dict[str, str]:
        """What another process needs to see the same devices."""
        found = os.environ.get("LD_LIBRARY_PATH", "")
        return {SCRIPT: str(self.path), "LD_LIBRARY_PATH": f"{folder()}:{found}" if found else str(folder())}
