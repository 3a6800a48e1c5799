"""What the driver tells, through the real pynvml over a library that does what the test says."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _runtime
from rl_otel._gpu import sampler
from rl_otel._readings import Peak, Reading
from rl_otel.testing import capture
from tests import needs, process
from tests import nvml as driver
from tests.cuda import Cuda, installed
from tests.cuda import Device as Local
from tests.gpus import GIB, cuda, look, nvml
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from rl_otel.testing import Recorded, Traces

pytestmark = [needs.torch, needs.gcc, needs.pynvml]

__all__ = ["cuda", "nvml"]

SAMPLED = ("rl.gpu.memory.device.used.peak", "rl.gpu.memory.device.limit", "rl.gpu.utilization")


def sampled(span: Recorded) -> tuple[Any, ...]:
    return tuple(span.attributes.get(name) for name in SAMPLED)


def active() -> Any:
    runtime = _runtime.active
    assert runtime is not None
    return runtime.gpu


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "rl_otel gpu"]


# --- on the span ------------------------------------------------------------------------------------------------------


def test_a_phase_says_what_its_device_was_used_for(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """Used is the highest sample, limit the device's, utilisation the mean: what torch does not see included."""
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.rollout():
        look()
        nvml.devices[0].used = 90 * GIB
        nvml.write()
        look()
        nvml.devices[0].used = 20 * GIB
        nvml.write()
        look()
    assert sampled(traces.one("rollout")) == (90 * GIB, 140 * GIB, 0.5)
    assert traces.one("rollout").attributes["rl.gpu.memory.allocated.peak"] == GIB


def test_utilisation_is_a_mean_of_the_span_and_absent_under_two_samples(
    cuda: Cuda, nvml: driver.Script, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A span of a few milliseconds has no utilisation; a reading at its edges would say nothing."""
    monkeypatch.setattr(sampler, "INTERVAL", 3600.0)
    with rl_otel.step(0):
        cuda.allocate(GIB)
        with rl_otel.train():  # the first look is at once, then there is none for an hour
            until(lambda: active().readings())
    assert sampled(traces.one("train")) == (10 * GIB, 140 * GIB, None)


def test_utilisation_within_a_span_is_not_that_around_it(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """0 before, 100 inside, 0 after: the span says 100."""
    cuda.allocate(GIB)
    with rl_otel.step(0):
        for utilization, name in ((0, "before"), (100, "inside"), (0, "after")):
            nvml.devices[0].utilization = utilization
            nvml.write()
            look(2)  # what was being read when the script changed belongs to the time before
            with rl_otel.phase(name):
                look()
    assert [sampled(traces.one(name))[2] for name in ("before", "inside", "after")] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        ({"memory_error": driver.NOT_SUPPORTED}, {0, 1}),
        ({"utilization_error": driver.NOT_SUPPORTED}, {2}),
        ({"utilization_error": driver.LOST}, {2}),
        ({"power_error": driver.NOT_SUPPORTED}, set()),
    ],
)
def test_a_call_that_fails_leaves_its_figures_out_and_no_others(
    error: dict[str, int], missing: set[int], cuda: Cuda, nvml: driver.Script, caplog: pytest.LogCaptureFixture
) -> None:
    """One call's refusal is said once, for who looks at debug level; what other calls tell stays."""
    caplog.set_level(logging.DEBUG, "rl_otel")
    nvml.set(driver.Device(**error))  # type: ignore[arg-type]
    cuda.allocate(GIB)
    with capture() as traces, rl_otel.step(0), rl_otel.train():
        seen = driver.calls("memory") + driver.calls("utilization") + driver.calls("power")
        until(lambda: driver.calls("memory") + driver.calls("utilization") + driver.calls("power") > seen + 12)
    expected = [None if place in missing else value for place, value in enumerate((10 * GIB, 140 * GIB, 0.5))]
    assert list(sampled(traces.one("train"))) == expected
    lines = [record for record in caplog.records if "is left out" in record.message]
    assert {record.levelno for record in lines} == {logging.DEBUG}
    assert len({record.message for record in lines}) == len(lines) == (2 if "memory_error" in error else 1)


def test_a_call_that_is_not_supported_is_not_tried_again(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """What a device does not tell it is not asked for each second."""
    nvml.set(driver.Device(utilization_error=driver.NOT_SUPPORTED))
    cuda.allocate(GIB)
    asked = driver.calls("utilization")
    with rl_otel.step(0), rl_otel.train():
        look(10)
    assert driver.calls("utilization") == asked + 1


def test_an_engine_that_sleeps_makes_torch_unbelievable(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """Where torch counts 60 GiB while everybody together uses 5, torch's figures are left out and the driver's stay."""
    nvml.set(driver.Device(used=5 * GIB))
    cuda.allocate(60 * GIB)
    with rl_otel.step(0):
        with rl_otel.rollout():
            look()
        nvml.set(driver.Device(used=70 * GIB))
        look(2)
        with rl_otel.train():
            look()
    assert "rl.gpu.memory.allocated.peak" not in traces.one("rollout").attributes
    assert sampled(traces.one("rollout"))[0] == 5 * GIB
    assert traces.one("train").attributes["rl.gpu.memory.allocated.peak"] == 60 * GIB


def test_two_devices_of_four_are_those_of_torch(nvml: driver.Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver counts four devices in its own order; a process sees the two that torch uses, by their UUIDs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    nvml.set(*(driver.Device(driver.uuid(n), used=n * GIB) for n in range(4)))
    two = Cuda(Local(uuid=driver.uuid(3)), Local(uuid=driver.uuid(1)))
    with installed(two), capture() as traces, rl_otel.step(0), rl_otel.train():
        two.allocate(GIB, device=1)
        with rl_otel.phase("one"):
            until(lambda: active().readings())
            look()
        two.allocate(GIB, device=0)
        with rl_otel.phase("both"):
            until(lambda: len(active().readings()) == 2)
            look()
        assert {reading.hw_id for reading in active().readings()} == {driver.uuid(1), driver.uuid(3)}
        known = [(1, "both"), (1, "one"), (3, "both")]
        assert sorted(active().peaks()) == [Peak(driver.uuid(device), phase, GIB) for device, phase in known]
    assert sampled(traces.one("one"))[0] == GIB
    assert sampled(traces.one("both"))[0] == 3 * GIB


def test_every_gpu_of_the_node_where_that_is_wanted(cuda: Cuda, nvml: driver.Script) -> None:
    """With `gpu_all` a span has the highest figures of all devices, also of those that torch does not use here."""
    nvml.set(driver.Device(driver.uuid(0), used=GIB), driver.Device(driver.uuid(1), used=9 * GIB, utilization=100))
    cuda.allocate(GIB)
    with capture(gpu_all=True) as traces, rl_otel.step(0), rl_otel.train():
        look(6)
        assert {reading.hw_id for reading in active().readings()} == {driver.uuid(0), driver.uuid(1)}
    assert sampled(traces.one("train")) == (9 * GIB, 140 * GIB, 1.0)


def test_a_divided_device_gives_the_figures_of_its_part(nvml: driver.Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a device in parts (MIG) a process has the memory of its own part; the whole is never taken for it."""
    parts = [f"MIG-{n}{n}{n}{n}{n}{n}{n}{n}-1111-2222-3333-444444444444" for n in (1, 2)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", parts[1])
    refused = driver.NOT_SUPPORTED
    nvml.set(
        driver.Device(driver.uuid(0), used=100 * GIB, utilization_error=refused),
        *(driver.Device(part, total=16 * GIB, used=n * GIB, utilization_error=refused) for n, part in enumerate(parts)),
        driver.Device(driver.uuid(1), used=50 * GIB),
    )
    model = Cuda(Local(uuid=driver.uuid(0), total=16 * GIB))
    with installed(model), capture() as traces:
        model.allocate(GIB)
        with rl_otel.step(0), rl_otel.train():
            look()
    assert sampled(traces.one("train")) == (GIB, 16 * GIB, None)


# --- for the metrics --------------------------------------------------------------------------------------------------


def test_readings_and_peaks_name_the_device_by_its_uuid(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """Whoever exports them gets the latest sample of each device, and each phase's peak when it last ended."""
    cuda.allocate(0)
    with rl_otel.step(0):
        for size in (4, 2):
            with rl_otel.train():
                cuda.allocate(size * GIB)
                look()
            cuda.free(size * GIB)
        assert active().readings() == [Reading(driver.uuid(0), "H200", 0.5, 10 * GIB, 140 * GIB, 300.0)]
        assert active().peaks() == [Peak(driver.uuid(0), "train", 2 * GIB)]
        [worker] = active().workers
        assert worker.cpu


def test_time_goes_to_the_phase_that_is_active(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """Sampled and busy time divide as scripted, whatever the length of the phases: also between phases and steps."""
    script = {"rollout": 30, "train": 90, "other": 10, "idle": 0}
    cuda.allocate(GIB)

    def spend(phase: str) -> None:
        nvml.devices[0].utilization = script[phase]
        nvml.write()

    for i in range(6):
        with rl_otel.step(i):
            for name in ("rollout", "train"):
                look(2)
                with rl_otel.phase(name) if name == "train" else rl_otel.rollout():
                    spend(name)
                    look(3)
                    spend("other")
                look(2)
        spend("idle")
        look(2)
    found = {time.phase: time for time in active().times()}
    assert set(found) == set(script)
    assert {time.role for time in found.values()} == {"driver"}
    assert found["train"].busy / found["train"].sampled > 2 * found["rollout"].busy / found["rollout"].sampled
    assert all(0 <= time.busy <= time.sampled for time in found.values())
    assert sum(time.sampled for time in found.values()) < 60


def test_time_of_a_device_that_does_not_tell_is_not_idle_time(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """Where utilisation is unknown no time is counted, for it would pass for time in which the device did nothing."""
    nvml.set(driver.Device(utilization_error=driver.NOT_SUPPORTED))
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.train():
        look(4)
        assert active().times() == []


def test_where_the_gpus_wait(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """A trainer that starves waits with an idle GPU: the wait says for whom, and the summary how idle."""
    cuda.allocate(GIB)
    with rl_otel.step(0) as step:
        for utilization, phase in ((0, rl_otel.wait("batch")), (90, rl_otel.train())):
            nvml.devices[0].utilization = utilization
            nvml.write()
            look(2)
            with phase:
                look(3)
    assert step.summary["gpu/utilization/wait"] == 0.0
    assert step.summary["gpu/utilization/train"] == pytest.approx(0.9)
    assert traces.one("wait").attributes["rl.wait.reason"] == "batch"


# --- the thread -------------------------------------------------------------------------------------------------------


def test_no_thread_before_there_is_a_device(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """The sampler begins with the first phase that finds CUDA initialised, and ends with the recording."""
    begun = driver.calls("init")
    with rl_otel.step(0), rl_otel.train():
        pass
    assert (threads(), driver.calls("init")) == ([], begun)

    cuda.allocate(GIB)
    with rl_otel.step(1), rl_otel.train():
        until(threads)
        look()
    rl_otel.shutdown()
    assert threads() == []
    assert driver.library().standin_open() == 0  # all who began have ended


def test_calls_are_bounded_by_time_not_by_spans(
    cuda: Cuda, nvml: driver.Script, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of spans ask the driver nothing; the driver is begun once."""
    monkeypatch.setattr(sampler, "INTERVAL", 3600.0)
    cuda.allocate(GIB)
    begun, asked = driver.calls("init"), driver.calls("memory")
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory():
        until(lambda: active().readings())
        for _ in range(1000):
            with rl_otel.generate():
                pass
        for k in range(100):
            with rl_otel.trajectory(sample=k):
                pass
    assert (driver.calls("init") - begun, driver.calls("memory") - asked) == (1, 2)  # used, and once the limit


def test_a_driver_that_is_slow_gets_a_rest(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """After a look that took long the next one comes later, and later still."""
    nvml.set(driver.Device(wait=30_000))
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.train():
        look(2)
        watching = active()._watching
        until(lambda: watching._sampler.pause >= 4 * sampler.INTERVAL)


def test_a_forked_child_samples_nothing_of_its_own_accord(cuda: Cuda, nvml: driver.Script, traces: Traces) -> None:
    """A child has neither the thread nor a driver of its own, and the parent goes on."""
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.train():
        look()
        child = os.fork()
        if child == 0:
            try:
                with rl_otel.rollout():
                    pass
            finally:
                os._exit(len(threads()) + len(active().readings()))
        assert os.waitpid(child, 0)[1] == 0
        look()


# --- where there is no driver -----------------------------------------------------------------------------------------


def test_without_a_driver_figures_are_absent_and_one_line_says_why(
    cuda: Cuda, nvml: driver.Script, caplog: pytest.LogCaptureFixture
) -> None:
    """A container without the driver: no attribute, no number, nothing raised, tried once."""
    caplog.set_level(logging.DEBUG, "rl_otel")
    nvml.path.unlink()
    cuda.allocate(GIB)
    begun = driver.calls("init")
    with capture() as traces:
        for i in range(20):
            with rl_otel.step(i), rl_otel.train():
                pass
        until(lambda: threads() == [])
    assert driver.calls("init") == begun + 1
    assert all(sampled(span) == (None, None, None) for span in traces.spans)
    assert traces.all("train")[0].attributes["rl.gpu.memory.allocated.peak"] == GIB
    [line] = [record for record in caplog.records if "GPU" in record.message]
    assert line.message.startswith("rl_otel: no GPU driver tells anything: Nvml: NVMLError_DriverNotLoaded: ")
    assert line.levelno == logging.DEBUG


def test_the_deprecated_pynvml_is_not_imported(tmp_path: Path, nvml: driver.Script) -> None:
    """A package of that name warns, an error under strict settings, and has misread structs: it is passed over."""
    package = tmp_path / "deprecated" / "pynvml"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise FutureWarning('The pynvml package is deprecated')")
    script = """
        import logging, sys
        logging.basicConfig(level=logging.DEBUG)
        from rl_otel._gpu.devices import Devices
        assert not Devices()
        assert "pynvml" not in sys.modules
    """
    errors = process.run(script, env={"PYTHONPATH": f"{package.parent}:{process.ROOT}", **nvml.environment}).stderr
    assert "is not the module of nvidia-ml-py" in errors


def test_the_driver_is_found_by_its_name(nvml: driver.Script) -> None:
    """In a process that loads nothing beforehand the real pynvml finds the library where the system has it."""
    nvml.set(driver.Device(driver.uuid(5), used=7 * GIB))
    script = """
        from rl_otel._gpu.devices import Devices
        devices = Devices()
        print(devices.uuids, devices.read(devices.uuids[0]).used)
    """
    assert process.run(script, env=nvml.environment).stdout == f"['{driver.uuid(5)}'] {7 * GIB}\n"
