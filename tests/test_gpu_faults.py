"""Devices and frameworks that are not well: what they do not tell is left out, and nothing else."""

from __future__ import annotations

import os
import sys
import types
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import rl_otel
from rl_otel import _runtime
from rl_otel.testing import capture
from tests import needs
from tests import nvml as driver
from tests.cuda import Cuda
from tests.gpus import GIB, cuda, look, nvml

if TYPE_CHECKING:
    from rl_otel.testing import Traces

pytestmark = [needs.torch, needs.gcc, needs.pynvml]

__all__ = ["cuda", "nvml"]

PEAK = "rl.gpu.memory.allocated.peak"


def raises(*_: Any) -> bool:
    raise RuntimeError("this is no torch")


def stub(**parts: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**{name: types.SimpleNamespace(**inside) for name, inside in parts.items()})


@pytest.mark.parametrize(
    "torch",
    [None, stub(), stub(cuda={}), stub(version={}), stub(cuda={"is_initialized": raises}), mock.MagicMock()],
    ids=["blocked", "empty", "half imported", "no versions", "raises", "mock"],
)
def test_a_stub_in_the_place_of_torch_costs_no_phase(
    torch: Any, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a host has put under torch's name, phases are recorded, without figures."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    with rl_otel.step(0), rl_otel.train():
        pass
    assert not [name for name in traces.one("train").attributes if name.startswith("rl.gpu.")]


@pytest.mark.parametrize("error", ["name_error", "uuid_error"])
def test_a_device_that_is_lost_silences_no_other(error: str, cuda: Cuda, nvml: driver.Script) -> None:
    """A device that refuses even its name or its UUID leaves those of the devices beside it."""
    well = driver.Device(driver.uuid(0))
    broken = [driver.Device(driver.uuid(1), **{error: driver.LOST}), driver.Device("MIG-1", **{error: driver.LOST})]  # type: ignore[arg-type]
    nvml.set(broken[0], well, broken[1])
    cuda.allocate(GIB)
    with capture(gpu_all=True) as traces, rl_otel.step(0), rl_otel.train():
        look()
        found = {reading.hw_id: reading.name for reading in active().readings()}
    assert found == {driver.uuid(0): "H200"} | ({driver.uuid(1): ""} if error == "name_error" else {})
    assert traces.one("train").attributes["rl.gpu.memory.device.used.peak"] == 10 * GIB


def test_a_phase_that_is_open_at_the_shutdown_leaves_the_device_alone(cuda: Cuda, nvml: driver.Script) -> None:
    """After the shutdown nothing is read or reset, and no thread begins; who records anew has true peaks."""
    cuda.allocate(GIB)
    with capture():
        before = rl_otel.train().start()
    with capture() as traces, rl_otel.step(0), rl_otel.rollout():
        cuda.allocate(9 * GIB)
        cuda.free(9 * GIB)
        asked = dict(cuda.called)
        before.end()
        assert cuda.called == asked
    assert traces.one("rollout").attributes[PEAK] == 10 * GIB


def test_a_child_that_ends_a_phase_of_its_parent_touches_nothing(cuda: Cuda, traces: Traces) -> None:
    """Of the device's size too a forked child asks nothing, though the phase had figures when it was forked."""
    cuda.allocate(GIB)
    train = rl_otel.train().start()
    data = rl_otel.data().start()  # a boundary
    child = os.fork()
    if child == 0:
        before = dict(cuda.called)
        train.end()
        os._exit(0 if cuda.called == before else 1)
    assert os.waitpid(child, 0)[1] == 0
    data.end()
    train.end()


def test_names_without_end_take_no_memory_without_end(cuda: Cuda, traces: Traces) -> None:
    """Of a host that numbers its phases the latest peaks are kept, whatever the number."""
    cuda.allocate(GIB)
    for i in range(1100):
        with rl_otel.phase(f"phase {i}"):
            pass
    phases = [peak.phase for peak in active().peaks()]
    assert len(phases) == 1024
    assert phases[-1] == "phase 1099"


def test_phases_that_nobody_ends_make_the_others_no_slower(cuda: Cuda, traces: Traces) -> None:
    """Of hundreds that stay open the oldest are given up, without a figure; those that end have true ones."""
    cuda.allocate(GIB)
    opened = [rl_otel.phase("open").start() for _ in range(300)]
    with rl_otel.train():
        assert len(active()._boundaries.open) == 256
    for phase in opened:
        phase.end()
    assert [PEAK in span.attributes for span in traces.all("open")] == [False] * 45 + [True] * 255
    assert traces.one("train").attributes[PEAK] == GIB


def active() -> Any:
    runtime = _runtime.active
    assert runtime is not None
    return runtime.gpu
