"""What the drivers tell each second: for the phases that are open, and for who exports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from rl_otel._config import visible_devices
from rl_otel._gpu.board import Board
from rl_otel._gpu.devices import Devices, attempt
from rl_otel._gpu.framework import Framework
from rl_otel._gpu.match import match
from rl_otel._gpu.node import Claims
from rl_otel._gpu.peaks import Memory
from rl_otel._gpu.sampler import Sampler
from rl_otel._gpu.watch import Watch
from rl_otel._readings import Reading
from rl_otel._thread import Worker

_SLACK: Final = 64 << 20  # bytes by which two counts of the same memory may differ


class Watching:
    """The sampler and what it finds.

    Args:
        framework: which devices are this process's own.
        whole_node: whether all others are watched too.
        active: the phase that stands for a device now, and its role.
        phases: those that are open.
        lock: held while what is found is put down.
    """

    def __init__(
        self,
        framework: Framework,
        *,
        whole_node: bool,
        active: Callable[[], tuple[str, str]],
        phases: Callable[[], Iterable[Watch]],
        lock: AbstractContextManager[object],
    ) -> None:
        self.board = Board()
        self._framework = framework
        self._whole_node = whole_node
        self._active = active
        self._phases = phases
        self._lock = lock
        self._claims = Claims()
        self._devices: Devices | None = None
        self._own: dict[int, str] = {}  # the driver's UUID of each device of ours
        self._sampler: Sampler | None = None

    @property
    def worker(self) -> Worker | None:
        """The thread that looks, once there is something to see."""
        return None if self._sampler is None else self._sampler.worker

    def start(self) -> None:
        """Begin once there is something to see."""
        if self._sampler is None and (self._whole_node or self._framework.find() is not None):
            self._sampler = Sampler(self._look, self._close)
        if self._sampler is not None:
            self._sampler.worker.start()

    def stop(self, timeout: float) -> None:
        """End, and let others tell of our devices."""
        if self._sampler is not None:
            self._sampler.stop(timeout)
        self._claims.release()

    def forget(self) -> None:
        """In a forked child: what is watched is the parent's."""
        self._claims.release()

    def hw_id(self, device: int) -> str:
        """Return the name of a device of ours: the driver's, else torch's."""
        uuid = self._framework.local(device).uuid
        return self._own.get(device) or (f"GPU-{uuid}" if uuid else f"gpu:{device}")

    # --- on the sampler's thread --------------------------------------------------------------------------------------

    def _look(self) -> bool:
        devices = self._devices
        if devices is None:
            devices = self._devices = Devices()
        if not devices:
            return False
        before = self._allocated()
        self._find_own(devices, before)
        own = {uuid: device for device, uuid in self._own.items()}
        opened, (phase, role) = list(self._phases()), self._active()
        readings = [devices.read(uuid) for uuid in self._wanted(devices, own)]
        after = self._allocated()
        with self._lock:
            inside = [watch for watch in self._phases() if watch in opened]  # for as long as was read
            for reading in readings:
                self._tell(reading, phase, role)
                device = own.get(reading.hw_id, -1)
                counted = [memory[device] for memory in (before, after) if device in memory]
                for watch in inside:
                    watch.sample(reading)
                    if _is_impossible(reading, counted):
                        watch.impossible.add(device)
        return True

    def _tell(self, reading: Reading, phase: str, role: str) -> None:
        if self._claims.take(reading.hw_id):
            longest = 0.0 if self._sampler is None else 2 * self._sampler.pause
            self.board.put(reading, phase, role, longest)

    def _allocated(self) -> Mapping[int, Memory]:
        allocator = self._framework.find()
        return {} if allocator is None else attempt("GPU memory of this process", allocator.read, {})

    def _find_own(self, devices: Devices, used: Iterable[int]) -> None:
        visible, ordered = visible_devices()
        for device in used:
            if device not in self._own:
                uuid = match(self._framework.local(device), devices.uuids, visible, ordered=ordered or devices.alike)
                if uuid is not None:
                    self._own[device] = uuid

    def _wanted(self, devices: Devices, own: Iterable[str]) -> list[str]:
        others = devices.whole if self._whole_node else ()
        return [*own, *(uuid for uuid in others if uuid not in own and self._claims.take(uuid))]

    def _close(self) -> None:
        if self._devices is not None:
            self._devices.close()
        self._claims.release()  # what was taken after `stop` had given up on a driver that hung


def _is_impossible(reading: Reading, counted: list[Memory]) -> bool:
    """Whether torch counts more than anybody uses of the device: an engine freed memory behind its back."""
    return reading.used is not None and len(counted) == 2 and min(counted).allocated > reading.used + _SLACK
