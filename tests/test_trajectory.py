"""The trajectory span: who it is, how it ended, what its turns and parts are, and what belongs to it."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _record
from rl_otel.testing import capture

if TYPE_CHECKING:
    from rl_otel.testing import Recorded, Traces


def of(span: Recorded, *names: str) -> tuple[Any, ...]:
    """Return attributes of a trajectory, None for what is not there."""
    return tuple(span.attributes.get(f"rl.{name}") for name in names)


# --- identity ---------------------------------------------------------------------------------------------------------


def test_it_says_who_it_is(traces: Traces) -> None:
    """Id, group, sample, attempt, segment and agent are attributes of exact types, from the moment it begins."""
    with (
        rl_otel.step(7),
        rl_otel.rollout(),
        rl_otel.trajectory(group=17, sample=3, attempt=2, segment=1, agent="coder"),
    ):
        [begun] = [r for r in traces.records if isinstance(r, _record.Start) and r.name == "trajectory"]

    expected = {
        "rl.step": 7,
        "rl.trajectory.id": "17/3",
        "rl.group.id": "17",
        "rl.sample.index": 3,
        "rl.attempt": 2,
        "rl.segment": 1,
        "rl.agent.name": "coder",
    }
    assert begun.attributes == expected
    assert expected.items() <= traces.one("trajectory").attributes.items()


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        ({"id": "task-a"}, "task-a"),
        ({"id": 12, "group": 1, "sample": 2}, "12"),
        ({"group": "swe-1", "sample": 0}, "swe-1/0"),
        ({"sample": 5}, "5"),
        ({}, "0"),
        ({"group": "swe-1"}, "swe-1/0"),
    ],
)
def test_its_id_is_what_people_call_it(traces: Traces, called: dict[str, Any], expected: str) -> None:
    """The id given, else group and sample, else a number within the rollout; `trajectory.id` tells it."""
    with rl_otel.rollout(), rl_otel.trajectory(**called) as trajectory:
        assert trajectory.id == expected

    assert traces.one("trajectory").attributes["rl.trajectory.id"] == expected


def test_without_a_name_they_are_numbered_in_their_rollout(traces: Traces) -> None:
    """Trajectories without a sample are told apart, and each rollout counts anew."""
    ids = []
    for _ in range(2):
        with rl_otel.rollout():
            for _ in range(3):
                with rl_otel.trajectory() as trajectory:
                    ids.append(trajectory.id)

    assert ids == ["0", "1", "2"] * 2
    assert len(traces.all("trajectory")) == 6


def test_a_repeated_id_within_a_step_is_left_as_it_is(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Inside a step joins go by span ids: the same sample tried twice keeps its name."""
    with rl_otel.step(0), rl_otel.rollout():
        for attempt in (1, 2):
            with rl_otel.trajectory("a", attempt=attempt):
                pass

    assert [of(span, "trajectory.id", "attempt") for span in traces.all("trajectory")] == [("a", 1), ("a", 2)]
    assert caplog.records == []


# --- a trace of its own -----------------------------------------------------------------------------------------------


def test_outside_a_step_it_is_a_trace_of_its_own(traces: Traces) -> None:
    """Without a step it is a root, its calls are in its trace, and no step is on any of them."""
    with rl_otel.trajectory("a"), rl_otel.generate():
        pass

    [root] = traces.roots
    assert (root.name, root.parent_id) == ("trajectory", "")
    assert traces.one("generate").trace_id == root.trace_id
    assert all("rl.step" not in span.attributes for span in traces.spans)


def test_its_ids_follow_from_its_name_alone() -> None:
    """Another process that knows run, id, attempt and segment derives the same trace and span."""
    seen = []
    for _ in range(2):
        with capture(run_id="run"):
            for called in ({}, {"attempt": 1, "segment": 1}, {"attempt": 2}, {"segment": 2}):
                with rl_otel.trajectory("a", **called) as trajectory:
                    seen.append((trajectory.trace_id, trajectory.span_id))

    first, second = seen[:4], seen[4:]
    assert first == second
    assert len(set(first)) == 4


def test_a_repeated_id_gets_a_number_and_one_log_line(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Alone it must be unique in the run: the second is `a#2`, the third `a#3`, and the host is told once."""
    ids = []
    for _ in range(3):
        with rl_otel.trajectory("a") as trajectory:
            ids.append(trajectory.id)

    assert ids == ["a", "a#2", "a#3"]
    assert [span.attributes["rl.trajectory.id"] for span in traces.spans] == ids
    assert len({span.trace_id for span in traces.spans}) == 3
    [line] = caplog.messages
    assert "'a'" in line
    assert "'a#2'" in line


def test_another_attempt_or_segment_is_no_repetition(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A trajectory started anew or continued keeps its id, in a trace of its own."""
    for called in ({"attempt": 1}, {"attempt": 2}, {"attempt": 2, "segment": 2}):
        with rl_otel.trajectory("a", **called):
            pass

    assert {span.attributes["rl.trajectory.id"] for span in traces.spans} == {"a"}
    assert len({span.trace_id for span in traces.spans}) == 3
    assert caplog.records == []


def test_without_a_name_it_is_unique_in_the_run(traces: Traces) -> None:
    """Lone trajectories of two processes must not have the same id, so theirs begin with the process's."""
    for _ in range(2):
        with rl_otel.trajectory():
            pass

    process = next(record for record in traces.records if isinstance(record, _record.Process))
    instance = process.resource["service.instance.id"][:8]
    assert [span.attributes["rl.trajectory.id"] for span in traces.spans] == [f"{instance}-0", f"{instance}-1"]


def test_detached_it_leaves_the_step_it_is_in(traces: Traces) -> None:
    """`detached=True` makes it a trace of its own, outside the step's figures, with all that is inside it."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory("a", detached=True), rl_otel.generate():
        pass

    step, trajectory, generate = (traces.one(name) for name in ("step", "trajectory", "generate"))
    assert trajectory.parent_id == ""
    assert generate.trace_id == trajectory.trace_id != step.trace_id
    assert "rl.step" not in generate.attributes
    assert "rl.rollout.trajectories" not in traces.one("rollout").attributes


def test_detached_inside_eval_it_still_evaluates(traces: Traces) -> None:
    """The mode is inherited by what becomes a trace of its own, or it would count as training."""
    with rl_otel.step(0), rl_otel.eval(), rl_otel.trajectory("a", detached=True), rl_otel.generate():
        pass

    assert traces.one("trajectory").attributes["rl.mode"] == "eval"
    assert traces.one("generate").attributes["rl.mode"] == "eval"


# --- how it ended -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_step", "generation", "expected"),
    [
        ({}, {}, "completed"),
        ({"terminated": True}, {}, "completed"),
        ({"truncated": True}, {}, "truncated"),
        ({"terminated": False, "truncated": False}, {}, "completed"),
        ({"terminated": True, "truncated": True}, {}, "completed"),
        ({}, {"finish_reason": "length"}, "truncated"),
        ({}, {"finish_reason": "stop"}, "completed"),
        ({"terminated": True}, {"finish_reason": "length"}, "completed"),
    ],
)
def test_its_outcome_is_what_its_last_calls_say(
    traces: Traces, env_step: dict[str, Any], generation: dict[str, Any], expected: str
) -> None:
    """Who says nothing gets the outcome from the last environment step's flags and the last finish reason."""
    with rl_otel.rollout(), rl_otel.trajectory():
        for last in (False, True):
            with rl_otel.generate() as handle:
                handle.record(generation if last else {"finish_reason": "length"})
            with rl_otel.env_step() as handle:
                handle.record(env_step if last else {"truncated": True})

    assert of(traces.one("trajectory"), "trajectory.outcome") == (expected,)


@pytest.mark.parametrize(
    ("error", "outcome", "status"),
    [
        (builtins.TimeoutError("slow"), "timeout", "error"),
        (asyncio.TimeoutError(), "timeout", "error"),
        (asyncio.CancelledError(), "aborted", "unset"),
        (KeyboardInterrupt(), "aborted", "unset"),
        (SystemExit(1), "aborted", "unset"),
        (ValueError("parse"), "error", "error"),
    ],
)
def test_its_outcome_is_what_it_was_left_with(traces: Traces, error: BaseException, outcome: str, status: str) -> None:
    """An exception that leaves it says how it ended, and goes on unchanged."""
    with rl_otel.rollout(), pytest.raises(type(error)) as raised, rl_otel.trajectory():
        raise error

    assert raised.value is error
    span = traces.one("trajectory")
    assert (*of(span, "trajectory.outcome"), span.status) == (outcome, status)


def test_what_the_trainer_says_of_its_outcome_stands(traces: Traces) -> None:
    """A recorded outcome is not replaced by flags or an exception; its reason is beside it."""
    with rl_otel.rollout(), contextlib.suppress(ValueError), rl_otel.trajectory() as trajectory:
        with rl_otel.env_step() as env_step:
            env_step.record(truncated=True)
        trajectory.record(outcome="aborted", reason="over budget")
        raise ValueError

    span = traces.one("trajectory")
    assert of(span, "trajectory.outcome", "trajectory.reason") == ("aborted", "over budget")


def test_an_outcome_that_nobody_knows_is_left_out(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """What is none of the five outcomes costs one line, and the outcome is what is known without it."""
    with rl_otel.rollout():
        with rl_otel.trajectory() as trajectory:
            trajectory.record(outcome="solved", reason="all tests pass", reward=1.0)
        with contextlib.suppress(ValueError), rl_otel.trajectory() as trajectory:
            trajectory.record(outcome="solved")
            raise ValueError
    solved, failed = traces.all("trajectory")
    assert of(solved, "trajectory.outcome", "trajectory.reason") == ("completed", "all tests pass")
    assert of(failed, "trajectory.outcome") == ("error",)
    (record,) = caplog.records
    assert record.getMessage() == (
        "rl_otel: trajectory: outcome='solved' is none of completed, truncated, aborted, timeout, error, "
        "and is left out"
    )


def test_a_purpose_that_nobody_knows_is_left_out(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A call for another purpose is recorded without one, and is no call of the policy."""
    with rl_otel.rollout(), rl_otel.trajectory():
        with rl_otel.generate(purpose="critic") as generation:
            generation.record(output_tokens=5)
        with rl_otel.generate(purpose="user"):
            pass
    critic, user = traces.all("generate")
    assert "rl.generate.purpose" not in critic.attributes
    assert user.attributes["rl.generate.purpose"] == "user"
    assert "rl.trajectory.output_tokens" not in traces.one("trajectory").attributes
    (record,) = caplog.records
    assert record.getMessage() == (
        "rl_otel: generate: purpose='critic' is none of policy, judge, user, and is left out"
    )


# --- turns, tokens, versions ------------------------------------------------------------------------------------------


def test_turns_are_the_policys_calls(traces: Traces) -> None:
    """Each call of the policy begins a turn; the environment's calls and a judge's belong to the turn before."""
    with rl_otel.rollout(), rl_otel.trajectory():
        with rl_otel.env_reset("swe"):
            pass
        for _ in range(2):
            with rl_otel.generate():
                pass
            for _ in range(2):
                with rl_otel.env_step("swe", tool="bash"):
                    pass
        with rl_otel.reward(), rl_otel.generate(purpose="judge"):
            pass

    assert of(traces.one("trajectory"), "trajectory.turns") == (2,)
    assert traces.one("env.reset").attributes["rl.turn"] == 0
    assert [span.attributes["rl.turn"] for span in traces.all("env.step")] == [1, 1, 2, 2]
    assert [(*of(span, "turn", "generate.purpose"),) for span in traces.all("generate")] == [
        (1, "policy"), (2, "policy"), (2, "judge"),
    ]  # fmt: skip
    assert [span.attributes["gen_ai.tool.name"] for span in traces.all("env.step")] == ["bash"] * 4


def test_without_the_policys_calls_environment_steps_are_turns(traces: Traces) -> None:
    """An engine that nobody traces leaves the environment's steps to count."""
    with rl_otel.rollout(), rl_otel.trajectory():
        for _ in range(3):
            with rl_otel.env_step():
                pass

    assert of(traces.one("trajectory"), "trajectory.turns") == (3,)


def test_tokens_are_the_policys_alone(traces: Traces) -> None:
    """A judge's tokens are on its span, and in no sum of the trajectory; what nobody said is not there, nor 0."""
    with rl_otel.rollout(), rl_otel.trajectory():
        for tokens in (3, 4):
            with rl_otel.generate() as generation:
                generation.record(output_tokens=tokens)
        with rl_otel.reward(), rl_otel.generate(purpose="judge") as generation:
            generation.record(input_tokens=1000, output_tokens=1000)

    span = traces.one("trajectory")
    assert of(span, "trajectory.output_tokens", "trajectory.input_tokens") == (7, None)


def test_versions_are_those_of_its_calls(traces: Traces) -> None:
    """`weight_sync` sets the version that calls carry from then on, `generate` overrides: first and last are kept."""
    with rl_otel.step(0):
        with rl_otel.weight_sync() as sync:
            sync.record(policy_version=3)
        with rl_otel.rollout(), rl_otel.trajectory():
            for override in (None, 5, None):
                with rl_otel.generate(policy_version=override):
                    pass
            with rl_otel.generate(purpose="judge"):
                pass

    assert [of(span, "policy.version") for span in traces.all("generate")] == [(3,), (5,), (3,), (None,)]
    assert of(traces.one("trajectory"), "policy.version.first", "policy.version.last") == (3, 3)


@pytest.mark.parametrize(
    ("synced", "begun", "calls", "recorded", "expected"),
    [
        (None, None, [], None, (None, None)),
        (None, None, [4, 5], None, (4, 5)),
        (3, None, [], None, (3, 3)),
        (3, None, [4], None, (4, 4)),
        (None, 2, [None], None, (2, 2)),
        (None, 2, [4], None, (2, 4)),
        (None, None, [4], 6, (4, 6)),
        (None, None, [], 6, (6, 6)),
    ],
)
def test_versions_come_from_who_knows_best(
    traces: Traces, *, synced: int | None, begun: int | None, calls: list[int], recorded: int | None, expected: Any
) -> None:
    """The trainer's word for beginning and end, between them its calls', else the process's version when it began."""
    if synced is not None:
        with rl_otel.weight_sync() as sync:
            sync.record(policy_version=synced)
    with rl_otel.rollout(), rl_otel.trajectory(policy_version=begun) as trajectory:
        for version in calls:
            with rl_otel.generate(policy_version=version):
                pass
        trajectory.record(policy_version=recorded)

    assert of(traces.one("trajectory"), "policy.version.first", "policy.version.last") == expected
    assert "rl.policy.version" not in traces.one("trajectory").attributes
