"""What is told of a GPU, as plain values: by the part that reads them, to the part that exports them."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """A device at its latest sample; None is what the driver does not tell."""

    hw_id: str  # the device's UUID
    name: str
    utilization: float | None  # 0 to 1
    used: int | None  # bytes, by whoever uses the device
    limit: int | None  # bytes
    power: float | None  # W


class Time(NamedTuple):
    """How long a device was watched in a phase, and how long it was busy of that; s since the process began."""

    hw_id: str
    phase: str
    role: str
    sampled: float
    busy: float


class Peak(NamedTuple):
    """What a phase allocated at most when it last ran."""

    hw_id: str
    phase: str
    allocated: int  # bytes
