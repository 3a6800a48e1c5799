"""How long a device worked on a phase: two marks in the order of its work, read when it has come to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rl_otel._gpu.devices import attempt
from rl_otel._gpu.vendors import Allocator

_SPARE: Final = 64  # marks kept for a device


class Stopwatch:
    """Times phases on the devices of one process. Marks are used again: making one costs more than setting it."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._spare: dict[int, list[Any]] = {}

    def start(self, devices: Iterable[int]) -> dict[int, Any]:
        """Set a mark on each device."""
        return {device: self._mark(device) for device in devices}

    def stop(self, started: Mapping[int, Any]) -> Timing:
        """Set the second mark where there is a first."""
        return Timing(self, {device: (start, self._mark(device)) for device, start in started.items()})

    def reached(self, device: int, mark: Any) -> bool:
        """Whether a device has come to a mark."""
        return self._allocator.reached(device, mark)

    def between(self, device: int, start: Any, end: Any) -> float:
        """Return the seconds between two marks, which may be used again then."""
        seconds = self._allocator.between(device, start, end)
        spare = self._spare.setdefault(device, [])
        if len(spare) < _SPARE:
            spare += (start, end)
        return seconds

    def _mark(self, device: int) -> Any:
        try:
            spare = self._spare[device].pop()  # in one go: other threads begin and end phases meanwhile
        except LookupError:
            spare = None
        return self._allocator.mark(device, spare)


class Timing:
    """The time of one phase, not known yet; asked on a thread of ours alone. A device that fails never tells it."""

    def __init__(self, stopwatch: Stopwatch, marks: Mapping[int, tuple[Any, Any]]) -> None:
        self._stopwatch = stopwatch
        self._marks = marks

    def ready(self) -> bool:
        """Whether all devices are through."""
        return attempt("GPU time", self._reached, True)

    def read(self) -> float | None:
        """Return the time in s, of several devices the longest."""
        return attempt("GPU time", self._longest, None)

    def _reached(self) -> bool:
        return all(self._stopwatch.reached(device, end) for device, (_, end) in self._marks.items())

    def _longest(self) -> float:
        return max(self._stopwatch.between(device, *marks) for device, marks in self._marks.items())
