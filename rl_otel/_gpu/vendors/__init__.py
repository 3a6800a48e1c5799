"""Who can be asked about GPUs: one file a vendor. The next one is a file, and a word in one of the two tuples.

allocators   what a framework counts of its memory in this process, and how it times a device's work
drivers      what a vendor's library tells of a device, whoever uses it
"""

from __future__ import annotations

from typing import Final

from rl_otel._gpu.vendors.amd import AmdSmi
from rl_otel._gpu.vendors.nvidia import Nvml
from rl_otel._gpu.vendors.torch_accelerator import TorchAccelerator
from rl_otel._gpu.vendors.torch_cuda import TorchCuda
from rl_otel._gpu.vendors.vendor import Allocator, Driver, Local

ALLOCATORS: Final[tuple[type[Allocator], ...]] = (TorchCuda, TorchAccelerator)
DRIVERS: Final[tuple[type[Driver], ...]] = (Nvml, AmdSmi)

__all__ = ["ALLOCATORS", "DRIVERS", "Allocator", "Driver", "Local"]
