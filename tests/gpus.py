"""Fixtures of a machine with GPUs: `cuda` is the process's torch, `nvml` the driver, both as the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rl_otel._gpu import sampler
from tests import nvml as driver
from tests.cuda import Cuda, Device, installed
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture
def cuda() -> Iterator[Cuda]:
    """torch.cuda with one device, not initialised yet."""
    with installed(Cuda(Device(uuid=driver.uuid(0)))) as model:
        yield model


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> driver.Script:
    """A driver with the same device, looked at every few milliseconds."""
    driver.library()
    script = driver.Script(tmp_path / "nvml")
    script.set(driver.Device())
    monkeypatch.setenv(driver.SCRIPT, str(script.path))
    monkeypatch.setattr(sampler, "INTERVAL", 0.005)
    return script


def look(times: int = 3) -> None:
    """Wait until the sampler has looked that often from now on, and put down what it saw."""
    seen = driver.calls("power")  # the last of the figures that are read
    # One look more, for one may have begun before; and another that tells that the last was put down.
    until(lambda: driver.calls("power") >= seen + times + 2)
