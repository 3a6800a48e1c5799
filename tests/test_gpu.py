"""GPU memory and time on phases, over a model of torch.cuda that tells on who touches what nobody may."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _record
from rl_otel.testing import capture
from tests import needs
from tests.cuda import Cuda, Device, installed
from tests.gpus import GIB, cuda
from tests.waiting import until

if TYPE_CHECKING:
    from rl_otel.testing import Recorded, Traces

pytestmark = needs.torch

__all__ = ["cuda"]


def memory(span: Recorded) -> dict[str, object]:
    return {name.removeprefix("rl.gpu.memory."): value for name, value in gpu(span).items() if "memory" in name}


def gpu(span: Recorded) -> dict[str, object]:
    return {name: value for name, value in span.attributes.items() if name.startswith("rl.gpu.")}


# --- what is never touched --------------------------------------------------------------------------------------------


def test_nothing_is_asked_of_a_cuda_that_the_host_has_not_initialised(cuda: Cuda, traces: Traces) -> None:
    """Spans of a process that does not use its GPU ask nothing but whether it does, and carry no figure."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory(), rl_otel.generate():
        pass
    assert dict(cuda.called) == {}
    assert all(gpu(span) == {} for span in traces.spans)


def test_a_forked_child_touches_nothing(cuda: Cuda, traces: Traces) -> None:
    """CUDA is dead in a forked child: not even a phase that the parent left open there is read."""
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.train():
        child = os.fork()
        if child == 0:
            before = dict(cuda.called)
            try:
                with rl_otel.rollout():
                    pass
                rl_otel.shutdown()
            finally:
                os._exit(0 if dict(cuda.called) == before else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert memory(traces.one("train"))["allocated.peak"] == GIB


def test_a_graph_that_is_captured_is_left_alone(cuda: Cuda, traces: Traces) -> None:
    """A phase that begins or ends while a graph is captured has no figures; the one around it has."""
    with rl_otel.step(0), rl_otel.train():
        cuda.allocate(3 * GIB)
        cuda.capturing = True
        with rl_otel.phase("captured"):
            pass
        cuda.capturing = False
        cuda.free(2 * GIB)
    assert gpu(traces.one("captured")) == {}
    assert memory(traces.one("train"))["allocated.peak"] == 3 * GIB


def test_a_device_without_a_context_gets_none() -> None:
    """Of several devices those on which nothing was ever allocated are not touched."""
    with installed(Cuda(Device(), Device(), Device())) as cuda, capture() as traces:
        cuda.allocate(GIB, device=1)
        with rl_otel.step(0), rl_otel.train():
            pass
    assert memory(traces.one("train"))["allocated.peak"] == GIB


@pytest.mark.parametrize(
    "function", ["memory_stats_as_nested_dict", "reset_peak_memory_stats", "is_current_stream_capturing", "Event"]
)
def test_a_function_that_fails_costs_its_figures_alone(function: str, cuda: Cuda, traces: Traces) -> None:
    """Whatever torch raises reaches nobody; what does not depend on it is there."""
    cuda.allocate(GIB)
    cuda.broken.add(function)
    with rl_otel.step(0), rl_otel.train():
        pass
    known = {"rl.gpu.memory.allocated.peak", "rl.gpu.memory.reserved.peak", "rl.gpu.memory.allocated"}
    found = traces.one("train")
    assert set(gpu(found)) == ({*known, "rl.gpu.memory.peak.ratio"} if function == "Event" else set())
    assert found.status == "unset"


def test_a_device_that_fails_later_costs_its_time_alone(cuda: Cuda, traces: Traces) -> None:
    """A kernel that crashes makes every question an error from then on: the span goes out without its time."""
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.train():
        cuda.broken.add("set_device")
    until(lambda: [each for each in traces.records if isinstance(each, _record.Late)])
    assert "rl.gpu.duration" not in traces.one("train").attributes
    assert memory(traces.one("train"))["allocated.peak"] == GIB


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_of_nested_and_consecutive_phases(cuda: Cuda, traces: Traces) -> None:
    """Each phase has the peak of its own time, in bytes; the outer one that of all inside it."""
    with rl_otel.step(0):
        with rl_otel.rollout():
            cuda.allocate(14 * GIB)
        with rl_otel.train():
            cuda.allocate(10 * GIB)
            with rl_otel.logprobs():
                cuda.allocate(28 * GIB)
                cuda.free(28 * GIB)
            cuda.free(20 * GIB)
        with rl_otel.optimizer():
            cuda.allocate(GIB)
    assert memory(traces.one("rollout")) == {
        "allocated.peak": 14 * GIB, "reserved.peak": 14 * GIB, "allocated": 14 * GIB, "peak.ratio": 0.1,
    }  # fmt: skip
    assert memory(traces.one("train"))["allocated.peak"] == 52 * GIB
    assert memory(traces.one("logprobs"))["allocated.peak"] == 52 * GIB
    assert memory(traces.one("optimizer")) == {
        "allocated.peak": 5 * GIB, "reserved.peak": 52 * GIB, "allocated": 5 * GIB, "peak.ratio": 5 / 140,
    }  # fmt: skip
    assert gpu(traces.one("step")) == {}


def test_bytes_are_whole_numbers_and_shares_are_not(cuda: Cuda, traces: Traces) -> None:
    """Memory leaves as int, the ratio and the time as float."""
    cuda.allocate(140 * GIB)
    with rl_otel.step(0), rl_otel.train():
        cuda.launch(1.0)
    cuda.run()
    until(lambda: "rl.gpu.duration" in traces.one("train").attributes)
    kinds = {name.removeprefix("rl.gpu."): type(value) for name, value in gpu(traces.one("train")).items()}
    assert kinds == {
        "memory.allocated.peak": int, "memory.reserved.peak": int, "memory.allocated": int,
        "memory.peak.ratio": float, "duration": float,
    }  # fmt: skip


def test_parts_of_trajectories_are_no_boundaries(cuda: Cuda, traces: Traces) -> None:
    """Rewards and waits inside trajectories read no counter, however many they are."""
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.rollout():
        before = dict(cuda.called)
        for k in range(100):
            with rl_otel.trajectory(group="maze", sample=k), rl_otel.generate(), rl_otel.env_step("maze"):
                pass
            with rl_otel.trajectory(group="lake", sample=k), rl_otel.reward(), rl_otel.wait("slot"):
                pass
        assert dict(cuda.called) == before
    assert all(gpu(span) == {} for name in ("reward", "wait", "trajectory") for span in traces.all(name))


def test_phases_of_several_threads_share_one_counter(cuda: Cuda, traces: Traces) -> None:
    """A phase that another thread has open meanwhile gets the same peak, for it cannot be told apart."""
    inside, done = threading.Event(), threading.Event()

    def fetch() -> None:
        with rl_otel.data():
            inside.set()
            done.wait(10)

    with rl_otel.step(0):
        thread = threading.Thread(target=rl_otel.bind(fetch))
        thread.start()
        inside.wait(10)
        with rl_otel.train():
            cuda.allocate(8 * GIB)
            cuda.free(7 * GIB)
        done.set()
        thread.join()
    assert memory(traces.one("data"))["allocated.peak"] == memory(traces.one("train"))["allocated.peak"] == 8 * GIB


def test_peaks_are_bounded_by_the_phases_of_every_role(cuda: Cuda, traces: Traces) -> None:
    """Torch counts for the whole process: a generator's phase gets what the trainer's inside it reached."""
    rollout = rl_otel.rollout()
    with rl_otel.role("generator"):
        rollout.start()
    with rl_otel.step(0), rl_otel.train():
        cuda.allocate(8 * GIB)
        cuda.free(7 * GIB)
    rollout.end()
    assert memory(traces.one("rollout"))["allocated.peak"] == memory(traces.one("train"))["allocated.peak"] == 8 * GIB


def test_several_devices_give_the_maximum() -> None:
    """The span has the highest figure of all devices; the ratio is that of the fullest."""
    two = Cuda(Device(total=100 * GIB), Device(total=20 * GIB))
    with installed(two) as cuda, capture() as traces, rl_otel.step(0), rl_otel.train():
        cuda.allocate(30 * GIB, device=0)
        cuda.allocate(10 * GIB, device=1)
    assert memory(traces.one("train")) == {
        "allocated.peak": 30 * GIB, "reserved.peak": 30 * GIB, "allocated": 30 * GIB, "peak.ratio": 0.5,
    }  # fmt: skip


def test_torch_counting_more_than_the_device_has_is_not_believed(cuda: Cuda, traces: Traces) -> None:
    """An engine that sleeps frees memory behind torch's back: 199 GB on a card of 140 are no figure."""
    with rl_otel.step(0), rl_otel.rollout():
        cuda.allocate(199 * GIB)
    assert gpu(traces.one("rollout")) == {}


def test_observe_leaves_the_counters_alone_and_says_lower_bound(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another tool owns the counters they are never reset, and the figure is marked."""
    monkeypatch.setenv("RL_OTEL_GPU_PEAK", "observe")
    with capture() as traces, rl_otel.step(0):
        cuda.allocate(9 * GIB)
        cuda.free(5 * GIB)
        with rl_otel.train():
            cuda.allocate(GIB)
    assert cuda.called["reset_peak_memory_stats"] == 0
    assert memory(traces.one("train")) == {
        "allocated.peak": 5 * GIB, "reserved.peak": 9 * GIB, "allocated": 5 * GIB, "peak.ratio": 5 / 140,
        "peak.lower_bound": True,
    }  # fmt: skip


def test_off_reads_no_peaks(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without peaks there is no memory of torch's on the span, and no counter is reset."""
    monkeypatch.setenv("RL_OTEL_GPU_PEAK", "off")
    with capture() as traces, rl_otel.step(0), rl_otel.train():
        cuda.allocate(GIB)
    assert memory(traces.one("train")) == {}
    assert cuda.called["reset_peak_memory_stats"] == 0


# --- time -------------------------------------------------------------------------------------------------------------


def test_time_follows_when_the_device_has_come_to_it(cuda: Cuda, traces: Traces) -> None:
    """The span ends at once and says that a value will follow; it is the time between its two marks."""
    cuda.allocate(GIB)
    with rl_otel.step(0), rl_otel.train():
        cuda.launch(2.5)
    [end] = [each for each in traces.records if isinstance(each, _record.End) and each.name == "train"]
    assert end.flags & _record.AWAITED
    assert "rl.gpu.duration" not in end.attributes

    cuda.launch(4.0)
    cuda.run()
    until(lambda: "rl.gpu.duration" in traces.one("train").attributes)
    assert traces.one("train").attributes["rl.gpu.duration"] == 2.5


def test_time_that_never_comes_is_absent(cuda: Cuda) -> None:
    """A device that hangs leaves the duration out, and holds nobody up."""
    cuda.allocate(GIB)
    with capture() as traces, rl_otel.step(0), rl_otel.train():
        cuda.launch(2.5)
    assert "rl.gpu.duration" not in traces.one("train").attributes


def test_time_of_several_devices_is_the_longest() -> None:
    """Each device has a clock of its own and is asked on its own; the span has the longest time."""
    with installed(Cuda(Device(), Device())) as cuda, capture() as traces:
        for device in (0, 1):
            cuda.allocate(GIB, device)
        with rl_otel.step(0), rl_otel.train():
            cuda.launch(1.0, device=0)
            cuda.launch(3.0, device=1)
        for device in (0, 1):
            cuda.run(device)
        until(lambda: "rl.gpu.duration" in traces.one("train").attributes)
    assert traces.one("train").attributes["rl.gpu.duration"] == 3.0


def test_marks_are_used_again(cuda: Cuda, traces: Traces) -> None:
    """A run of many phases needs a handful of events."""
    cuda.allocate(GIB)
    for i in range(20):
        with rl_otel.step(i), rl_otel.train():
            pass
        cuda.run()
        until(lambda i=i: "rl.gpu.duration" in traces.all("train")[i].attributes)  # type: ignore[misc]
    assert cuda.events == 2


def test_the_table_waits_for_the_devices_time(cuda: Cuda, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A step is printed with its GPU column when the last time has come, and without it when the next step ends."""
    monkeypatch.setenv("RL_OTEL_PRINT", "1")
    cuda.allocate(14 * GIB)
    shown = ""

    def printed() -> str:
        nonlocal shown
        shown += capsys.readouterr().out
        return shown

    with capture():
        with rl_otel.step(0), rl_otel.train():
            cuda.launch(2.5)
        assert printed() == ""
        cuda.run()
        until(lambda: "total" in printed())
        assert "GPU    Peak Mem\n" in shown
        assert "2.50s,  14.00 GiB  (10.0%)\n" in shown
        for i in (1, 2):
            with rl_otel.step(i), rl_otel.train():
                pass
        assert "Step   1" in printed()
    assert "Step   2" in printed()
    assert "  Peak mem (train):               14.00 GiB\n" in shown


def test_the_summary_has_the_memory(cuda: Cuda, traces: Traces) -> None:
    """`step.summary` speaks GiB under the name that people chart."""
    with rl_otel.step(0) as step, rl_otel.train():
        cuda.allocate(3 * GIB)
        cuda.free(2 * GIB)
    assert step.summary["gpu/train/peak_memory_gib"] == 3.0
    assert "gpu/utilization/train" not in step.summary
