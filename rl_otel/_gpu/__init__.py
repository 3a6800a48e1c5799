"""GPUs: the memory that each phase peaked at, how long it kept them busy, and what they do meanwhile.

    gpu                 what the rest of rl_otel sees: `Gpu`
    peaks, timing       memory and time of a phase, at its boundaries
    sampler, devices    what drivers tell, each second
    watch, board        what comes of it: on the span, and for the metrics
    node                what processes of one node agree upon
    match, vendors/     which device is which; one file a vendor

Nothing here imports torch or a driver's library before the host has, initialises a device, or makes anybody wait.
"""

from __future__ import annotations

from rl_otel._gpu.gpu import Gpu
from rl_otel._gpu.watch import Watch

__all__ = ["Gpu", "Watch"]
