"""Several processes on one node: whose phase a GPU is in, and who tells of it."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel._cli import main
from rl_otel._gpu import node
from rl_otel.testing import capture
from tests import metrics, needs, process
from tests import nvml as driver
from tests.gpus import nvml
from tests.receiver import Receiver
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [needs.gcc, needs.pynvml]

__all__ = ["nvml"]

#: Watches all GPUs of the node, enters the carrier of each line that has one, and answers with the time in each phase
#: and the devices it tells of.
WATCHER = """
    import json, sys
    from rl_otel import _configure, _runtime, context
    from rl_otel._config import Config
    from rl_otel._gpu import sampler

    sampler.INTERVAL = 0.005
    _configure.begin(Config.load(gpu_all=True, role="generator", run_id=sys.argv[1], run_dir="engine"))
    gpu = _runtime.active.gpu
    for line in sys.stdin:
        with context.use(json.loads(line) if line.strip() else None):
            pass
        times = {time.phase: time.sampled for time in gpu.times() if time.role == "generator"}
        print(json.dumps([times, sorted(reading.hw_id for reading in gpu.readings())]), flush=True)
"""


#: The command, which waits so many seconds for a first sight of a GPU.
MONITOR = """
    import sys
    from rl_otel._cli import gpu_monitor, main
    from rl_otel._gpu import sampler

    sampler.INTERVAL, gpu_monitor._PATIENCE = 0.005, float(sys.argv[1])
    raise SystemExit(main(["gpu-monitor"]))
"""


class Watcher:
    """Such a process."""

    def __init__(self, run: str, nvml: driver.Script) -> None:
        self.process = process.start(WATCHER, run, env=nvml.environment)
        self.times: dict[str, float] = {}  # s, by phase
        self.devices: list[str] = []

    def ask(self, carrier: object = "") -> Watcher:
        """Hear how things stand, after a carrier if there is one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps(carrier) if carrier else ''}\n")
        self.process.stdin.flush()
        self.times, self.devices = json.loads(self.process.stdout.readline())
        return self

    def goes_on_in(self, phase: str) -> None:
        """Wait until its GPUs have spent more time in a phase."""
        before = self.ask().times.get(phase, 0.0)
        until(lambda: self.ask().times.get(phase, 0.0) > before, seconds=20.0)


@pytest.fixture
def watch(nvml: driver.Script) -> Iterator[Callable[[str], Watcher]]:
    """Starts a watcher of a run, and ends it with the test."""
    started: list[Watcher] = []

    def start(run: str) -> Watcher:
        started.append(Watcher(run, nvml))
        return started[-1]

    yield start
    for watcher in started:
        watcher.process.kill()
        watcher.process.communicate()


def test_phases_here_and_gpu_there(watch: Callable[[str], Watcher]) -> None:
    """A GPU whose own process has no phases is in the driver's: in `other` between phases, `idle` between steps."""
    engine = watch("captured")
    engine.goes_on_in("unknown")
    with capture():
        with rl_otel.step(0):
            with rl_otel.rollout():
                engine.goes_on_in("rollout")
            engine.goes_on_in("other")
            with rl_otel.train():
                with rl_otel.logprobs():
                    engine.goes_on_in("logprobs")
                engine.goes_on_in("train")
        engine.goes_on_in("idle")
    engine.goes_on_in("unknown")
    assert set(engine.times) == {"unknown", "rollout", "other", "logprobs", "train", "idle"}


def test_a_carrier_tells_the_phase_where_nobody_on_the_node_does(watch: Callable[[str], Watcher]) -> None:
    """A GPU on another node than the driver's is in the phase that the last carrier told of."""
    engine = watch("elsewhere")
    engine.goes_on_in("unknown")
    with capture(), rl_otel.step(0):
        with rl_otel.rollout():
            engine.ask(rl_otel.context.inject())
        engine.goes_on_in("rollout")
        with rl_otel.train():
            engine.ask(rl_otel.context.inject())
        engine.goes_on_in("train")
    assert set(engine.times) == {"unknown", "rollout", "train"}


def test_the_phase_of_another_run_is_not_ours(watch: Callable[[str], Watcher]) -> None:
    """An engine of one run does not take the phase of another run's driver on the same node."""
    engine = watch("mine")
    engine.goes_on_in("unknown")
    with capture(run_id="theirs"), rl_otel.step(0), rl_otel.rollout():
        assert node.Others("theirs").phase() == "rollout"
        engine.goes_on_in("unknown")
    assert set(engine.times) == {"unknown"}


def test_a_driver_that_was_killed_has_no_phase() -> None:
    """What a process says of its phase ends with it, however it ends."""
    node.Others(None).phase()  # somebody wants to know
    script = """
        import os, signal
        import rl_otel
        rl_otel.configure(run_dir="runs", run_id="killed")
        with rl_otel.step(0), rl_otel.rollout():
            from rl_otel._gpu import node
            assert node.Others("killed").phase() == "rollout"
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert process.run(script, check=False).returncode == -signal.SIGKILL
    assert node.Others("killed").phase() is None
    assert list(node.folder().iterdir()) == []


def test_two_runs_at_once_are_no_phase_for_who_belongs_to_neither() -> None:
    """A monitor says nothing where it cannot know, rather than the phase of whoever came first."""
    monitor = node.Others(None)
    assert monitor.phase() is None
    one, two = node.Note("one", 1, 0, owns_root=True), node.Note("two", 2, 0, owns_root=True)
    one.look("rollout")
    assert monitor.phase() == "rollout"
    two.look("train")
    assert monitor.phase() is None
    one.close()
    assert monitor.phase() == "train"
    two.close()
    assert monitor.phase() is None


def test_the_drivers_phase_comes_before_that_of_other_ranks() -> None:
    """Of several processes of a run the one that owns the step speaks, else the lowest rank."""
    others = node.Others("run")
    assert others.phase() is None
    notes = [node.Note("run", 100 + rank, rank, owns_root=rank == 2) for rank in range(3)]
    for rank, note in enumerate(notes):
        note.look(f"phase {rank}")
    assert others.phase() == "phase 2"
    notes[2].close()
    assert others.phase() == "phase 0"
    for note in notes:
        note.close()


def test_a_shorter_name_leaves_nothing_of_a_longer_one() -> None:
    """What is read is the phase that is active, whole, whatever was written before."""
    others = node.Others("run")
    others.phase()
    note = node.Note("run", 1, 0, owns_root=True)
    for phase in ("a_phase_with_a_long_name", "x", "é" * 64, "train"):
        note.look(phase)
        assert others.phase() == phase
    note.close()


def test_nothing_is_written_where_nobody_wants_to_know() -> None:
    """A run whose GPUs are all its own leaves no file beside its run folder."""
    with capture(), rl_otel.step(0), rl_otel.rollout():
        pass
    assert not node.folder().exists()


def test_a_full_disk_tells_no_phase_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase that cannot be written is unknown, and when there is room again the phase is that of then."""
    assert node.Others("captured").phase() is None  # somebody wants to know
    monkeypatch.setattr(node, "_EVERY", 0.0)
    with capture(), rl_otel.step(0):
        with rl_otel.rollout():
            assert node.Others("captured").phase() == "rollout"
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", full)
                with rl_otel.train():
                    assert node.Others("captured").phase() is None
        with rl_otel.train():
            assert node.Others("captured").phase() == "train"


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_who_can_open_no_file_takes_nobody_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without a descriptor to spare removes nothing of processes that live."""
    assert node.Others("captured").phase() is None  # somebody wants to know
    with capture(), rl_otel.step(0), rl_otel.rollout():
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", broken)
            assert node.Others("captured").phase() is None
        assert node.Others("captured").phase() == "rollout"


def broken(*_: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("function", ["open", "pwrite"])
def test_a_limit_of_the_host_reaches_it_from_a_note(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TimeoutError of the host's handler is no fault of our folder, and the phase that it stopped is not active."""
    assert node.Others("captured").phase() is None  # somebody wants to know
    monkeypatch.setattr(node, "_EVERY", 0.0)
    before = signal.signal(signal.SIGUSR1, limit)
    with capture(), rl_otel.step(0):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, alarm)
            with pytest.raises(TimeoutError):
                rl_otel.train().start()
        with rl_otel.rollout():
            pass
        assert node.Others("captured").phase() == "other"
    signal.signal(signal.SIGUSR1, before)


def limit(*_: object) -> None:
    raise TimeoutError


def alarm(*_: object) -> None:
    signal.raise_signal(signal.SIGUSR1)


def test_no_device_is_told_by_two(watch: Callable[[str], Watcher], nvml: driver.Script) -> None:
    """Of two processes that watch the whole node one tells of each device; the other takes over when that has gone."""
    nvml.set(driver.Device(driver.uuid(0)), driver.Device(driver.uuid(1)))
    both = [driver.uuid(0), driver.uuid(1)]
    first, second = watch("run"), watch("run")
    until(lambda: len(first.ask().devices + second.ask().devices) >= 2, seconds=20.0)
    assert sorted(first.ask().devices + second.ask().devices) == both
    teller, silent = (first, second) if first.devices else (second, first)
    teller.process.kill()
    until(lambda: silent.ask().devices == both, seconds=20.0)


def test_the_monitor_shows_what_it_watches(nvml: driver.Script) -> None:
    """`rl-otel gpu-monitor` names each device, and at its end the time in each phase."""
    nvml.set(driver.Device(driver.uuid(0)), driver.Device(driver.uuid(1), utilization_error=driver.NOT_SUPPORTED))
    monitor = process.start(MONITOR, "30", env={**nvml.environment, "RL_OTEL_RUN_ID": "r1"})
    assert monitor.stdout is not None
    assert [monitor.stdout.readline() for _ in range(3)] == [
        f"{driver.uuid(0)} H200, 10.00 of 140.00 GiB, 50 %, 300 W\n",
        f"{driver.uuid(1)} H200, 10.00 of 140.00 GiB, 300 W\n",
        "exported to rl-otel-runs/r1 every 10 s\n",
    ]
    monitor.send_signal(signal.SIGINT)
    rest, errors = monitor.communicate(timeout=20)
    assert (monitor.returncode, errors) == (0, "")
    assert re.fullmatch(r"(unknown: [\d.]+m?s watched, busy 50 %\n)?", rest)
    (found,) = metrics.in_folder(Path("rl-otel-runs/r1"))
    assert {point.attributes["hw.id"] for point in found["hw.power"]} == {driver.uuid(0), driver.uuid(1)}


def test_the_monitor_exports_gpus_in_the_phases_of_a_run(nvml: driver.Script) -> None:
    """Phases in one process, GPU in `rl-otel gpu-monitor`: a receiver gets time and busy time of each phase."""
    nvml.set(driver.Device(driver.uuid(0), utilization=25))
    with Receiver() as receiver:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.http, "OTEL_METRIC_EXPORT_INTERVAL": "50"}
        monitor = process.start(MONITOR, "30", env={**nvml.environment, **settings})

        def told() -> set[str]:
            found = metrics.last(receiver.exports) if receiver.exports else {}
            return {point.attributes["rl.phase"] for point in found.get("rl.gpu.time", [])}

        until(lambda: "unknown" in told())
        with capture(), rl_otel.step(0):
            with rl_otel.rollout():
                until(lambda: "rollout" in told())
            with rl_otel.train():
                until(lambda: "train" in told())
        monitor.send_signal(signal.SIGTERM)
        assert monitor.communicate(timeout=20)[1] == ""
        found = metrics.last(receiver.exports)
    for point in found["rl.gpu.busy.time"]:
        where = {**point.attributes, "hw.id": driver.uuid(0), "rl.role": "monitor"}
        assert where == point.attributes
        assert point.value == pytest.approx(0.25 * metrics.one(found, "rl.gpu.time", where).value)
    assert [point.value for point in found["hw.gpu.utilization"]] == [0.25]
    assert "rl.phase.active" not in found
    assert "rl.trajectories.active" not in found


def test_two_monitors_export_each_device_once(nvml: driver.Script) -> None:
    """A second monitor of the node finds all GPUs watched, says so and ends; no figure is told twice."""
    first = process.start(MONITOR, "30", env=nvml.environment)
    assert first.stdout is not None
    assert first.stdout.readline().startswith(driver.uuid(0))
    second = process.run(MONITOR, "0.2", env=nvml.environment, check=False)
    assert (second.returncode, second.stdout) == (1, "")
    assert "all are watched by others" in second.stderr
    first.send_signal(signal.SIGTERM)
    assert first.communicate(timeout=20)[1] == ""


def test_a_monitor_without_gpus_says_so(
    nvml: driver.Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node without a driver it ends at once, with a line and a code that scripts can ask for."""
    nvml.path.unlink()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["gpu-monitor"]) == 1
    assert capsys.readouterr().err == "rl-otel gpu-monitor: there is no GPU here, or all are watched by others\n"
