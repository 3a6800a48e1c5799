"""`make demo-gpu`: the demo as on a machine with a GPU, where there is none.

    python -m tests.demo_gpu

torch.cuda is the tests' model of it, fed with the sizes of the demo's own tensors while they live; the driver's library
is the tests' stand-in behind the real pynvml; the device takes as long as the CPU does. rl_otel and the demo are real.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tests import nvml
from tests.cuda import Cuda, Device, Event, installed

SCALE = 1024  # bytes of the device for one of the CPU: the demo's policy is small
DRIVER = 512 << 20  # bytes that a process takes of a device before it allocates anything
EVERY = 0.2  # s between two lines of the driver's script

SAID = f"""\
No GPU is used. torch.cuda is the tests' model of it: it counts the demo's own tensors, a byte of theirs as {SCALE}, and
works as fast as the CPU. The driver is the tests' stand-in for NVML. rl_otel and the demo are as they are.
"""


class LiveEvent(Event):
    """Reached at once: the device is through with what the CPU is through with."""

    def record(self, stream: int) -> None:
        self._cuda.devices[stream].clock = time.perf_counter()
        super().record(stream)
        self._cuda.run(stream)


class LiveCuda(Cuda):
    """A device that is as fast as the CPU."""

    def Event(self, *, enable_timing: bool = False) -> Event:  # noqa: N802 - as torch spells it
        return LiveEvent(self, timed=enable_timing)


class Tensors(TorchDispatchMode):
    """Counts each tensor's storage from the operation that made it until it is gone, and the time of operations."""

    def __init__(self, cuda: Cuda) -> None:
        super().__init__()
        self.busy = 0.0  # s
        self._cuda = cuda
        self._live: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = time.perf_counter()
        made = func(*args, **(kwargs or {}))
        self.busy += time.perf_counter() - began
        for each in tree_iter(made):
            if isinstance(each, torch.Tensor):
                self._count(each.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes() * SCALE
        if key not in self._live:
            self._live.add(key)
            self._cuda.allocate(size)
            weakref.finalize(storage, self._gone, key, size).atexit = False

    def _gone(self, key: int, size: int) -> None:
        self._live.discard(key)
        self._cuda.free(size)


def drive(script: nvml.Script, cuda: Cuda, tensors: Tensors) -> None:
    """Let the driver tell what the device does, as long as the process lives."""
    device, busy, then = nvml.Device(nvml.uuid(0)), 0.0, time.perf_counter()
    while True:
        now = time.perf_counter()
        device.used = DRIVER + cuda.devices[0].reserved.current
        device.utilization = round(100 * min(1.0, (tensors.busy - busy) / max(now - then, 1e-9)))
        script.set(device)
        busy, then = tensors.busy, now
        time.sleep(EVERY)


def main() -> None:
    """Run the demo on such a machine."""
    sys.stdout.write(SAID + "\n")
    script = nvml.Script(Path(tempfile.mkdtemp()) / "nvml")
    os.environ[nvml.SCRIPT] = str(script.path)
    nvml.library()
    examples = Path(__file__).parent.parent / "examples"
    device = LiveCuda(Device(uuid=nvml.uuid(0)))
    with installed(device, alone=False) as cuda, Tensors(cuda) as tensors:
        script.set(nvml.Device(nvml.uuid(0)))
        threading.Thread(target=drive, args=(script, cuda, tensors), daemon=True).start()
        sys.path.insert(0, str(examples))  # as Python does for a script
        runpy.run_path(str(examples / "grpo.py"), run_name="__main__")


if __name__ == "__main__":
    main()
