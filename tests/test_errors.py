"""Exceptions of the host: recorded by type and message, told apart by intent, and raised on untouched."""

from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _runtime, _safety
from tests import process

if TYPE_CHECKING:
    from rl_otel.testing import Recorded, Traces

OPENERS = [rl_otel.step, rl_otel.rollout, rl_otel.trajectory, rl_otel.generate, rl_otel.env_step, rl_otel.train]


class Library:
    Broken = type("Broken", (Exception,), {"__qualname__": "Library.Broken"})


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised_in(opener: Any, error: BaseException) -> BaseException:
    """Return what leaves a span in which `error` is raised."""
    try:
        with opener():
            raise error
    except BaseException as left:
        return left


def exception_event(span: Recorded) -> dict[str, Any]:
    (event,) = [event for event in span.events if event.name == "exception"]
    assert span.start <= event.time <= span.end
    return event.attributes


# --- The exception itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError, TimeoutError])
def test_an_exception_leaves_untouched(traces: Traces, opener: Any, kind: type[BaseException]) -> None:
    """The same object leaves, with its arguments, cause, context, notes and frames as without us."""
    error, cause, context = kind("no", 1), KeyError(), LookupError()
    error.__cause__, error.__context__, error.__suppress_context__ = cause, context, False
    assert raised_in(opener, error) is error
    assert error.args == ("no", 1)
    assert (error.__cause__, error.__context__, error.__suppress_context__) == (cause, context, False)
    assert not getattr(error, "__notes__", [])
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["raised_in"]


def test_an_exception_while_another_is_handled_keeps_its_context(traces: Traces) -> None:
    """A span opened and left inside an `except` block changes no chain of exceptions."""
    first, second = ValueError("first"), KeyError("second")
    try:
        raise first
    except ValueError:
        with rl_otel.step(0):
            pass
        assert raised_in(rl_otel.step, second) is second
    assert second.__context__ is first
    assert first.__context__ is None


@pytest.mark.parametrize("opener", OPENERS)
def test_an_error_is_recorded_by_type_and_message(traces: Traces, opener: Any) -> None:
    """Status error, one event and `error.type`, each with the qualified name and the words of the exception."""
    raised_in(opener, Library.Broken("went", 2))
    (span,) = traces.spans
    assert (span.status, span.message) == ("error", "Library.Broken: ('went', 2)")
    assert span.attributes["error.type"] == "Library.Broken"
    assert exception_event(span) == {"exception.type": "Library.Broken", "exception.message": "('went', 2)"}
    assert "rl.aborted" not in span.attributes


def test_each_span_that_an_error_leaves_is_marked(traces: Traces) -> None:
    """An error passes through its spans up to where it is caught, and no further."""
    with rl_otel.step(0):
        with pytest.raises(ValueError, match="no"), rl_otel.rollout(), rl_otel.trajectory():  # noqa: SIM117
            with rl_otel.generate():
                raise ValueError("no")
        with rl_otel.train():
            pass
    assert {span.name: span.status for span in traces.spans} == {
        "step": "unset",
        "rollout": "error",
        "trajectory": "error",
        "generate": "error",
        "train": "unset",
    }


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Mute(), "<Mute without a message>"),
        (ValueError(), ""),
        (ValueError("half \ud83d an emoji"), "half \N{REPLACEMENT CHARACTER} an emoji"),
        (ValueError("\ud83d" * 3000), "\N{REPLACEMENT CHARACTER}" * 682),
        (KeyError("key"), "'key'"),
        (ValueError("ü" * 5000), "ü" * 1024),
    ],
    ids=["mute", "empty", "surrogate", "surrogates", "key", "long"],
)
def test_any_message_is_recorded_as_valid_text(traces: Traces, error: Exception, message: str) -> None:
    """Whatever an exception says, or fails to say, comes out as at most 2 KB of valid UTF-8."""
    assert raised_in(rl_otel.generate, error) is error
    span = traces.one("generate")
    assert exception_event(span)["exception.message"] == message
    kind = type(error).__name__
    assert span.message == (f"{kind}: {message}" if message else kind)


def test_a_broken_text_takes_no_neighbour_with_it(traces: Traces) -> None:
    """Of a hundred spans the fiftieth fails with half an emoji, and a hundred are recorded."""
    with rl_otel.trajectory():
        for i in range(100):
            raised_in(rl_otel.generate, ValueError("\ud83d")) if i == 50 else rl_otel.generate().start().end()
    assert Counter(span.status for span in traces.all("generate")) == {"unset": 99, "error": 1}


def test_end_takes_the_exception_of_a_callback(traces: Traces) -> None:
    """`end(error)` records it as leaving a `with` does, and raises nothing."""
    handle = rl_otel.train().start()
    handle.end(ValueError("nan in loss"))
    assert (traces.one("train").status, traces.one("train").message) == ("error", "ValueError: nan in loss")


def test_an_error_wins_over_a_status_set_before(traces: Traces) -> None:
    """What a library called fine and then failed, failed."""
    from opentelemetry.trace import StatusCode

    generation = rl_otel.generate().start()
    generation.set_status(StatusCode.OK)
    generation.end(ValueError("no"))
    assert (traces.one("generate").status, traces.one("generate").message) == ("error", "ValueError: no")


# --- What was intended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        KeyboardInterrupt(),
        GeneratorExit(),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__module__ + type(error).__name__,
)
@pytest.mark.parametrize("opener", OPENERS)
def test_what_was_asked_for_is_aborted_and_no_error(traces: Traces, opener: Any, error: BaseException) -> None:
    """Cancelled, interrupted, closed, left by `sys.exit`: marked by the exception's name, status unset, no event."""
    assert raised_in(opener, error) is error
    (span,) = traces.spans
    assert (span.status, span.message, span.events) == ("unset", "", [])
    assert span.attributes["rl.aborted"] == type(error).__name__
    assert "error.type" not in span.attributes
    if opener is rl_otel.trajectory:
        assert span.attributes["rl.trajectory.outcome"] == "aborted"


@pytest.mark.parametrize("error", [StopIteration(3), StopAsyncIteration()])
@pytest.mark.parametrize("opener", OPENERS)
def test_the_end_of_an_iterator_is_no_failure(traces: Traces, opener: Any, error: Exception) -> None:
    """`with data(): batch = next(loader)` ends the loop around it, and neither fails nor aborts the span."""
    assert raised_in(opener, error) is error
    (span,) = traces.spans
    assert (span.status, span.message, span.events) == ("unset", "", [])
    assert not {"rl.aborted", "error.type"} & span.attributes.keys()
    if opener is rl_otel.trajectory:
        assert span.attributes["rl.trajectory.outcome"] == "completed"


class EngineTimeoutError(TimeoutError):
    pass


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TimeoutError(), "timeout"),
        (asyncio.TimeoutError(), "timeout"),
        (concurrent.futures.TimeoutError(), "timeout"),
        (EngineTimeoutError(), "timeout"),
        (OSError(), "error"),
    ],
)
def test_a_timeout_that_leaves_a_trajectory_is_its_outcome(traces: Traces, error: Exception, outcome: str) -> None:
    """A TimeoutError of any library or kind is `timeout`; any other exception is `error`; both fail the span."""
    raised_in(rl_otel.trajectory, error)
    span = traces.one("trajectory")
    assert (span.status, span.attributes["rl.trajectory.outcome"]) == ("error", outcome)


def test_an_outcome_that_was_recorded_stands(traces: Traces) -> None:
    """The trainer knows better than the exception why a trajectory ended."""
    trajectory = rl_otel.trajectory().start()
    trajectory.record(outcome="truncated", reason="budget")
    trajectory.end(ValueError("no"))
    span = traces.one("trajectory")
    assert span.attributes["rl.trajectory.outcome"] == "truncated"
    assert span.attributes["rl.trajectory.reason"] == "budget"


async def test_outcomes_of_ten_trajectories(traces: Traces) -> None:
    """Three cancelled, one raised, one timed out, five fine: all are recorded so, and each task ends as it would."""

    async def play(i: int) -> int:
        with rl_otel.trajectory(i), rl_otel.generate():
            await asyncio.sleep(0)
            if i == 3:
                raise ValueError("no")
            if i == 4:
                await asyncio.wait_for(asyncio.sleep(60), 0.01)
            if i < 3:
                await asyncio.sleep(60)
        return i

    with rl_otel.step(0), rl_otel.rollout():
        tasks = [asyncio.create_task(play(i)) for i in range(10)]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks[:3]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.cancelled() for task in tasks] == [True] * 3 + [False] * 7
    assert isinstance(ended[3], ValueError)
    assert isinstance(ended[4], asyncio.TimeoutError)
    assert ended[5:] == [5, 6, 7, 8, 9]
    outcomes = Counter(span.attributes["rl.trajectory.outcome"] for span in traces.all("trajectory"))
    assert outcomes == {"completed": 5, "aborted": 3, "error": 1, "timeout": 1}
    rollout = traces.one("rollout")
    assert (rollout.status, rollout.attributes["rl.rollout.trajectories"]) == ("unset", 10)
    assert Counter(span.status for span in traces.all("generate")) == {"unset": 8, "error": 2}


# --- The whole process ------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, rl_otel
if sys.argv[1] == "traced":
    rl_otel.configure(run_dir="runs", run_id="one")
with rl_otel.step(0):
    with rl_otel.train():
        {ending}
"""


@pytest.mark.parametrize("ending", ["sys.exit(7)", "raise KeyboardInterrupt", "raise ValueError('no')", "1 / 0"])
def test_a_program_ends_as_it_would_untraced(ending: str) -> None:
    """Exit code, standard output and the printed traceback are the same, traced or not."""
    script = PROGRAM.format(ending=ending)
    plain, traced = (process.run(script, how, check=False) for how in ("plain", "traced"))
    assert plain.returncode != 0
    assert (traced.returncode, traced.stdout, traced.stderr) == (plain.returncode, plain.stdout, plain.stderr)


# --- Errors of our own ------------------------------------------------------------------------------------------------


def test_an_error_of_ours_is_one_line_and_never_raised(
    traces: Traces, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails inside rl_otel, the host goes on; the log says what is missing, once."""
    monkeypatch.setattr(_safety, "strict", False)

    with rl_otel.step(0) as step:
        with monkeypatch.context() as broken:
            broken.setattr(step, "_take_all", lambda words: 1 / 0)
            for _ in range(5):
                step.record(samples=2)
        step.record(samples=3)
    assert traces.one("step").attributes["rl.samples"] == 3
    lines = [record.getMessage() for record in caplog.records if record.name == "rl_otel"]
    assert lines == [
        "rl_otel: internal error in record() of step, your run goes on without this piece of telemetry: "
        "ZeroDivisionError: division by zero"
    ]


def test_a_journal_that_fails_again_as_a_call_is_made_up_for_is_not_the_hosts_problem(
    traces: Traces, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call inside a trajectory takes a way of its own, and raises nothing either."""
    monkeypatch.setattr(_safety, "strict", False)
    assert _runtime.active is not None
    with rl_otel.trajectory():
        with monkeypatch.context() as broken:
            broken.setattr(type(_runtime.active.journal), "end", lambda journal, record: 1 / 0)
            with rl_otel.generate():
                result = 42
        with rl_otel.env_step():
            pass
    assert result == 42
    assert traces.tree() == "trajectory\n  env.step"
    assert "internal error in generate left" in caplog.text


@pytest.mark.parametrize(("method", "where"), [("append", "entered"), ("end", "left")])
def test_a_broken_journal_is_not_the_hosts_problem(
    traces: Traces, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, method: str, where: str
) -> None:
    """An error while a span begins or ends leaves the host's result, and its next span, as they are."""
    monkeypatch.setattr(_safety, "strict", False)
    assert _runtime.active is not None
    with monkeypatch.context() as broken:
        broken.setattr(type(_runtime.active.journal), method, lambda journal, record: 1 / 0)
        with rl_otel.train():
            result = 42
    assert result == 42
    assert not rl_otel.current()
    with rl_otel.step(1):
        pass
    assert (traces.one("step").parent_id, traces.one("step").status) == ("", "unset")
    line = f"internal error in train {where}, your run goes on without this piece of telemetry: ZeroDivisionError"
    assert line in caplog.records[0].getMessage()
