"""torch.accelerator, for what is not CUDA: Intel, Apple and what else torch runs on, as far as each counts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rl_otel._gpu.peaks import Memory
from rl_otel._gpu.vendors.vendor import Local


class TorchAccelerator:
    """The one accelerator that this torch was built for, as `torch.accelerator` and `torch.Event` know it."""

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        self._accelerator = self._torch.accelerator

    @staticmethod
    def present() -> bool:
        """Whether its allocator is at work; a torch built for CUDA has no other."""
        torch = sys.modules.get("torch")
        version = getattr(torch, "version", None)
        if version is None or version.cuda or version.hip:
            return False
        # Empty until the host has allocated anything: the one question that initialises nothing.
        asks = getattr(getattr(torch, "accelerator", None), "memory_stats", None)
        try:
            return asks is not None and bool(asks(0))
        except Exception:  # there is none here, or one that does not count
            return False

    def capturing(self) -> bool:
        return False

    def read(self) -> Mapping[int, Memory]:
        devices = range(self._accelerator.device_count())
        found = ((device, self._accelerator.memory_stats(device)) for device in devices)
        return {device: _memory(stats) for device, stats in found if stats.get("reserved_bytes.all.allocated")}

    def reset(self, device: int) -> None:
        self._accelerator.reset_peak_memory_stats(device)

    def local(self, device: int) -> Local:
        asks = getattr(self._accelerator, "get_memory_info", None)
        return Local(device, "", None if asks is None else asks(device)[1])

    def mark(self, device: int, event: Any = None) -> Any:
        stream = self._accelerator.current_stream(device)
        event = self._torch.Event(stream.device, enable_timing=True) if event is None else event
        event.record(stream)
        return event

    def reached(self, device: int, event: Any) -> bool:
        self._accelerator.set_device_index(device)
        return bool(event.query())

    def between(self, device: int, start: Any, end: Any) -> float:
        self._accelerator.set_device_index(device)
        return float(start.elapsed_time(end)) / 1000


def _memory(stats: Mapping[str, int]) -> Memory:
    kinds = [f"{what}_bytes.all.{which}" for what in ("allocated", "reserved") for which in ("current", "peak")]
    return Memory(*(stats[kind] for kind in kinds))
