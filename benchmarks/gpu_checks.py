"""Checks of what phases say of a GPU for which memory, work and a clock are enough: of a real one or a model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import rl_otel
from rl_otel import _runtime
from rl_otel.testing import Recorded, Traces, capture

GIB = 1 << 30
PATIENCE = 20.0  # s for what comes late


class Device(Protocol):
    """As much of a device as the checks need."""

    def held(self, size: int) -> contextlib.AbstractContextManager[object]:
        """Have that many bytes allocated meanwhile."""

    def allocated(self) -> int:
        """Return the bytes that are."""

    def peak(self) -> int:
        """Return torch's peak."""

    def uuid(self) -> str:
        """Return torch's name of the device, bare."""

    def total(self) -> int:
        """Return what it has, in bytes."""

    def empty(self) -> None:
        """Give back what is reserved and not allocated."""

    def work(self, seconds: float) -> Callable[[], float]:
        """Put so much work in order, and do not wait for it; what is returned tells how long it took."""

    def finish(self) -> None:
        """Wait for all work."""


@dataclass
class Check:
    """What was to be, and what was."""

    name: str
    ok: bool
    expected: Any
    found: Any


def same(name: str, expected: Any, found: Any) -> Check:
    """Check that two things are the same."""
    return Check(name, expected == found, expected, found)


def near(name: str, expected: float, found: float | None, within: float) -> Check:
    """Check that a figure is that close to another."""
    return Check(name, found is not None and abs(found - expected) <= within, f"{expected} +- {within}", found)


def figure(span: Recorded, what: str) -> Any:
    """Return what a phase says of its GPUs."""
    return span.attributes.get(f"rl.gpu.{what}")


def when_late(traces: Traces, name: str, what: str) -> Any:
    """Return a figure that follows later, None where it does not."""
    until = time.monotonic() + PATIENCE
    while (found := figure(traces.one(name), what)) is None and time.monotonic() < until:
        time.sleep(0.01)
    return found


def nested_peaks(device: Device) -> Iterator[Check]:
    """Peaks of nested and consecutive phases against allocations of known size."""
    base = device.allocated()
    with capture() as traces, rl_otel.step(0):
        with rl_otel.train(), device.held(GIB):
            with rl_otel.logprobs():
                with device.held(2 * GIB):
                    pass
                with device.held(GIB):
                    pass
            with rl_otel.values(), device.held(GIB // 2):
                pass
        with rl_otel.optimizer(), device.held(GIB // 2):
            pass
    for name, size in (("train", 3 * GIB), ("logprobs", 3 * GIB), ("values", 3 * GIB // 2), ("optimizer", GIB // 2)):
        yield same(f"peak of {name}", base + size, figure(traces.one(name), "memory.allocated.peak"))
    yield same("allocated after train", base, figure(traces.one("train"), "memory.allocated"))
    ratio = (base + 3 * GIB) / device.total()
    yield near("ratio of train", ratio, figure(traces.one("train"), "memory.peak.ratio"), 1e-9)


def observed_peaks(device: Device) -> Iterator[Check]:
    """What is only observed leaves torch's counter alone, and is a lower bound."""
    base = device.allocated()
    with device.held(2 * GIB):
        pass
    before = device.peak()
    with capture(gpu_peak="observe") as traces, rl_otel.step(0), rl_otel.train(), device.held(GIB):
        pass
    yield same("torch's peak is untouched", before, device.peak())
    found = traces.one("train")
    yield same("lower bound is said", True, figure(found, "memory.peak.lower_bound"))
    bound = figure(found, "memory.allocated.peak")
    yield Check("lower bound holds", bound <= base + GIB, base + GIB, bound)


def driver_and_torch(device: Device) -> Iterator[Check]:
    """The driver's device is torch's, and sees what torch allocates."""
    device.empty()
    with device.held(GIB), capture() as traces, rl_otel.step(0):
        with rl_otel.data():
            first = _reading()
        with rl_otel.train(), device.held(4 * GIB):
            _samples(3)
        with rl_otel.logprobs():
            device.work(3.0)
            _samples(3)
            device.finish()
    if first is None:
        yield Check("the driver answers", False, "a reading", None)
        return
    yield same("device of the driver", device.uuid(), first.hw_id.split("-", 1)[1].replace("-", ""))
    yield near("limit in bytes", device.total(), first.limit, 0.05 * device.total())
    grown = figure(traces.one("train"), "memory.device.used.peak") - first.used
    yield Check("used grows by what is allocated", grown >= 4 * GIB - (64 << 20), 4 * GIB, grown)
    utilization = figure(traces.one("logprobs"), "utilization")
    yield Check("utilisation of a busy phase", utilization is not None and utilization > 0.3, "above 0.3", utilization)
    yield Check("power", first.power is not None and 10 < first.power < 2000, "10 to 2000 W", first.power)


def times(device: Device) -> Iterator[Check]:
    """The device's time of a phase, against work of known length; the host does not wait for it."""
    with device.held(GIB), capture() as traces:
        with rl_otel.step(0):
            with rl_otel.data():
                pass
            with rl_otel.train():
                took = device.work(0.4)
            with rl_otel.optimizer():
                pass
        device.finish()
        found = {name: when_late(traces, name, "duration") for name in ("train", "optimizer")}
    yield near("GPU time of train, s", took(), found["train"], 0.005)
    yield near("GPU time of a phase without work, s", 0.0, found["optimizer"], 0.01)
    host = traces.one("train").duration / 1e9
    yield Check("the host does not wait for the device, s", host < 0.1, "below 0.1", host)


def cost(device: Device) -> Iterator[Check]:
    """What a phase costs its thread, in CPU, with and without a GPU to ask."""
    with device.held(GIB):
        found = {mode: _cost(mode) for mode in ("reset", "observe", "off")}
    yield Check("CPU of a phase, us", found["reset"] < 1000, "below 1000", found)


def _cost(mode: str, phases: int = 500) -> float:
    with capture(gpu_peak=mode), rl_otel.step(0):
        for count in (50, phases):
            began = time.thread_time()
            for _ in range(count):
                with rl_otel.train():
                    pass
            spent = time.thread_time() - began
    return round(spent / phases * 1e6, 1)


def _reading() -> Any:
    runtime = _runtime.active
    until = time.monotonic() + PATIENCE
    while runtime is not None and time.monotonic() < until:
        if readings := runtime.gpu.readings():
            return readings[0]
        time.sleep(0.01)
    return None


def _samples(wanted: int) -> None:
    """Wait until the driver was asked that often from now on."""
    runtime = _runtime.active
    until = time.monotonic() + PATIENCE
    seen = -1.0
    while runtime is not None and wanted >= 0 and time.monotonic() < until:
        sampled = sum(each.sampled for each in runtime.gpu.times())
        if sampled != seen:
            seen, wanted = sampled, wanted - 1
        time.sleep(0.002)


CHECKS: tuple[Callable[[Device], Iterator[Check]], ...] = (nested_peaks, observed_peaks, driver_and_torch, times, cost)


def checked(device: Any, checks: Iterable[Callable[[Any], Iterator[Check]]]) -> list[Check]:
    """Run checks one after the other; one that breaks fails, and the next begins."""
    found: list[Check] = []
    for check in checks:
        try:
            found += check(device)
        except Exception as error:
            rl_otel.shutdown()
            found.append(Check(check.__name__, False, "to end", f"{type(error).__name__}: {error}"))
    return found
