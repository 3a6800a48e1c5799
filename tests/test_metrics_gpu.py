"""GPU metrics, from what watches the GPUs: here it tells what the test has written."""

from __future__ import annotations

from typing import Any

import pytest

import rl_otel
from rl_otel import _runtime
from tests import metrics


class Gpus:
    """Two devices, of which the driver does not tell everything of the second."""

    def __init__(self) -> None:
        self.sampled = 10.0

    def readings(self) -> list[tuple[str, str, float | None, int | None, int | None, float | None]]:
        return [("GPU-a", "H200", 0.5, 40, 100, 350.0), ("GPU-b", "H200", None, 10, 100, None)]

    def times(self) -> list[tuple[str, str, str, float, float]]:
        return [("GPU-a", "train", "driver", self.sampled, self.sampled / 2)]

    def peaks(self) -> list[tuple[str, str, int]]:
        return [("GPU-a", "train", 77)]


def told(found: metrics.Metrics, name: str) -> list[tuple[dict[str, Any], Any]]:
    return [(point.attributes, point.value) for point in found[name]]


@pytest.mark.usefixtures("recording")
def test_gpu_metrics_are_exported_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices by UUID, time by phase as counters; what is not known is left out."""
    assert _runtime.active is not None
    gpus = Gpus()
    for name in ("readings", "times", "peaks"):
        monkeypatch.setattr(_runtime.active.gpu, name, getattr(gpus, name))
    with rl_otel.step(0):
        found = metrics.now()
    a, b = {"hw.id": "GPU-a"}, {"hw.id": "GPU-b"}
    assert told(found, "hw.gpu.utilization") == [(a, 0.5)]
    assert told(found, "hw.gpu.memory.usage") == [(a, 40), (b, 10)]
    assert told(found, "hw.gpu.memory.limit") == [(a, 100), (b, 100)]
    assert told(found, "hw.power") == [({**a, "hw.type": "gpu"}, 350.0)]
    assert told(found, "rl.gpu.memory.peak") == [({**a, "rl.phase": "train"}, 77)]
    where = {**a, "rl.phase": "train", "rl.role": "driver"}
    assert told(found, "rl.gpu.time") == [(where, 10.0)]
    assert told(found, "rl.gpu.busy.time") == [(where, 5.0)]
    gpus.sampled = 12.0
    again = metrics.now()
    assert told(again, "rl.gpu.time") == [(where, 12.0)]
    assert (again["rl.gpu.time"][0].kind, again["rl.gpu.time"][0].proto.start_time_unix_nano > 0) == ("sum", True)
