"""Other vendors than NVIDIA, over modules of the same names and functions as theirs."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from rl_otel._gpu.devices import Devices
from rl_otel._gpu.framework import NOTHING, Framework
from rl_otel._gpu.peaks import Memory
from rl_otel._gpu.vendors import amd, torch_accelerator
from rl_otel._readings import Reading

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30

AMDSMI = """
class AmdSmiMemoryType:
    VRAM = "vram"


def amdsmi_init():
    pass


amdsmi_shut_down = amdsmi_init


def amdsmi_get_processor_handles():
    return [0, 1]


def amdsmi_get_gpu_asic_info(device):
    return {"market_name": "MI300X", "asic_serial": f"0xAB1C2D3E4F50617{device}"}


def amdsmi_get_gpu_activity(device):
    return {"gfx_activity": 75 if device else "N/A", "umc_activity": 3}


def amdsmi_get_gpu_memory_usage(device, kind):
    assert kind == "vram"
    return 10 << 30


def amdsmi_get_gpu_memory_total(device, kind):
    return 192 << 30


def amdsmi_get_power_info(device):
    return {"current_socket_power": 450, "average_socket_power": "N/A", "gpu_voltage": 900}
"""


@pytest.fixture
def amdsmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "amd").mkdir()
    (tmp_path / "amd" / "amdsmi.py").write_text(AMDSMI)
    monkeypatch.syspath_prepend(str(tmp_path / "amd"))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.setattr(amd, "DRIVER", tmp_path)


def test_amd_tells_the_same_figures(amdsmi: None) -> None:
    """Each device by its serial number; what one does not tell is left out, as the text N/A says."""
    devices = Devices()
    assert devices.uuids == ["ab1c2d3e4f506170", "ab1c2d3e4f506171"]
    assert [devices.read(uuid) for uuid in devices.uuids] == [
        Reading("ab1c2d3e4f506170", "MI300X", None, 10 * GIB, 192 * GIB, 450.0),
        Reading("ab1c2d3e4f506171", "MI300X", 0.75, 10 * GIB, 192 * GIB, 450.0),
    ]


def test_without_amds_driver_its_library_is_left_alone(
    amdsmi: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Amdsmi prints where it finds nothing: it is not imported where there can be no device."""
    monkeypatch.setattr(amd, "DRIVER", tmp_path / "none")
    assert Devices().uuids == []
    assert "amdsmi" not in sys.modules


def accelerated(cuda: str | None = None, *, hip: str | None = None, **functions: Any) -> Any:
    """Return a torch for another accelerator."""
    version = types.SimpleNamespace(cuda=cuda, hip=hip)
    return types.SimpleNamespace(version=version, accelerator=types.SimpleNamespace(**functions))


class Intel:
    """torch.accelerator of one device on which something was allocated."""

    def __init__(self) -> None:
        self.peak = 7 * GIB

    def device_count(self) -> int:
        return 2

    def memory_stats(self, device: int) -> dict[str, int]:
        if device:
            return {}
        counts = {"current": 5 * GIB, "peak": self.peak, "allocated": 9 * GIB}
        return {f"{what}_bytes.all.{which}": n for what in ("allocated", "reserved") for which, n in counts.items()}

    def reset_peak_memory_stats(self, device: int) -> None:
        self.peak = 5 * GIB


def test_an_accelerator_of_torch_counts_as_cuda_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch was built for Intel or another, torch.accelerator is asked, and its peaks are reset alike."""
    intel = Intel()
    functions = {name: getattr(intel, name) for name in ("device_count", "memory_stats", "reset_peak_memory_stats")}
    monkeypatch.setitem(sys.modules, "torch", accelerated(**functions))
    framework = Framework()
    look = framework.look()
    assert look is not None
    assert look.read() == {0: Memory(5 * GIB, 7 * GIB, 5 * GIB, 7 * GIB)}
    look.reset(0)
    assert intel.peak == 5 * GIB
    assert framework.local(0).total is None  # this one does not tell


def fails(*_: Any) -> Any:
    raise RuntimeError("Allocator for mps is not a DeviceAllocator.")


@pytest.mark.parametrize(
    "torch",
    [
        accelerated(memory_stats=fails),  # Apple's does not count
        accelerated(memory_stats=lambda device: {}),  # nothing was ever allocated
        accelerated(),
        accelerated("13.0", memory_stats=lambda device: {"allocated_bytes.all.current": 1}),
        accelerated(hip="6.4", memory_stats=lambda device: {"allocated_bytes.all.current": 1}),
        types.SimpleNamespace(),  # being imported
    ],
)
def test_what_cannot_be_known_is_left_out(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator that does not count, is not in use, or is CUDA's gives nothing, and no error."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert Framework().look() is NOTHING
    assert not torch_accelerator.TorchAccelerator.present()


def test_what_a_parent_was_using_is_left_alone_in_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other accelerators do not say whether they survive a fork."""
    intel = Intel()
    functions = {name: getattr(intel, name) for name in ("device_count", "memory_stats")}
    monkeypatch.setitem(sys.modules, "torch", accelerated(**functions))
    parent = Framework()
    assert parent.find() is not None
    assert Framework(parent.used).find() is None
