"""torch.cuda without a device: its counters, streams and events as a model, put in place of the real functions.

`installed()` is the one seam: the functions of `torch.cuda` that rl_otel calls. Any other that would initialise CUDA or
make the host wait fails the test, and so does each of them while CUDA is not initialised.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIB = 1 << 30
SEGMENT = 2 << 20  # bytes: what the allocator takes from the device at a time

#: What nobody may call who only watches.
FORBIDDEN = ("init", "_lazy_init", "synchronize", "empty_cache", "is_available", "mem_get_info", "utilization")


@dataclass
class Count:
    """One statistic, as torch counts it."""

    current: int = 0
    peak: int = 0
    allocated: int = 0  # all that ever was

    def move(self, size: int) -> None:
        self.current += size
        self.peak = max(self.peak, self.current)
        self.allocated += max(size, 0)

    def told(self) -> dict[str, int]:
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": 0}


@dataclass
class Device:
    """One device of the process: its memory, its stream of work and its clock."""

    uuid: str = ""
    total: int = 140 * GIB
    name: str = "H200"
    used: Count = field(default_factory=Count)
    reserved: Count = field(default_factory=Count)
    clock: float = 0.0  # s
    work: list[Callable[[], None]] = field(default_factory=list)

    def pass_by(self, seconds: float) -> None:
        self.clock += seconds


class Cuda:
    """As many devices as are given; not initialised until the test says so."""

    def __init__(self, *devices: Device) -> None:
        self.devices = devices
        self.initialized = False
        self.capturing = False
        self.broken: set[str] = set()  # functions that fail
        self.complaints: list[str] = []
        self.called: defaultdict[str, int] = defaultdict(int)
        self.events = 0
        self._thread = threading.local()

    # --- for the test: the host ---------------------------------------------------------------------------------------

    def allocate(self, size: int, device: int = 0) -> None:
        """Allocate as a tensor would; of what was reserved if there is room."""
        self.initialized = True
        memory = self.devices[device]
        memory.used.move(size)
        missing = memory.used.current - memory.reserved.current
        if missing > 0:
            memory.reserved.move(-(-missing // SEGMENT) * SEGMENT)

    def free(self, size: int, device: int = 0) -> None:
        """Free as a tensor would: what was reserved stays so."""
        self.devices[device].used.move(-size)

    def launch(self, seconds: float, device: int = 0) -> None:
        """Put work in order, to be done by `run`."""
        memory = self.devices[device]
        memory.work.append(lambda: memory.pass_by(seconds))

    def run(self, device: int = 0) -> None:
        """Do all work that was put in order so far."""
        memory = self.devices[device]
        while memory.work:
            memory.work.pop(0)()

    # --- for rl_otel: the functions of torch.cuda ---------------------------------------------------------------------

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        self._asked("is_current_stream_capturing")
        return self._captures()

    def device_count(self) -> int:
        self._asked("device_count")
        return len(self.devices)

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        self._touched("memory_stats_as_nested_dict")
        memory = self.devices[device]
        return {"allocated_bytes": {"all": memory.used.told()}, "reserved_bytes": {"all": memory.reserved.told()}}

    def reset_peak_memory_stats(self, device: int) -> None:
        self._touched("reset_peak_memory_stats")
        for count in (self.devices[device].used, self.devices[device].reserved):
            count.peak = count.current

    def get_device_properties(self, device: int) -> Any:
        self._asked("get_device_properties")
        found = self.devices[device]
        uuid = {"uuid": found.uuid.removeprefix("GPU-").removeprefix("MIG-")} if found.uuid else {}
        return types.SimpleNamespace(name=found.name, total_memory=found.total, **uuid)

    def current_stream(self, device: int) -> int:
        self._touched("current_stream")
        self.must(self.devices[device].reserved.allocated, f"device {device} has no context, and would get one")
        return device

    def set_device(self, device: int) -> None:
        self._asked("set_device")
        self.must(threading.current_thread() is not threading.main_thread(), "the host's device was changed")
        self._thread.device = device

    def Event(self, *, enable_timing: bool = False) -> Event:  # noqa: N802 - as torch spells it
        self._touched("Event")
        self.events += 1
        return Event(self, timed=enable_timing)

    def own_device(self) -> int:
        """Return the device that the calling thread has chosen."""
        return getattr(self._thread, "device", 0)

    def must(self, holds: object, complaint: str) -> None:
        """Complain where something does not hold: at once, and at the end, whoever passes over it meanwhile."""
        if not holds:
            self.complaints.append(complaint)
            raise AssertionError(complaint)

    def _captures(self) -> bool:
        return self.capturing and threading.current_thread() is threading.main_thread()  # the host captures there

    def _touched(self, function: str) -> None:
        self._asked(function)
        self.must(not self._captures(), f"{function}() while a graph is captured")

    def _asked(self, function: str) -> None:
        self.called[function] += 1
        self.must(self.initialized, f"{function}() would initialise CUDA")
        if function in self.broken:
            raise RuntimeError(f"{function} is broken")


class Event:
    """A mark in a stream; it knows its time when the device has come to it."""

    def __init__(self, cuda: Cuda, *, timed: bool) -> None:
        self._cuda = cuda
        self._timed = timed
        self._device = -1
        self._reached: float | None = None

    def record(self, stream: int) -> None:
        self._device, self._reached = stream, None
        device = self._cuda.devices[stream]
        device.work.append(lambda: setattr(self, "_reached", device.clock))

    def query(self) -> bool:
        self._cuda.must(self._cuda.own_device() == self._device, "asked from another device")
        return self._reached is not None

    def elapsed_time(self, end: Event) -> float:
        self._cuda.must(self._timed, "made without timing")
        self._cuda.must(self._device == end._device, "two devices have two clocks")
        if self._reached is None or end._reached is None:
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end._reached - self._reached) * 1000

    def synchronize(self) -> None:
        self._cuda.must(False, "event.synchronize() makes the host wait")


MODELLED = (
    "Event", "current_stream", "device_count", "get_device_properties", "is_current_stream_capturing", "is_initialized",
    "memory_stats_as_nested_dict", "reset_peak_memory_stats", "set_device",
)  # fmt: skip


@contextlib.contextmanager
def installed(cuda: Cuda, *, alone: bool = True) -> Iterator[Cuda]:
    """Put the model in place of torch's functions; what must not be called fails, where nobody but rl_otel calls."""
    import torch

    def forbidden(name: str) -> Callable[..., Any]:
        def fail(*_: Any, **__: Any) -> Any:
            cuda.must(False, f"torch.cuda.{name}() was called")

        return fail

    with contextlib.ExitStack() as stack:
        for name in MODELLED:
            stack.enter_context(mock.patch.object(torch.cuda, name, getattr(cuda, name)))
        for name in FORBIDDEN if alone else ():
            stack.enter_context(mock.patch.object(torch.cuda, name, forbidden(name)))
        yield cuda
    assert cuda.complaints == []
