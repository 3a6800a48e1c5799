"""Trajectories that are thrown away, and those that an update of the weights interrupts: told apart, counted once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel._analysis import Analysis
from rl_otel._read import Run
from rl_otel._table import step_lines
from tests import metrics

if TYPE_CHECKING:
    from rl_otel.testing import Traces

recording = pytest.mark.usefixtures("recording")


def play(name: str, environment: str = "maze", **how: Any) -> None:
    with rl_otel.trajectory(name, detached=True, **how), rl_otel.env_step(environment):
        pass


def counted(name: str) -> dict[tuple[str, ...], int]:
    """Return a counter by its labels, the mode left out."""
    return {
        tuple(value for key, value in sorted(point.attributes.items()) if key != "rl.mode"): point.value
        for point in metrics.now().get(name, [])
    }


@recording
def test_what_a_step_drops_is_counted_by_the_environment_it_was_played_in() -> None:
    """By ids it shows which tasks are starved; of numbers, and of what ran elsewhere, the environment is unknown."""
    play("quick", "maze")
    play("slow", "swe")
    play("again", "swe", attempt=2)
    with rl_otel.step(0) as step:
        step.record(dropped={"stale": ["slow", ("again", 2, 1), "elsewhere"], "overlong": 4})
    assert step.summary["dropped/stale"] == 3
    assert step.summary["dropped/overlong"] == 4
    assert counted("rl.trajectories.dropped") == {("swe", "stale"): 2, ("stale",): 1, ("overlong",): 4}


@recording
def test_what_a_rollout_drops_is_of_its_environment_unless_ids_tell_more() -> None:
    """A rollout of one environment needs no ids; those of an earlier one are known by theirs."""
    play("old", "swe")
    with rl_otel.step(0) as step, rl_otel.rollout() as rollout:
        with rl_otel.trajectory("new"), rl_otel.env_step("maze"):
            pass
        rollout.record(dropped={"stale": ["old"], "zero_variance": 1})
    assert counted("rl.trajectories.dropped") == {("swe", "stale"): 1, ("maze", "zero_variance"): 1}
    assert (step.summary["dropped/stale"], step.summary["dropped/zero_variance"]) == (1, 1)


@recording
def test_what_a_rollout_of_other_processes_drops_is_in_the_summary() -> None:
    """Nothing else is known here of trajectories that all ended elsewhere."""
    with rl_otel.step(0) as step, rl_otel.rollout() as rollout:
        rollout.record(dropped={"stale": 2})
    assert step.summary["dropped/stale"] == 2


@recording
def test_that_nothing_was_dropped_is_in_the_summary() -> None:
    """Zero that a step or a rollout has recorded is a point of the chart; of what nobody told there is none."""
    with rl_otel.step(0) as step:
        with rl_otel.rollout() as rollout:
            with rl_otel.trajectory("played"):
                pass
            rollout.record(dropped={"zero_variance": 0, "overlong": 2})
        step.record(dropped={"stale": [], "overlong": 0})
    told = {name: value for name, value in step.summary.items() if name.startswith("dropped/")}
    assert told == {"dropped/stale": 0, "dropped/zero_variance": 0, "dropped/overlong": 2}


@recording
def test_one_that_is_continued_counts_once_at_its_last_segment() -> None:
    """Two segments, cut by an update and then completed, are one completed trajectory; one cut for good is aborted."""
    with rl_otel.trajectory("a") as first, rl_otel.generate() as generation:
        generation.record(output_tokens=3)
        first.record(continues=True)
    with rl_otel.trajectory("a", segment=2), rl_otel.generate() as generation:
        generation.record(output_tokens=4)
    with rl_otel.trajectory("b") as last:
        last.record(outcome="aborted", reason="stale")
    assert counted("rl.trajectories") == {("completed",): 1, ("aborted",): 1}
    assert sum(point.proto.count for point in metrics.now()["rl.trajectory.duration"]) == 2
    assert sum(point.value for point in metrics.now()["rl.tokens"]) == 7


def test_a_rollout_tells_them_apart(traces: Traces) -> None:
    """Their tokens are in its totals, they themselves in a figure of their own."""
    with rl_otel.step(0) as step, rl_otel.rollout():
        for name, how in (("a", {"continues": True}), ("b", {}), ("c", {"outcome": "aborted"})):
            with rl_otel.trajectory(name) as trajectory, rl_otel.generate() as generation:
                generation.record(output_tokens=5)
                trajectory.record(how)
    rollout = traces.one("rollout").attributes
    assert rollout["rl.rollout.trajectories"] == 2
    assert rollout["rl.rollout.continued"] == 1
    assert (rollout["rl.rollout.outcome.completed"], rollout["rl.rollout.outcome.aborted"]) == (1, 1)
    assert rollout["rl.rollout.output_tokens"] == 15
    assert [span.attributes["rl.trajectory.outcome"] for span in traces.all("trajectory")] == [
        "aborted", "completed", "aborted",
    ]  # fmt: skip
    printed = " ".join(" ".join(step_lines(step.in_figures())).split())
    assert "2 trajectories: " in printed
    assert "; 1 aborted, 1 to be continued; 15 tok out" in printed


def test_a_report_counts_them_once_too() -> None:
    """Of trajectories outside any step the last segments are counted, of those inside as the rollout did."""
    rl_otel.configure(run_dir="runs", run_id="r1")
    for segment in (1, 2):
        with rl_otel.trajectory("a", segment=segment) as trajectory:
            if segment == 1:
                trajectory.record(continues=True)
    with rl_otel.step(0) as step, rl_otel.rollout():
        for segment in (1, 2):
            with rl_otel.trajectory("b", segment=segment) as trajectory:
                if segment == 1:
                    trajectory.record(continues=True)
        step.record(dropped={"stale": 1})
    rl_otel.shutdown()
    analysis = Analysis(Run(Path("runs/r1")))
    (report,) = analysis.steps()
    assert len(analysis.outside.durations) == 1
    training = report.figures.training
    assert training is not None
    assert (training.count, training.continued, report.figures.dropped) == (1, 1, {"stale": 1})
