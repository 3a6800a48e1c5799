"""The script for a real GPU, as far as the model of one goes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import needs
from tests.cuda import SEGMENT, Cuda
from tests.gpus import cuda, nvml
from tests.process import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests import nvml as driver

pytestmark = [needs.torch, needs.gcc, needs.pynvml]

__all__ = ["cuda", "nvml"]


class Modelled:
    """The model as a device to be checked; its driver sees what torch has reserved."""

    def __init__(self, cuda: Cuda, nvml: driver.Script) -> None:
        self._cuda = cuda
        self._nvml = nvml

    @contextlib.contextmanager
    def held(self, size: int) -> Iterator[None]:
        memory = self._cuda.devices[0]
        missing = memory.used.current + size - memory.reserved.current
        # The driver first: whenever somebody looks, a device has no less in use than torch has allocated.
        self._tell(memory.reserved.current + max(-(-missing // SEGMENT) * SEGMENT, 0))
        self._cuda.allocate(size)
        yield
        self._cuda.free(size)

    def allocated(self) -> int:
        return self._cuda.devices[0].used.current

    def peak(self) -> int:
        return self._cuda.devices[0].used.peak

    def uuid(self) -> str:
        return self._cuda.devices[0].uuid.removeprefix("GPU-").replace("-", "")

    def total(self) -> int:
        return self._cuda.devices[0].total

    def empty(self) -> None:
        reserved = self._cuda.devices[0].reserved
        reserved.move(self.allocated() - reserved.current)

    def work(self, seconds: float) -> Callable[[], float]:
        self._cuda.launch(seconds)
        return lambda: seconds

    def finish(self) -> None:
        self._cuda.run()

    def _tell(self, used: int) -> None:
        self._nvml.devices[0].used = used
        self._nvml.write()


def test_what_needs_no_real_device_holds_for_the_model(cuda: Cuda, nvml: driver.Script) -> None:
    """Each check that memory and a clock are enough for passes, and names what it expected and found."""
    from benchmarks.gpu_checks import CHECKS, checked

    found = checked(Modelled(cuda, nvml), [check for check in CHECKS if check.__name__ != "cost"])
    assert [check for check in found if not check.ok] == []
    assert len(found) == 17


def test_what_a_phase_costs_is_measured_in_each_mode(cuda: Cuda, nvml: driver.Script) -> None:
    """CPU time of the calling thread with peaks reset, observed and left alone."""
    from benchmarks.gpu_checks import checked, cost

    [check] = checked(Modelled(cuda, nvml), [cost])
    assert set(check.found) == {"reset", "observe", "off"}
    assert min(check.found.values()) > 0


def test_a_device_that_counts_wrong_is_found(cuda: Cuda, nvml: driver.Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that is not what was allocated fails its check, and what breaks is a failed check too."""
    from benchmarks.gpu_checks import checked, nested_peaks, times

    monkeypatch.setattr(Modelled, "allocated", lambda self: 1)
    found = checked(Modelled(cuda, nvml), [nested_peaks])
    assert [check.name for check in found if not check.ok][:2] == ["peak of train", "peak of logprobs"]
    monkeypatch.setattr(Modelled, "work", lambda self, seconds: 1 / 0)
    [broken] = checked(Modelled(cuda, nvml), [times])
    assert (broken.ok, broken.found) == (False, "ZeroDivisionError: division by zero")


def test_without_a_gpu_it_says_so() -> None:
    """It checks nothing, and no success is made of that."""
    command = [sys.executable, "-m", "benchmarks.gpu_check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpu_check: there is no GPU here that torch can use, so nothing was checked\n"
