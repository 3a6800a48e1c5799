"""Peak memory of each phase, exact under nesting, sequence and overlap. Knows no torch.

An allocator counts one peak for the whole process. At each phase boundary that peak is folded into every phase that is
open, and counting begins anew: so the peak of a phase is the highest of all pieces of time that it spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Memory(NamedTuple):
    """What an allocator counts on one device, in bytes; peaks since they were last reset."""

    allocated: int
    allocated_peak: int
    reserved: int
    reserved_peak: int


class Counters(Protocol):
    """The counters of a process, by device."""

    def read(self) -> Mapping[int, Memory]:
        """Return what is counted on each device that is in use."""

    def reset(self, device: int) -> None:
        """Begin to count peaks anew."""


class Peak:
    """One phase's highest memory so far; `known` is false where a boundary of it could not be read."""

    __slots__ = ("allocated", "ends_with", "known", "lower_bound", "reserved")

    def __init__(self, *, known: bool) -> None:
        self.known = known
        self.lower_bound = False
        self.allocated: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.ends_with: dict[int, int] = {}  # allocated at the last boundary

    def fold(self, device: int, reached: Memory, *, lower_bound: bool) -> None:
        """Take in what was reached since the boundary before."""
        self.allocated[device] = max(reached.allocated_peak, self.allocated.get(device, 0))
        self.reserved[device] = max(reached.reserved_peak, self.reserved.get(device, 0))
        self.ends_with[device] = reached.allocated
        self.lower_bound |= lower_bound


class Peaks:
    """The phases that are open in this process.

    Args:
        resets: whether the counters are reset at each boundary. Where they are not, or somebody else resets them too,
            what is found is a lower bound.
    """

    def __init__(self, *, resets: bool) -> None:
        self._resets = resets
        self._open: list[Peak] = []
        self._before: Mapping[int, Memory] = {}  # as the counters stood at the last boundary

    def enter(self, counters: Counters | None) -> Peak:
        """Begin a phase; None for counters that cannot be read now."""
        if counters is not None:
            self._boundary(counters)
        peak = Peak(known=counters is not None)
        self._open.append(peak)
        return peak

    def leave(self, peak: Peak, counters: Counters | None) -> bool:
        """End a phase; True, for what raises on the way leaves it open."""
        if counters is None:
            peak.known = False
        else:
            self._boundary(counters)
        self._open.remove(peak)
        return True

    def _boundary(self, counters: Counters) -> None:
        memory = counters.read()
        for device, now in memory.items():
            before = self._before.get(device)
            reached, lower_bound = _counted_anew(before, now) if self._resets else _observed(before, now)
            for peak in self._open:
                peak.fold(device, reached, lower_bound=lower_bound)
            if self._resets:
                counters.reset(device)
        self._before = memory


def _counted_anew(before: Memory | None, now: Memory) -> tuple[Memory, bool]:
    """Return what was reached since we reset the counters, and whether somebody else did so meanwhile."""
    # A peak counter begins at what is allocated: one that stands below that was reset later.
    lower = before is not None and (now.allocated_peak < before.allocated or now.reserved_peak < before.reserved)
    return now, lower


def _observed(before: Memory | None, now: Memory) -> tuple[Memory, bool]:
    """Return what was reached for certain between two looks at counters that we do not reset."""
    if before is None:
        return now, True
    # A counter that has changed was reached since then, one that has not may be older.
    allocated, reserved = now.allocated_peak, now.reserved_peak
    if allocated == before.allocated_peak:
        allocated = max(before.allocated, now.allocated)
    if reserved == before.reserved_peak:
        reserved = max(before.reserved, now.reserved)
    return now._replace(allocated_peak=allocated, reserved_peak=reserved), True
