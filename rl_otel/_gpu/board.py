"""What was seen of the devices that this process tells about: the latest, and for how long in which phase."""

from __future__ import annotations

import time
from typing import Final

from rl_otel import semconv
from rl_otel._readings import Reading, Time

_STALE: Final = 120.0  # s after which a reading says nothing of now
_MOST: Final = 1024  # pairs of device and phase

Key = tuple[str, str, str]  # device, phase, role


class Board:
    """Written by the sampler, read by the exporter; each under the lock of its owner."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[float, Reading]] = {}
        self._times: dict[Key, tuple[float, float]] = {}

    def put(self, reading: Reading, phase: str, role: str, longest: float) -> None:
        """Take a reading; the time since the one before, `longest` s at most, is that of the phase active now."""
        now = time.monotonic()
        before = self._latest.get(reading.hw_id)
        self._latest[reading.hw_id] = (now, reading)
        # Time of which it is not known whether the device was busy would pass for idle time.
        if before is not None and reading.utilization is not None:
            self._add(self._key(reading.hw_id, phase, role), min(now - before[0], longest), reading.utilization)

    @property
    def readings(self) -> list[Reading]:
        """Each device at its latest sample."""
        now = time.monotonic()
        return [reading for moment, reading in self._latest.values() if now - moment < _STALE]

    @property
    def times(self) -> list[Time]:
        """How long each device was watched in each phase."""
        return [Time(*key, sampled, busy) for key, (sampled, busy) in self._times.items()]

    def _key(self, hw_id: str, phase: str, role: str) -> Key:
        key = (hw_id, phase, role)
        return key if key in self._times or len(self._times) < _MOST else (hw_id, semconv.UNKNOWN, role)

    def _add(self, key: Key, seconds: float, utilization: float) -> None:
        sampled, busy = self._times.get(key, (0.0, 0.0))
        self._times[key] = (sampled + seconds, busy + seconds * utilization)
