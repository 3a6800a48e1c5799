"""Buffers between generation and training: gauges, and keys of the summary."""

from __future__ import annotations

import queue
from typing import Any

import pytest

import rl_otel
from rl_otel.testing import Traces
from tests import metrics

recording = pytest.mark.usefixtures("recording")


def sizes(found: metrics.Metrics, name: str = "rl.buffer.size") -> dict[str, Any]:
    return {point.attributes["rl.buffer.name"]: point.value for point in found.get(name, ())}


@recording
def test_a_buffer_is_read_at_each_export() -> None:
    """The gauge is what the callback says then; a capacity is exported where it is known."""
    generated: queue.Queue[int] = queue.Queue(16)
    lists: list[int] = [1, 2]
    rl_otel.buffer("gen", size=generated.qsize, capacity=16)
    rl_otel.buffer("replay", size=lambda: len(lists))
    with rl_otel.step(0):
        found = metrics.now()
    assert (sizes(found), sizes(found, "rl.buffer.capacity")) == ({"gen": 0, "replay": 2}, {"gen": 16})
    generated.put(1)
    assert sizes(metrics.now()) == {"gen": 1, "replay": 2}


def test_the_summary_has_how_full_it_was_when_the_step_began(traces: Traces) -> None:
    """The keys are those that people chart, as int, from the start of the step on."""
    generated: queue.Queue[int] = queue.Queue()
    generated.put(1)
    rl_otel.buffer("gen", size=generated.qsize, capacity=4)
    with rl_otel.step(0) as step:
        generated.get()
    summary = {key: value for key, value in step.summary.items() if key.startswith("async/")}
    assert summary == {"async/gen_buffer_qsize": 1, "async/gen_buffer_maxsize": 4}
    assert step.summary_with("x/")["x/async/gen_buffer_qsize"] == 1


@recording
def test_a_callback_that_raises_is_dropped_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A queue that cannot tell its size costs one line, and is not asked again; others are."""
    asked = []

    def broken() -> int:
        asked.append(1)
        raise NotImplementedError("not on this platform")

    rl_otel.buffer("gen", size=broken)
    rl_otel.buffer("odd", size=lambda: "many")
    rl_otel.buffer("good", size=lambda: 3)
    for index in range(3):
        with rl_otel.step(index) as step:
            pass
        assert sizes(metrics.now()) == {"good": 3}
    assert step.summary["async/good_buffer_qsize"] == 3
    assert len(asked) == 1
    assert sorted(line.split("'")[1] for line in caplog.messages) == ["gen", "odd"]


@recording
def test_numbers_that_are_none_cost_other_buffers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A capacity that is no number is left out, with a line, and a size beyond 64 bits is the nearest of them."""
    rl_otel.buffer("vast", size=lambda: 10**400, capacity="endless")  # type: ignore[arg-type]
    rl_otel.buffer("good", size=lambda: 3, capacity=4)
    with rl_otel.step(0):
        pass
    assert sizes(metrics.now()) == {"good": 3, "vast": 2**63 - 1}
    assert [point.value for point in metrics.now()["rl.buffer.capacity"]] == [4]
    assert "rl_otel: buffer('vast', capacity='endless'): not a whole number, left out" in caplog.messages


@recording
def test_a_queue_does_not_live_on_because_it_is_watched() -> None:
    """The object of a bound method is not kept alive; its gauge goes with it."""
    import gc
    import weakref

    generated: queue.Queue[int] = queue.Queue()
    gone = weakref.ref(generated)
    rl_otel.buffer("gen", size=generated.qsize)
    del generated
    gc.collect()
    assert gone() is None
    with rl_otel.step(0) as step:
        assert sizes(metrics.now()) == {}
    assert "async/gen_buffer_qsize" not in step.summary


def test_without_configure_a_buffer_is_ignored() -> None:
    """Before `configure` there is nothing to watch for."""
    rl_otel.buffer("gen", size=lambda: 1)
    with rl_otel.step(0) as step:
        pass
    assert step.summary == {}
