"""A run on one GPU that does the same in each minute, as the driver's stand-in tells it; time is put forward.

In a process of its own, whose environment has the script of the stand-in and the clock: `main(minutes, url)`. It leaves
once the Prometheus there has what each minute exported.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import rl_otel
from rl_otel import _runtime
from tests import nvml
from tests.stack.prometheus import Prometheus
from tests.system_clock import forward, mine
from tests.waiting import until

INTERVAL = 60  # s between two exports
#: Seconds of each minute and utilization in per cent: one phase is shorter than the interval at which it is exported.
SCRIPT = {"rollout": (40, 30), "train": (15, 90), "weight_sync": (5, 10)}
SERIES = 'rl_gpu_time_seconds_total{{instance="{}"}}'


class Run:
    """A run that has begun, and its GPU."""

    def __init__(self, server: Prometheus) -> None:
        self._server = server
        self._script = nvml.Script(Path(os.environ[nvml.SCRIPT]))
        assert _runtime.active is not None
        self._gpu = _runtime.active.gpu
        self._series = SERIES.format(_runtime.active.identity.instance)
        self._began = time.time()

    def minute(self, number: int) -> None:
        """Live through a minute, and wait for what is exported at its end."""
        for name, (seconds, busy) in SCRIPT.items():
            self._script.set(nvml.Device(utilization=busy))
            with getattr(rl_otel, name)():
                for _ in range(seconds):
                    self._second()
        until(lambda: self._exports() >= number)

    def _second(self) -> None:
        """Let a second go by, and with it a look of the sampler."""
        seen = nvml.calls("power")  # the last of the figures that are read; then it rests
        forward(mine(), 1.0)
        (sampler,) = self._gpu.workers
        until(lambda: nvml.calls("power") > seen and sampler._may_leave)

    def _exports(self) -> float:
        window = f"count_over_time({self._series}[{round(time.time() - self._began) + INTERVAL}s])"
        return max((value for _, value in self._server.query(window, at=time.time() + 1)), default=0)


def main(minutes: int, server: str) -> None:
    """Run for so long, with a Prometheus at that URL."""
    nvml.library()
    rl_otel.configure("gpus")
    run = Run(Prometheus(server))
    with rl_otel.step(0):
        for number in range(1, minutes + 1):
            run.minute(number)
    rl_otel.shutdown()
