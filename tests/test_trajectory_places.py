"""What is inside a trajectory, what outlasts it, and rollouts that have none: calls in batches."""

from __future__ import annotations

import contextvars
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel import _record

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_otel.testing import Traces


# --- trajectories with nothing around them ----------------------------------------------------------------------------


def _in_a_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def _play(*, detached: bool | None = None) -> None:
    for i in range(2):
        with rl_otel.trajectory(f"t{i}", detached=detached):
            pass


def test_a_thread_without_the_context_is_told_the_remedy_once(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Trajectories that a step's figures miss because nobody handed the context on are worth a line."""
    with rl_otel.step(0), rl_otel.rollout():
        _in_a_thread(_play)
        _in_a_thread(_play)
    assert {span.parent_id for span in traces.all("trajectory")} == {""}
    assert [message for message in caplog.messages if "nothing around it" in message] == [
        "rl_otel: trajectory t0 began with nothing around it while a step is open: it is a trace of its own, in no "
        "figure of that step. In a thread or an executor pass the function through rl_otel.bind(); if it belongs to no "
        "step, say detached=True"
    ]


def test_what_belongs_to_no_step_is_not_worth_a_word(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Bound, detached, or while no step is open, a trajectory stands where it was meant to."""
    _in_a_thread(_play)
    with rl_otel.step(0), rl_otel.rollout():
        _in_a_thread(rl_otel.bind(_play))
        _in_a_thread(partial(_play, detached=True))
    _in_a_thread(_play)
    assert not [message for message in caplog.messages if "nothing around it" in message]


# --- trajectories inside trajectories ---------------------------------------------------------------------------------


def test_an_agent_inside_an_agent_counts_once(traces: Traces) -> None:
    """A trajectory inside another is its child: the rollout counts the outer one, and the tokens of both."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory("outer", agent="planner"):
        with rl_otel.generate() as generation:
            generation.record(output_tokens=10)
        with rl_otel.trajectory("inner", agent="coder"), rl_otel.generate() as generation:
            generation.record(output_tokens=5)

    outer, inner = traces.all("trajectory")
    rollout = traces.one("rollout").attributes
    assert inner.parent_id == outer.span_id
    assert (outer.attributes["rl.agent.name"], inner.attributes["rl.agent.name"]) == ("planner", "coder")
    assert (outer.attributes["rl.trajectory.turns"], inner.attributes["rl.trajectory.turns"]) == (1, 1)
    assert (outer.attributes["rl.trajectory.output_tokens"], inner.attributes["rl.trajectory.output_tokens"]) == (10, 5)
    assert rollout["rl.rollout.trajectories"] == 1
    assert rollout["rl.rollout.output_tokens"] == 15
    assert rollout["rl.rollout.trajectory.duration.max"] * 1e9 == pytest.approx(outer.duration)
    assert [link.attributes["rl.trajectory.id"] for link in traces.one("rollout").links] == ["outer"]


def test_inside_an_own_trace_an_agent_has_a_parent(traces: Traces) -> None:
    """A trajectory inside a lone one is no second trace."""
    with rl_otel.trajectory("outer"), rl_otel.trajectory("inner"):
        pass

    outer, inner = traces.all("trajectory")
    assert (inner.trace_id, inner.parent_id) == (outer.trace_id, outer.span_id)


def test_directly_in_a_step_it_counts_all_the_same(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Who forgets the rollout gets one line that says so, and a step whose figures have the trajectory."""
    with rl_otel.step(0) as step:
        for _ in range(2):
            with rl_otel.trajectory(), rl_otel.env_step():
                pass
        summary = step.summary

    assert summary["generate/frac_time_in_env"] == 1.0
    assert summary["generate/trajectory_env_time_max"] > 0
    assert ["trajectory was opened directly inside step" in line for line in caplog.messages] == [True]
    assert [span.parent_id for span in traces.all("trajectory")] == [traces.one("step").span_id] * 2


# --- what outlasts its parent -----------------------------------------------------------------------------------------


def test_a_call_that_outlasts_its_trajectory_is_late(traces: Traces) -> None:
    """It is recorded and marked; the trajectory's closed totals do not have it."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory() as trajectory:
        generation = rl_otel.generate().start()
        reward = rl_otel.reward().start()
        env_step = rl_otel.env_step().start()
        trajectory.end()
        for late in (env_step, reward, generation):
            late.end()

    for name in ("generate", "env.step", "reward"):
        assert traces.one(name).attributes["rl.late"] is True
        assert traces.one(name).parent_id in {span.span_id for span in traces.spans}
    parts = {name for name in traces.one("trajectory").attributes if name.endswith(".duration")}
    assert parts == {"rl.trajectory.other.duration"}


def test_a_trajectory_that_outlasts_its_rollout_is_late(traces: Traces) -> None:
    """A straggler that ends while the step trains is no part of the rollout's closed figures, nor of the step's."""
    with rl_otel.step(0) as step:
        with rl_otel.rollout():
            task = contextvars.copy_context()
            straggler = task.run(rl_otel.trajectory("straggler").start)
            task.run(rl_otel.generate().start).end()
            with rl_otel.trajectory("in time"):
                pass
        task.run(straggler.end)
        counted = step.summary

    rollout = traces.one("rollout").attributes
    marked = {span.attributes["rl.trajectory.id"]: span.attributes.get("rl.late") for span in traces.all("trajectory")}
    assert marked == {"straggler": True, "in time": None}
    assert "generate/trajectory_llm_time_max" not in counted
    assert rollout["rl.rollout.trajectories"] == 1


def test_a_trajectory_still_open_when_its_step_ends_stays_in_its_trace(traces: Traces) -> None:
    """Its start record tells that it is open; what it does later is in the old step's trace, outside its figures."""
    with rl_otel.step(0), rl_otel.rollout():
        straggler = rl_otel.trajectory("straggler").start()
    ended = {record.span for record in traces.records if isinstance(record, _record.End)}
    [begun] = [r for r in traces.records if isinstance(r, _record.Start) and r.name == "trajectory"]
    assert begun.span.hex() == straggler.span_id
    assert begun.span not in ended

    with rl_otel.generate():
        pass
    straggler.end()

    step, trajectory, generate = (traces.one(name) for name in ("step", "trajectory", "generate"))
    assert generate.parent_id == trajectory.span_id
    assert generate.trace_id == trajectory.trace_id == step.trace_id
    assert generate.attributes["rl.step"] == 0
    assert trajectory.attributes["rl.late"] is True
    assert trajectory.attributes["rl.trajectory.turns"] == 1


# --- rollouts without trajectories ------------------------------------------------------------------------------------


def test_one_batched_call_needs_no_trajectory(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Directly under a rollout, lists give sums and the number of sequences, on the call and on the rollout."""
    with rl_otel.step(0), rl_otel.rollout() as rollout:
        for _ in range(2):
            with rl_otel.generate(model="qwen3-8b", provider="vllm") as generation:
                generation.record(input_tokens=[10, 20], output_tokens=[3, 5], finish_reasons=["stop", "length"])
        rollout.record(rewards=[0.0, 1.0, 0.5, 0.5])

    expected = {
        "rl.step": 0,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "qwen3-8b",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 8,
        "gen_ai.response.finish_reasons": ["stop", "length"],
        "rl.generate.purpose": "policy",
        "rl.generate.sequences": 2,
    }
    assert [span.attributes for span in traces.all("generate")] == [expected] * 2
    attributes = traces.one("rollout").attributes
    assert attributes["rl.rollout.input_tokens"] == 60
    assert attributes["rl.rollout.output_tokens"] == 16
    assert attributes["rl.reward.mean"] == 0.5
    assert "rl.rollout.trajectories" not in attributes
    assert caplog.records == []


def test_a_vector_environment_records_means(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A step of many environments at once has the mean of their rewards, and is done when all are."""
    with rl_otel.step(0), rl_otel.rollout():
        with rl_otel.env_reset("cartpole"):
            pass
        with rl_otel.env_step("cartpole") as env_step:
            env_step.record(reward=[0.0, 1.0, 1.0, 0.0], terminated=[True, False, True, True], truncated=[False] * 4)

    assert traces.one("env.step").attributes == {
        "rl.step": 0,
        "rl.environment.name": "cartpole",
        "rl.env.reward": 0.5,
        "rl.env.terminated": False,
        "rl.env.truncated": False,
    }
    assert traces.one("rollout").attributes["rl.rollout.env_time.ratio"] == 1.0
    assert caplog.records == []


def test_calls_directly_under_an_eval_are_in_place(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A batched evaluation is like a batched rollout, in eval's own figures and mode."""
    with rl_otel.step(0), rl_otel.eval() as evaluation:
        with rl_otel.generate() as generation:
            generation.record(output_tokens=[3, 5])
        evaluation.record(rewards=[1.0])

    assert traces.one("generate").attributes["rl.mode"] == "eval"
    assert traces.one("eval").attributes["rl.rollout.output_tokens"] == 8
    assert caplog.records == []
