"""amdsmi, which comes with ROCm: AMD's devices."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MIB = 1 << 20
DRIVER = Path("/dev/kfd")  # of AMD's kernel module


class AmdSmi:
    """AMD's own library. torch knows a device by its serial number, spelled as a UUID."""

    def __init__(self) -> None:
        self._smi: Any = None

    @property
    def figures(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "utilization": lambda device: self._smi.amdsmi_get_gpu_activity(device)["gfx_activity"] / 100,
            "used": lambda device: self._memory(self._smi.amdsmi_get_gpu_memory_usage, device),
            "limit": lambda device: self._memory(self._smi.amdsmi_get_gpu_memory_total, device),
            "power": self._power,
        }

    def open(self) -> None:
        if not DRIVER.exists():  # without it amdsmi prints, as it is imported, what it misses
            raise FileNotFoundError(f"there is no {DRIVER}")
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
        self._smi = smi

    def close(self) -> None:
        smi, self._smi = self._smi, None
        if smi is not None:
            smi.amdsmi_shut_down()

    def devices(self) -> dict[str, Any]:
        smi = self._smi
        return {_serial(smi.amdsmi_get_gpu_asic_info(each)): each for each in smi.amdsmi_get_processor_handles()}

    def name(self, device: Any) -> str:
        return str(self._smi.amdsmi_get_gpu_asic_info(device)["market_name"])

    def never(self, error: Exception) -> bool:
        return isinstance(error, TypeError)  # what a device does not tell is the text N/A

    def _memory(self, asks: Any, device: Any) -> int:
        return int(asks(device, self._smi.AmdSmiMemoryType.VRAM))

    def _power(self, device: Any) -> float:
        told = self._smi.amdsmi_get_power_info(device)
        return max(float(watts) for name, watts in told.items() if name.endswith("socket_power") and watts != "N/A")


def _serial(asic: Any) -> str:
    return str(asic["asic_serial"]).lower().removeprefix("0x")
