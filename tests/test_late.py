"""Values on a device: taken hold of at once, read when they are there, and never waited for."""

from __future__ import annotations

import gc
import sys
import threading
import time
import types
import weakref
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

import rl_otel
from rl_otel import _record, _safety
from rl_otel.testing import capture
from tests import needs
from tests.device import Cuda, Device
from tests.receiver import Receiver
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_otel.testing import Traces


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    """A device; whoever makes the host wait for it fails the test."""
    device = Cuda()
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=device))  # type: ignore[arg-type]
    yield device
    assert device.waited == []


def late(traces: Traces) -> list[_record.Late]:
    return [record for record in traces.records if isinstance(record, _record.Late)]


def ended(traces: Traces, name: str) -> _record.End:
    [end] = [record for record in traces.records if isinstance(record, _record.End) and record.name == name]
    return end


# --- without waiting --------------------------------------------------------------------------------------------------


def test_a_loss_on_the_device_follows_later(cuda: Cuda, traces: Traces) -> None:
    """The step ends without the value and says that it will follow; it does when the device has come to it."""
    with rl_otel.step(0) as step:
        step.record(loss=cuda.tensor(0.5), samples=4)
    time.sleep(0.15)  # the thread looks every 50 ms, and finds nothing

    end = ended(traces, "step")
    assert end.attributes == {"rl.step": 0, "rl.samples": 4, "rl.telemetry.overhead": ANY}
    assert end.flags == _record.SAMPLED | _record.AWAITED
    assert late(traces) == [] == cuda.fetched

    cuda.run()
    until(lambda: late(traces))
    assert late(traces) == [_record.Late(end.span, {"rl.loss": 0.5})]
    assert traces.one("step").attributes["rl.loss"] == 0.5


def test_it_is_read_by_a_thread_of_ours_on_a_stream_of_its_own(cuda: Cuda, traces: Traces) -> None:
    """A copy waits for the stream it runs on, so it runs on none of the host's, and on the tensor's own device."""
    with rl_otel.step(0) as step:
        step.record(loss=cuda.tensor(0.5, index=3))
    cuda.run()
    until(lambda: late(traces))

    assert cuda.fetched == [("rl_otel keeper", ("own", Device(index=3)), Device(index=3))]


def test_neither_flush_nor_shutdown_reads_on_the_hosts_thread(cuda: Cuda) -> None:
    """Who flushes or leaves while a value is on its way does not wait for the device either."""
    with capture() as traces:
        with rl_otel.step(0) as step:
            step.record(loss=cuda.tensor(0.5))
        rl_otel.flush(0.2)
        cuda.run()
        rl_otel.shutdown()

    assert late(traces) == [_record.Late(ended(traces, "step").span, {"rl.loss": 0.5})]


def test_a_value_is_that_of_the_moment_it_was_recorded(cuda: Cuda, traces: Traces) -> None:
    """A running loss that is set back in place before the device was asked is recorded as it was."""
    loss = cuda.tensor(0.5)
    with rl_otel.step(0) as step:
        step.record(loss=loss)
        loss.zero_()
    cuda.run()
    until(lambda: late(traces))

    assert late(traces)[0].attributes == {"rl.loss": 0.5}


def test_a_graph_that_is_being_captured_is_left_alone(cuda: Cuda) -> None:
    """A copy or an event of ours would become part of the captured graph: the value is not recorded."""
    cuda.capturing = True
    with capture() as traces, rl_otel.step(0) as step:
        step.record(loss=cuda.tensor(0.5))

    assert cuda.ordered == 0
    assert late(traces) == [_record.Late(ended(traces, "step").span, {})]


def test_a_device_without_events_is_left_alone(cuda: Cuda) -> None:
    """Where nothing can tell when a value is there, it is not read; nobody waits for it after the run."""
    with capture() as traces, rl_otel.step(0) as step:
        step.record(loss=cuda.tensor(0.5, type_="mps"), kl=cuda.tensor(0.5, type_="meta"))

    assert cuda.ordered == 0
    assert late(traces) == [_record.Late(ended(traces, "step").span, {})]


class Lazy:
    """An array of JAX: computed meanwhile, never changed, and reading it waits."""

    size = 1

    def __init__(self, *, ready: bool, device: Any) -> None:
        self.ready, self.device = ready, device

    def is_ready(self) -> bool:
        return self.ready

    def tolist(self) -> float:
        assert self.ready, "the host waits"
        assert threading.current_thread() is not threading.main_thread(), "the host reads"
        return 0.5


JAX_DEVICES = [
    types.SimpleNamespace(platform="gpu"),
    types.SimpleNamespace(platform="tpu"),
    lambda: "a device",
    "gpu:0",
]


@pytest.mark.parametrize("device", JAX_DEVICES, ids=["gpu", "tpu", "old", "name"])
def test_an_array_of_jax_follows_when_it_is_there(traces: Traces, device: Any) -> None:
    """It says itself when it can be read without waiting, and a thread of ours reads it then."""
    loss = Lazy(ready=False, device=device)
    with rl_otel.step(0) as step:
        step.record(loss=loss, kl=[Lazy(ready=True, device=device), 1.5])
    time.sleep(0.15)  # the thread looks every 50 ms, and finds nothing
    assert late(traces) == []

    loss.ready = True
    until(lambda: late(traces))
    assert late(traces)[0].attributes == {"rl.loss": 0.5, "rl.kl": 1.0}


class Foreign:
    """An array of a library that nobody here knows."""

    device = "accelerator:0"

    def tolist(self) -> float:
        raise AssertionError("the host waits")

    __float__ = __array__ = __repr__ = tolist


def test_an_array_that_cannot_be_asked_is_left_alone() -> None:
    """No figure is worth that the host waits for it."""
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record(loss=Foreign(), mine=Foreign(), kl=[1.0, Foreign()])

    assert traces.one("step").attributes == {"rl.step": 0, "rl.telemetry.overhead": ANY}


def test_an_array_on_the_cpu_is_read_at_once(traces: Traces) -> None:
    """Where a library says that its array is on the CPU, there is nothing to wait for."""

    class Array:
        def __init__(self, device: Any) -> None:
            self.device = device

        def tolist(self) -> float:
            return 0.5

    for device in ("cpu", "/job:localhost/device:CPU:0", types.SimpleNamespace(platform="cpu"), Device("cpu"), None):
        with rl_otel.step() as step:
            step.record(loss=Array(device))
            assert step.attributes["rl.loss"] == 0.5


def test_a_device_that_hangs_holds_nobody(cuda: Cuda) -> None:
    """A run whose device never answers ends at once, without the value."""
    began = time.monotonic()
    with capture() as traces, rl_otel.step(0) as step:
        step.record(loss=cuda.tensor(0.5), samples=4)

    assert time.monotonic() - began < 3.0
    assert late(traces)[0].attributes == {}
    assert cuda.fetched == []


def test_a_device_that_is_lost_costs_one_value(
    cuda: Cuda, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while reading is told in one line, and the record still comes, so that no reader waits for it."""
    cuda.broken = True
    with capture() as traces:
        monkeypatch.setattr(_safety, "strict", False)
        with rl_otel.step(0) as step:
            step.record(loss=cuda.tensor(0.5))
        cuda.run()
        until(lambda: late(traces))
        with rl_otel.step(1) as step:
            step.record(loss=1.0)

    assert late(traces)[0].attributes == {}
    assert traces.all("step")[1].attributes["rl.loss"] == 1.0
    assert "device lost" in caplog.text


@needs.torch
@pytest.mark.usefixtures("traces")
def test_the_graph_of_a_loss_is_free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is recorded does not keep alive what it was computed from, while its value is on its way."""
    import torch

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=Cuda()))  # type: ignore[arg-type]

    class OnDevice(torch.Tensor):  # type: ignore[misc]
        device = Device()

    hidden = torch.ones(3, requires_grad=True) * 2
    loss = (hidden * hidden).sum().as_subclass(OnDevice)
    alive = weakref.ref(hidden)
    with rl_otel.step(0) as step:
        step.record(loss=loss)
        del hidden
        assert alive() is not None
        del loss
        gc.collect()
        assert alive() is None


# --- what it becomes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opener", "words", "expected"),
    [
        ("step", {"loss": 2}, {"rl.loss": 2.0}),
        ("step", {"samples": 4.0}, {"rl.samples": 4}),
        ("rollout", {"rewards": [[0.0, 1.0], [2.0, 3.0]]}, {"rewards": (1.5, 0.0, 3.0)}),
        ("generate", {"output_tokens": [3, 4]}, {"gen_ai.usage.output_tokens": 7, "rl.generate.sequences": 2}),
        ("env_step", {"terminated": [True, False]}, {"rl.env.terminated": False}),
        ("env_step", {"reward": [0.0, 1.0]}, {"rl.env.reward": 0.5}),
        ("train", {"loss": [1.0, 2.0]}, {"rl.custom.loss": [1.0, 2.0]}),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_what_comes_late_is_what_it_would_have_been(
    cuda: Cuda, opener: str, words: dict[str, Any], expected: dict[str, Any], as_list: bool
) -> None:
    """A tensor, or a list of tensors, becomes the same attributes as the same numbers on the host."""
    if "rewards" in words:
        mean, low, high = expected["rewards"]
        expected = {"rl.reward.mean": mean, "rl.reward.min": low, "rl.reward.max": high}
    [(word, value)] = words.items()
    several = isinstance(value, list) and as_list
    given = [cuda.tensor(item) for item in value] if several else cuda.tensor(value)
    with capture(strict=False) as traces:
        with getattr(rl_otel, opener)() as span:
            span.record({word: given})
        cuda.run()
        until(lambda: late(traces))

    assert [repr(sorted(record.attributes.items())) for record in late(traces)] == [repr(sorted(expected.items()))]


def test_a_mapping_with_tensors_is_not_printed(cuda: Cuda) -> None:
    """The text of a dict of tensors would read each of them: it waits like a tensor."""
    with capture(strict=False) as traces:
        with rl_otel.step(0) as step:
            step.record(stats={"clip": cuda.tensor(0.25), "n": 3})
        cuda.run()
        until(lambda: late(traces))

    assert late(traces)[0].attributes == {"rl.custom.stats": "{'clip': 0.25, 'n': 3}"}


def test_the_later_value_wins_whichever_comes_late(cuda: Cuda, traces: Traces) -> None:
    """A number after a tensor replaces it, and a tensor after a number as well: neither comes back."""
    with rl_otel.step(0) as step:
        step.record(loss=cuda.tensor(1.0))
        step.record(loss=2.0)
    with rl_otel.step(1) as step:
        step.record(loss=3.0)
        step.record(loss=cuda.tensor(4.0))
        step.record(loss=cuda.tensor(5.0))
    cuda.run()
    until(lambda: late(traces))

    first, second = (record for record in traces.records if isinstance(record, _record.End))
    assert (first.attributes["rl.loss"], first.flags & _record.AWAITED) == (2.0, 0)
    assert "rl.loss" not in second.attributes
    assert late(traces) == [_record.Late(second.span, {"rl.loss": 5.0})]


@pytest.mark.usefixtures("look_often")
def test_the_back_end_gets_the_span_once_with_its_value(cuda: Cuda) -> None:
    """No back end amends a span: it is sent when its value is there, and only then."""
    with Receiver() as receiver, capture(endpoint=receiver.http):
        with rl_otel.step(0) as step:
            step.record(loss=cuda.tensor(0.5))
        assert rl_otel.flush(0.3).pending == 1
        cuda.run()
        assert rl_otel.flush().sent == 1

    assert [(span.name, span.attributes["rl.loss"]) for span in receiver.spans] == [("step", 0.5)]


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.fixture
def printing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_OTEL_PRINT", "1")


@pytest.mark.usefixtures("printing")
def test_the_table_waits_for_the_loss(cuda: Cuda, capsys: pytest.CaptureFixture[str]) -> None:
    """A step whose loss is on its way is printed when that has come."""
    printed = ""
    with capture():
        with rl_otel.step(0) as step:
            step.record(loss=cuda.tensor(0.5), samples=4)
        assert capsys.readouterr().out == ""
        cuda.run()

        def has_come() -> bool:
            nonlocal printed
            printed += capsys.readouterr().out
            return "total:" in printed

        until(has_come)

    assert printed.startswith("Step   0 | Loss: 0.5000 | Samples: 4\n")


@pytest.mark.usefixtures("printing")
def test_the_table_waits_for_no_more_than_a_step(cuda: Cuda, capsys: pytest.CaptureFixture[str]) -> None:
    """When the next step ends first, the table is printed without the loss, and once."""
    with capture():
        with rl_otel.step(0) as step:
            step.record(loss=cuda.tensor(0.5), samples=4)
        with rl_otel.step(1) as step:
            step.record(loss=0.25)
        assert capsys.readouterr().out.startswith("Step   0 | Samples: 4\n")
        cuda.run()

    assert "Step   0" not in capsys.readouterr().out


@pytest.mark.usefixtures("printing")
@pytest.mark.parametrize("attempt", range(5))
def test_a_loss_that_is_there_at_once_is_in_the_table(
    cuda: Cuda, capsys: pytest.CaptureFixture[str], attempt: int
) -> None:
    """Even when our thread reads the value while the step is still being added up, the table has it."""
    with capture(), rl_otel.step(attempt) as step:
        step.record(loss=cuda.tensor(0.5))
        cuda.run()

    assert f"Step   {attempt} | Loss: 0.5000\n" in capsys.readouterr().out
