"""What phases say of GPUs, joined by phase: of several spans, processes and devices the highest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rl_otel import semconv

GIB = 1 << 30


class Phase(Protocol):
    """As much of a phase as is needed here."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def start(self) -> int:
        """When it began, ns."""

    @property
    def end(self) -> int:
        """When it ended, ns."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What it carries."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a phase's GPUs, in bytes."""

    peak: int | None = None  # allocated by torch
    ratio: float | None = None  # of that to what the device has
    lower_bound: bool = False  # it may have been more
    device: int | None = None  # in use by whoever it is, where that is well above what torch knows of

    def with_(self, other: Memory) -> Memory:
        """Return what two phases of one name come to."""
        return Memory(
            _higher(self.peak, other.peak),
            _higher(self.ratio, other.ratio),
            self.lower_bound or other.lower_bound,
            _higher(self.device, other.device),
        )


NO_MEMORY: Final = Memory()


@dataclass(frozen=True, slots=True)
class ByPhase:
    """Memory and use of each phase, by its name, nested ones too."""

    memory: dict[str, Memory] = field(default_factory=dict)
    utilization: dict[str, float] = field(default_factory=dict)  # 0 to 1


def memory(phases: Iterable[Phase]) -> Memory:
    """Return the memory of phases that share a row."""
    found = NO_MEMORY
    for phase in phases:
        found = found.with_(_memory(phase.attributes))
    return found


def by_phase(phases: Iterable[Phase]) -> ByPhase:
    """Return what is known of each phase."""
    found: dict[str, Memory] = {}
    used: dict[str, list[tuple[int, float]]] = {}
    for phase in phases:
        known = _memory(phase.attributes)
        if known.peak is not None or known.device is not None:
            found[phase.name] = found.get(phase.name, NO_MEMORY).with_(known)
        if semconv.GPU_UTILIZATION in phase.attributes:
            share = phase.attributes[semconv.GPU_UTILIZATION]
            used.setdefault(phase.name, []).append((phase.end - phase.start, share))
    return ByPhase(found, {name: _mean(shares) for name, shares in used.items()})


def _memory(attributes: Mapping[str, Any]) -> Memory:
    used, reserved = attributes.get(semconv.GPU_DEVICE_USED), attributes.get(semconv.GPU_RESERVED_PEAK, 0)
    return Memory(
        peak=attributes.get(semconv.GPU_PEAK),
        ratio=attributes.get(semconv.GPU_PEAK_RATIO),
        lower_bound=bool(attributes.get(semconv.GPU_LOWER_BOUND)),
        device=used if used is not None and used >= reserved + GIB else None,
    )


def _higher(one: Any, other: Any) -> Any:
    return max((value for value in (one, other) if value is not None), default=None)


def _mean(shares: list[tuple[int, float]]) -> float:
    """Return the mean of shares over their times."""
    whole = sum(time for time, _ in shares)
    if not whole:
        return sum(share for _, share in shares) / len(shares)
    return sum(time * share for time, share in shares) / whole
