"""NVML, by nvidia-ml-py: every NVIDIA device of the node, and the instances of those that are divided (MIG)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any


class Nvml:
    """The driver's own library. It knows devices by UUID and nothing of CUDA_VISIBLE_DEVICES."""

    def __init__(self) -> None:
        self._nvml: Any = None

    @property
    def figures(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "utilization": lambda device: self._nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100,
            "used": lambda device: int(self._nvml.nvmlDeviceGetMemoryInfo(device).used),
            "limit": lambda device: int(self._nvml.nvmlDeviceGetMemoryInfo(device).total),
            "power": lambda device: self._nvml.nvmlDeviceGetPowerUsage(device) / 1000,  # mW
        }

    def open(self) -> None:
        nvml = _official()
        nvml.nvmlInit()
        self._nvml = nvml

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            nvml.nvmlShutdown()  # NVML counts: who else uses it in this process still can

    def devices(self) -> dict[str, Any]:
        found = {self._told(self._nvml.nvmlDeviceGetUUID, device): device for device in self._all()}
        return {uuid: device for uuid, device in found.items() if uuid is not None}

    def name(self, device: Any) -> str:
        return str(self._nvml.nvmlDeviceGetName(device))

    def never(self, error: Exception) -> bool:
        code = getattr(error, "value", None)
        return code in (self._nvml.NVML_ERROR_NOT_SUPPORTED, self._nvml.NVML_ERROR_NO_PERMISSION)

    def _all(self) -> Iterator[Any]:
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount()):
            device = self._told(nvml.nvmlDeviceGetHandleByIndex, index)
            if device is None:
                continue
            yield device
            for slot in range(self._told(nvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0):
                part = self._told(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, slot)
                if part is not None:
                    yield part

    def _told(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Return an answer; None for a device that has fallen off the bus or is another's, and for an empty slot."""
        try:
            return ask(*arguments)
        except self._nvml.NVMLError:
            return None


def _official() -> Any:
    """Return nvidia-ml-py. The deprecated `pynvml` of the same name is a package, warns, and has misread structs."""
    found = sys.modules.get("pynvml") or importlib.util.find_spec("pynvml")
    if found is None:
        raise ImportError("nvidia-ml-py is not installed: pip install nvidia-ml-py")
    if getattr(found, "__path__", None) or getattr(found, "submodule_search_locations", None):
        raise ImportError("'pynvml' is not the module of nvidia-ml-py: pip uninstall pynvml, pip install nvidia-ml-py")
    return importlib.import_module("pynvml")
