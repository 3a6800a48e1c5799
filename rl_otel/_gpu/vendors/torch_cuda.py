"""torch.cuda, of NVIDIA and, as torch has it, of AMD."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rl_otel._capture import stand_aside
from rl_otel._gpu.peaks import Memory
from rl_otel._gpu.vendors.vendor import Local


class TorchCuda:
    """The allocator and the streams of `torch.cuda`."""

    def __init__(self) -> None:
        self._cuda = sys.modules["torch"].cuda

    @staticmethod
    def present() -> bool:
        """Whether CUDA is initialised; False in a forked child, which cannot use its parent's."""
        # Not imported and not asked for anything else: the rest of torch.cuda initialises what it does not find.
        asks = getattr(getattr(sys.modules.get("torch"), "cuda", None), "is_initialized", None)
        return asks is not None and bool(asks())

    def capturing(self) -> bool:
        return bool(self._cuda.is_current_stream_capturing())

    def read(self) -> Mapping[int, Memory]:
        asks = self._cuda.memory_stats_as_nested_dict
        found = ((device, asks(device)) for device in range(self._cuda.device_count()))
        return {device: _memory(stats) for device, stats in found if _is_used(stats)}

    def reset(self, device: int) -> None:
        self._cuda.reset_peak_memory_stats(device)

    def local(self, device: int) -> Local:
        found = self._cuda.get_device_properties(device)
        return Local(device, str(getattr(found, "uuid", "")), getattr(found, "total_memory", None))

    def mark(self, device: int, event: Any = None) -> Any:
        event = self._cuda.Event(enable_timing=True) if event is None else event
        event.record(self._cuda.current_stream(device))
        return event

    def reached(self, device: int, event: Any) -> bool:
        stand_aside()
        # A thread begins on device 0, and what it asks there would make a context on a device that is not ours.
        self._cuda.set_device(device)
        return bool(event.query())

    def between(self, device: int, start: Any, end: Any) -> float:
        self._cuda.set_device(device)
        return float(start.elapsed_time(end)) / 1000


def _is_used(stats: Mapping[str, Any]) -> bool:
    # Of a device on which nothing was ever allocated there is nothing to tell, and it may have no context to touch.
    return bool(stats) and any(stats["reserved_bytes"]["all"].values())


def _memory(stats: Mapping[str, Any]) -> Memory:
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return Memory(allocated["current"], allocated["peak"], reserved["current"], reserved["peak"])
