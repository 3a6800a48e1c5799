"""One phase, as what is known of the GPUs meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rl_otel import semconv
from rl_otel._gpu.peaks import Peak
from rl_otel._gpu.timing import Timing
from rl_otel._gpu.vendors import Local
from rl_otel._readings import Reading

_ENOUGH: Final = 2  # samples that make a mean


class Watch:
    """A phase that is open, or has just ended."""

    __slots__ = ("impossible", "name", "peak", "role", "samples", "started", "timing")

    def __init__(self, name: str, role: str, peak: Peak, started: Mapping[int, Any]) -> None:
        self.name = name
        self.role = role
        self.peak = peak
        self.started = started  # the first mark of each device
        self.timing: Timing | None = None
        self.samples: dict[str, Samples] = {}  # by hw_id
        self.impossible: set[int] = set()  # devices of which the framework counted what cannot be

    def sample(self, reading: Reading) -> None:
        """Take a sample of a device."""
        found = self.samples.get(reading.hw_id)
        if found is None:
            found = self.samples[reading.hw_id] = Samples()
        found.take(reading)

    def attributes(self, local: Callable[[int], Local]) -> dict[str, Any]:
        """Return what the span carries; of several devices the maximum."""
        return {**self._counted(local), **self._sampled()}

    def allocated(self, local: Callable[[int], Local]) -> dict[int, int]:
        """Return the peak of each device of which it is known."""
        return {device: size for device, size in self.peak.allocated.items() if self._is_true(device, local(device))}

    def _is_true(self, device: int, local: Local) -> bool:
        # An engine that sleeps frees memory behind torch's back: what torch goes on counting is not there.
        most = max(self.peak.allocated[device], self.peak.reserved[device])
        return self.peak.known and device not in self.impossible and (local.total is None or most <= local.total)

    def _counted(self, local: Callable[[int], Local]) -> dict[str, Any]:
        peaks = self.allocated(local)
        if not peaks:
            return {}
        found: dict[str, Any] = {
            semconv.GPU_PEAK: max(peaks.values()),
            semconv.GPU_RESERVED_PEAK: max(self.peak.reserved[device] for device in peaks),
            semconv.GPU_ALLOCATED: max(self.peak.ends_with[device] for device in peaks),
        }
        ratios = [peak / total for device, peak in peaks.items() if (total := local(device).total)]
        if ratios:
            found[semconv.GPU_PEAK_RATIO] = max(ratios)
        if self.peak.lower_bound:
            found[semconv.GPU_LOWER_BOUND] = True
        return found

    def _sampled(self) -> dict[str, Any]:
        samples = list(self.samples.values())
        found: dict[str, list[Any]] = {
            semconv.GPU_DEVICE_USED: [each.used for each in samples],
            semconv.GPU_DEVICE_LIMIT: [each.limit for each in samples],
            semconv.GPU_UTILIZATION: [each.utilization for each in samples],
        }
        known = {name: [value for value in values if value is not None] for name, values in found.items()}
        return {name: max(values) for name, values in known.items() if values}


class Samples:
    """The samples of one device within a phase."""

    __slots__ = ("_busy", "_count", "limit", "used")

    def __init__(self) -> None:
        self.used: int | None = None
        self.limit: int | None = None
        self._busy = 0.0
        self._count = 0

    def take(self, reading: Reading) -> None:
        """Take one more."""
        if reading.used is not None:
            self.used = max(reading.used, self.used or 0)
        if reading.limit is not None:
            self.limit = reading.limit
        if reading.utilization is not None:
            self._busy += reading.utilization
            self._count += 1

    @property
    def utilization(self) -> float | None:
        """The mean; a device that was looked at once may have been at any moment of its work."""
        return self._busy / self._count if self._count >= _ENOUGH else None
