"""What is asked of a vendor. Either half may be missing; what it does not know it leaves out, by raising."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from rl_otel._gpu.peaks import Memory


class Local(NamedTuple):
    """A device as the framework of this process knows it."""

    number: int
    uuid: str  # empty where the framework does not tell
    total: int | None  # bytes


class Allocator(Protocol):
    """A framework in this process. It is never initialised, and never made to wait."""

    @staticmethod
    def present() -> bool:
        """Whether the host has brought it to life, in this very process. Asked at each phase: cheap."""

    def capturing(self) -> bool:
        """Whether the calling thread is just recording a graph: nothing is to be touched then."""

    def read(self) -> Mapping[int, Memory]:
        """Return what is counted on each device on which anything was ever allocated."""

    def reset(self, device: int) -> None:
        """Begin to count the peaks of a device anew."""

    def local(self, device: int) -> Local:
        """Return what is known of a device that is in use."""

    def mark(self, device: int, event: Any = None) -> Any:
        """Put a mark behind the work that was ordered so far, in `event` if there is one to use again."""

    def reached(self, device: int, event: Any) -> bool:
        """Whether the device has come to a mark. Only on a thread of ours."""

    def between(self, device: int, start: Any, end: Any) -> float:
        """Return the seconds between two marks that were reached. Only on a thread of ours."""


class Driver(Protocol):
    """A vendor's library. All calls come from one thread."""

    @property
    def figures(self) -> Mapping[str, Callable[[Any], Any]]:
        """What its devices tell, by the field of a `Reading`; each may raise."""

    def open(self) -> None:
        """Begin. Raises where the library is missing or finds no driver."""

    def close(self) -> None:
        """End."""

    def devices(self) -> Mapping[str, Any]:
        """Return all devices of the node, parts of devices too, by their UUID; in the driver's order."""

    def name(self, device: Any) -> str:
        """Return the product's name."""

    def never(self, error: Exception) -> bool:
        """Whether an error means that this device will never tell."""
