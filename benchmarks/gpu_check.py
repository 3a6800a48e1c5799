"""Whether what phases say of a GPU is so, on a real one: a JSON of checks, in a minute or two.

    python -m benchmarks.gpu_check

Exit code 0 where all hold, 1 where one does not, 2 where there is no GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch

import rl_otel
from benchmarks.gpu_checks import CHECKS, Check, checked, figure, when_late
from rl_otel.testing import capture

GIB = 1 << 30

#: In a process that sees one device by the beginning of its UUID: what torch calls it, and what the driver does.
CHILD = """
import time, torch, rl_otel
from rl_otel import _runtime
from rl_otel.testing import capture
held = torch.empty(1 << 21, dtype=torch.uint8, device="cuda")
with capture(), rl_otel.step(0), rl_otel.train():
    until = time.monotonic() + 20
    while not (found := _runtime.active.gpu.readings()) and time.monotonic() < until:
        time.sleep(0.01)
    print(torch.cuda.get_device_properties(0).uuid, found[0].hw_id if found else None)
"""


class Real:
    """The first device of this process."""

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        self._cycles = 1e9  # a second, at first
        for _ in range(2):  # the first warms up
            took = self.work(0.2)
            self.finish()
        self._cycles *= 0.2 / took()

    @contextlib.contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Have that many bytes allocated meanwhile."""
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        yield
        del tensor

    def allocated(self) -> int:
        """Return the bytes that are."""
        return torch.cuda.memory_allocated()

    def peak(self) -> int:
        """Return torch's peak."""
        return torch.cuda.max_memory_allocated()

    def uuid(self) -> str:
        """Return torch's name of the device, bare."""
        return str(torch.cuda.get_device_properties(0).uuid).replace("-", "")

    def total(self) -> int:
        """Return what it has, in bytes."""
        return int(torch.cuda.get_device_properties(0).total_memory)

    def empty(self) -> None:
        """Give back what is reserved and not allocated."""
        torch.cuda.empty_cache()

    def work(self, seconds: float) -> Callable[[], float]:
        """Put so much work in order, and do not wait for it; what is returned tells how long it took."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.cuda._sleep(int(seconds * self._cycles))
        end.record()
        return lambda: float(start.elapsed_time(end)) / 1000

    def finish(self) -> None:
        """Wait for all work."""
        torch.cuda.synchronize()


def nothing_waits(device: Real) -> Iterator[Check]:
    """Phases behind a second of work are through at once, and torch sees no call that waits."""
    tensor = torch.zeros(16, device="cuda")

    def launch() -> float:
        device.work(1.0)
        began = time.perf_counter()
        for _ in range(60):
            with rl_otel.train():
                for _ in range(5):
                    tensor.add_(1)
        return time.perf_counter() - began

    without = launch()
    device.finish()
    with capture(), rl_otel.step(0):
        torch.cuda.set_sync_debug_mode("error")
        try:
            within = launch()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        device.finish()
    yield Check("60 launch-bound phases, s", within < 0.5, "well below the 1 s of work", [without, within])


def bound_by_launches(device: Real) -> Iterator[Check]:
    """A loop of small kernels, each phase thousands of them, takes as long with tracing as without."""
    tensor = torch.zeros(16, device="cuda")

    def loop() -> float:
        began = time.perf_counter()
        for _ in range(10):
            with rl_otel.train():
                for _ in range(4000):
                    tensor.add_(1)
        device.finish()
        return time.perf_counter() - began

    loop()
    with_, without = [], []
    for _ in range(5):
        without.append(loop())
        with capture(), rl_otel.step(0):
            with_.append(loop())
    ratio = min(with_) / min(without)
    yield Check("launch-bound loop, with over without", ratio < 1.1, "below 1.1", [ratio, min(with_), min(without)])


def graphs(device: Real) -> Iterator[Check]:
    """A graph is captured while threads of ours ask for times to come; a phase inside it says nothing."""
    tensor = torch.zeros(16, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor.add_(1)
    device.finish()
    graph = torch.cuda.CUDAGraph()
    with capture() as traces, rl_otel.step(0):
        with rl_otel.train():
            device.work(1.5)
        # Not by `torch.cuda.graph`, which waits for the device first: the times shall still be on their way.
        with torch.cuda.stream(side):
            graph.capture_begin()
            with rl_otel.phase("captured"):
                tensor.add_(1)
                time.sleep(0.5)
            graph.capture_end()
        device.finish()
        duration = when_late(traces, "train", "duration")
    tensor.zero_()
    graph.replay()
    device.finish()
    yield Check("a captured graph works", tensor[0].item() == 1.0, 1.0, tensor[0].item())
    yield Check("the time beside it came", duration is not None, "a time", duration)
    yield Check("a phase inside it says nothing", figure(traces.one("captured"), "duration") is None, None, "")


def forks(device: Real) -> Iterator[Check]:
    """A forked child with phases of its own touches no CUDA and ends well; the parent goes on."""
    with device.held(GIB), capture() as traces, rl_otel.step(0), rl_otel.train():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with rl_otel.rollout():
                    pass
                code = int(torch.cuda.is_initialized())
            finally:
                os._exit(code)
        code = os.waitpid(child, 0)[1]
        torch.zeros(1, device="cuda")
    yield Check("exit code of a forked child", code == 0, 0, code)
    yield Check("the parent's peak", figure(traces.one("train"), "memory.allocated.peak") >= GIB, GIB, "")


def by_prefix(device: Real) -> Iterator[Check]:
    """A process that sees the device by the beginning of its UUID has the same one."""
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid[:12]}
    done = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=False)
    yield Check(
        "device by a prefix", done.stdout.split() == [uuid[4:], uuid], [uuid[4:], uuid], done.stdout or done.stderr
    )


def main() -> int:
    """Print the checks, and return the exit code."""
    if not torch.cuda.is_available():
        sys.stderr.write("gpu_check: there is no GPU here that torch can use, so nothing was checked\n")
        return 2
    began = time.monotonic()
    found = checked(Real(), [*CHECKS, nothing_waits, bound_by_launches, graphs, forks, by_prefix])
    told = {
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - began, 1),
        "checks": [asdict(check) for check in found],
    }
    sys.stdout.write(json.dumps(told, indent=1, default=str) + "\n")
    return 0 if all(check.ok for check in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
