"""Which trajectories a step trains on: links, whoever made them and wherever they ran."""

from __future__ import annotations

from pathlib import Path

import pytest

import rl_otel
from rl_otel import _ids
from rl_otel.testing import Recorded, Traces
from tests import process


def linked(span: Recorded) -> list[tuple[str, str, str]]:
    """Return id, trace and span of the trajectories a span links to."""
    return [(link.attributes["rl.trajectory.id"], link.trace.hex(), link.span.hex()) for link in span.links]


def test_links_go_on_the_train_span_that_is_open(traces: Traces) -> None:
    """A trajectory that ran as a trace of its own is linked to by its id alone."""
    with rl_otel.trajectory("a") as first, rl_otel.generate():
        pass
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(["a"])
    assert linked(traces.one("train")) == [("a", first.trace_id, first.span_id)]
    assert traces.one("step").links == []


def test_before_training_they_wait_for_the_next_train_span(traces: Traces) -> None:
    """The first train span that opens in the step takes them, the second none."""
    with rl_otel.trajectory("a"):
        pass
    with rl_otel.step(0) as step:
        step.consume(["a", ("a", 2, 1)])
        for _ in range(2):
            with rl_otel.train():
                pass
    first, second = traces.all("train")
    assert [name for name, _, _ in linked(first)] == ["a", "a"]
    assert second.links == []


def test_without_training_the_step_has_them(traces: Traces) -> None:
    """A step that opens no train span keeps what it consumed."""
    with rl_otel.step(0) as step:
        with rl_otel.train():
            pass
        step.consume(["a"])
    assert [name for name, _, _ in linked(traces.one("step"))] == ["a"]


def test_a_trajectory_of_an_earlier_step_is_known_by_its_id(traces: Traces) -> None:
    """One that ran inside a rollout has ids of its own; this process remembers them."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory(group="g", sample=3) as played:
        pass
    with rl_otel.step(1) as step, rl_otel.train():
        step.consume([played.id])
    assert linked(traces.one("train")) == [("g/3", played.trace_id, played.span_id)]


def test_one_that_ran_elsewhere_is_derived(traces: Traces) -> None:
    """What this process has not seen gets the ids that its own process derives from run, restart and name."""
    with rl_otel.step(1) as step, rl_otel.train():
        step.consume([("far", 2, 3), 7])
    far, seven = (_ids.derive("captured", 0, "trajectory", *which) for which in (("far", 2, 3), ("7", 1, 1)))
    assert linked(traces.one("train")) == [
        ("far", far[0].hex(), far[1].hex()),
        ("7", seven[0].hex(), seven[1].hex()),
    ]


def test_a_forked_child_knows_what_its_parent_played() -> None:
    """A child that trains links to the spans of trajectories that ran in a step before the fork."""
    process.run(
        """
        import os, rl_otel
        rl_otel.configure(run_dir="runs", run_id="r")
        with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory("a"):
            pass
        if os.fork() == 0:
            with rl_otel.step(1) as step, rl_otel.train():
                step.consume(["a"])
            os._exit(0)
        os.wait()
        """
    )
    traces = Traces(Path("runs/r"))
    played = traces.one("trajectory")
    assert linked(traces.one("train")) == [("a", played.trace_id, played.span_id)]


@pytest.mark.parametrize("ids", [None, 5, "task/0", [("a",)], [("a", "x", 1)]])
def test_what_are_no_ids_is_one_line(traces: Traces, ids: object, caplog: pytest.LogCaptureFixture) -> None:
    """The host is told what to give, and goes on."""
    with rl_otel.step(1) as step:
        step.consume(ids)  # type: ignore[arg-type]
    assert traces.one("step").links == []
    (record,) = caplog.records
    assert record.getMessage().startswith("rl_otel: step.consume() takes ids or (id, attempt, segment): ")


def test_nothing_is_consumed_where_nothing_is_recorded() -> None:
    """Unconfigured, before the start and after the end it does nothing."""
    step = rl_otel.step(0)
    step.consume(["a"])
    with step:
        step.consume(["a"])
    step.consume(["a"])
    rl_otel.current("step").consume(["a"])
