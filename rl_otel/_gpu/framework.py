"""torch in this process: found once the host has brought a device to life, and never before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rl_otel._gpu.devices import attempt
from rl_otel._gpu.peaks import Memory
from rl_otel._gpu.vendors import ALLOCATORS, Allocator, Local


class Look:
    """The counters at one boundary, read once."""

    def __init__(self, allocator: Allocator | None = None) -> None:
        self._allocator = allocator
        self._memory: Mapping[int, Memory] = {} if allocator is None else allocator.read()

    def read(self) -> Mapping[int, Memory]:
        """Return what is counted on each device that is in use."""
        return self._memory

    def reset(self, device: int) -> None:
        """Begin to count peaks anew."""
        if self._allocator is not None:
            self._allocator.reset(device)


NOTHING: Final = Look()


class Framework:
    """Whoever allocates memory on devices here.

    Args:
        parents: what a parent before a fork was using: it can be used no more.
    """

    def __init__(self, parents: tuple[type[Allocator], ...] = ()) -> None:
        self._parents = parents
        self._kinds = tuple(kind for kind in ALLOCATORS if kind not in parents)
        self._locals: dict[int, Local] = {}
        self.allocator: Allocator | None = None

    @property
    def used(self) -> tuple[type[Allocator], ...]:
        """What a forked child must not touch."""
        return self._parents if self.allocator is None else (*self._parents, type(self.allocator))

    def find(self) -> Allocator | None:
        """Return the allocator, once there is one."""
        if self.allocator is None:
            self.allocator = attempt("torch", self._present, None)  # it may be a stub of the host's
        return self.allocator

    def _present(self) -> Allocator | None:
        return next((kind() for kind in self._kinds if kind.present()), None)

    def look(self) -> Look | None:
        """Return the counters as they stand; None where they cannot be looked at now."""
        allocator = self.find()
        if allocator is None:
            return NOTHING
        return attempt("GPU memory of this process", lambda: None if allocator.capturing() else Look(allocator), None)

    def local(self, device: int) -> Local:
        """Return what is known of a device that is in use."""
        found = self._locals.get(device)
        if found is None:
            allocator, unknown = self.allocator, Local(device, "", None)
            found = unknown if allocator is None else attempt("a GPU's size", lambda: allocator.local(device), unknown)
            self._locals[device] = found
        return found
