"""`add`: spans that are only known afterwards, and clocks that are not the epoch's."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _safety
from rl_otel.testing import capture
from tests import needs

if TYPE_CHECKING:
    from rl_otel.testing import Traces

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rl_otel"]


# --- Wrong clocks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "length"),
    [
        (lambda: time.perf_counter() - 0.25, time.perf_counter, 0.25),
        (lambda: time.time() - 0.25, time.time, 0.25),
        (lambda: time.monotonic_ns() - SECOND // 4, time.monotonic_ns, 0.25),
        (lambda: -5, lambda: 5, 0.0),
        (lambda: -2.5, lambda: -2.25, 0.25),
        (time.time_ns, lambda: time.time_ns() - SECOND, 0.0),
        (lambda: time.time_ns() - 30 * 24 * HOUR, time.time_ns, 3600.0),
        (lambda: time.time_ns() + 2 * HOUR, lambda: time.time_ns() + 2 * HOUR + SECOND, 1.0),
        (lambda: datetime.datetime(2026, 1, 1), lambda: datetime.datetime(2026, 1, 1, 0, 0, 1), 1.0),  # noqa: DTZ001
        (lambda: datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc), time.time_ns, 3600.0),
        (lambda: float("nan"), time.time, 0.0),
        (lambda: 0.0, lambda: float("inf"), 0.0),
        (lambda: None, lambda: None, 0.0),
        (lambda: "yesterday", lambda: "today", 0.0),
        (lambda: [1, 2], time.time_ns, 0.0),
        (lambda: True, lambda: True, 0.0),
        (lambda: 10**30, lambda: 10**30, 0.0),
    ],
    ids=[
        "perf_counter", "seconds", "monotonic_ns", "negative", "negative float", "end first", "last month", "future",
        "naive", "year 1", "nan", "infinity", "none", "text", "list", "bool", "huge",
    ],
)  # fmt: skip
def test_times_of_a_wrong_clock_are_repaired(
    traces: Traces, caplog: pytest.LogCaptureFixture, start: Any, end: Any, length: float
) -> None:
    """The span is kept at the time of the call, as long as it was if that can be told, marked, with one line."""
    with rl_otel.rollout(), rl_otel.trajectory():
        before = time.time_ns()
        for _ in range(2):
            rl_otel.add("generate", start(), end(), output_tokens=7)
        after = time.time_ns()
    late = (after - before) / SECOND  # as much may lie between the two readings of a clock
    for span in traces.all("generate"):
        assert span.attributes["rl.time.repaired"] is True
        assert span.attributes["gen_ai.usage.output_tokens"] == 7
        assert before - SECOND // 10 <= span.end <= after + SECOND // 10
        assert length - 0.001 <= span.duration / SECOND <= length + late
        assert (span.trace_id, span.parent_id) == (traces.one("trajectory").trace_id, traces.one("trajectory").span_id)
    assert len(traces.all("generate")) == 2
    (line,) = lines(caplog)
    assert line.startswith("rl_otel: add('generate'): start and end must be nanoseconds since the epoch")


# --- Right clocks -----------------------------------------------------------------------------------------------------


def test_nanoseconds_since_the_epoch_are_taken_as_they_are(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Whole nanoseconds arrive to the digit; a float of nanoseconds is rounded, and neither is worth a word."""
    end = time.time_ns()
    rl_otel.add("env.step", end - 1001, end)
    rl_otel.add("env.reset", float(end - SECOND), float(end))
    step, reset = traces.one("env.step"), traces.one("env.reset")
    assert (step.start, step.end) == (end - 1001, end)
    assert (reset.start, reset.end) == (int(float(end - SECOND)), int(float(end)))
    assert "rl.time.repaired" not in {**step.attributes, **reset.attributes}
    assert lines(caplog) == []


@pytest.mark.parametrize("hours", [0, 2, -9])
def test_datetimes_with_a_zone_are_taken_to_the_microsecond(traces: Traces, hours: int) -> None:
    """A datetime of any zone is that moment."""
    zone = datetime.timezone(datetime.timedelta(hours=hours))
    end = datetime.datetime.now(zone)
    rl_otel.add("generate", end - datetime.timedelta(microseconds=1500), end)
    span = traces.one("generate")
    assert span.duration == 1_500_000
    assert span.end == int(end.timestamp()) * SECOND + end.microsecond * 1000


@needs.numpy
def test_numpy_integers_are_numbers(traces: Traces) -> None:
    """Times that come out of an array are taken like any others."""
    import numpy as np

    times = np.array([time.time_ns() - SECOND, time.time_ns()])
    rl_otel.add("generate", times[0], times[1])
    assert (traces.one("generate").start, traces.one("generate").end) == tuple(map(int, times))


# --- What is added ----------------------------------------------------------------------------------------------------


def moments(seconds: float = 1.0) -> tuple[int, int]:
    end = time.time_ns()
    return end - int(seconds * SECOND), end


@pytest.mark.parametrize(
    ("kind", "words", "attributes"),
    [
        ("env.step", {"environment": "swe", "tool": "grep", "reward": 1}, {"rl.environment.name": "swe",
         "gen_ai.tool.name": "grep", "rl.env.reward": 1.0}),
        ("env.reset", {"environment": "swe"}, {"rl.environment.name": "swe"}),
        ("generate", {"model": "m", "purpose": "judge", "input_tokens": 3}, {"gen_ai.request.model": "m",
         "rl.generate.purpose": "judge", "gen_ai.usage.input_tokens": 3}),
        ("trajectory", {"group": "g", "sample": 2, "reward": 0.5, "outcome": "truncated"}, {
         "rl.trajectory.id": "g/2", "rl.trajectory.reward": 0.5, "rl.trajectory.outcome": "truncated"}),
        ("train", {"model": "critic", "tokens": 9}, {"rl.phase": "train", "rl.model.role": "critic",
         "rl.train.tokens": 9}),
        ("wait", {"reason": "batch"}, {"rl.phase": "wait", "rl.wait.reason": "batch"}),
        ("my_phase", {"model": "critic"}, {"rl.phase": "my_phase", "rl.model.role": "critic"}),
        ("step", {"index": 7, "loss": 0.5}, {"rl.step": 7, "rl.loss": 0.5}),
    ],
)  # fmt: skip
def test_any_kind_takes_what_its_opener_and_its_record_take(
    traces: Traces, kind: str, words: dict[str, Any], attributes: dict[str, Any]
) -> None:
    """Words become the same attributes, of the same types, as on a span that was opened."""
    start, end = moments()
    handle = rl_otel.add(kind, start, end, **words)
    span = traces.one(kind)
    assert (span.start, span.end) == (start, end)
    assert {name: span.attributes.get(name) for name in attributes} == attributes
    assert {type(span.attributes[name]) for name in attributes} == {type(value) for value in attributes.values()}
    assert (handle.trace_id, handle.span_id, handle.ended) == (span.trace_id, span.span_id, True)


def test_it_becomes_a_child_of_what_is_open_and_is_never_current(traces: Traces) -> None:
    """By default the parent is the span that is open here, and stays the current one."""
    with rl_otel.step(0), rl_otel.rollout() as rollout:
        rl_otel.add("trajectory", *moments(), id="a")
        assert rl_otel.current() is rollout
    assert traces.tree() == "step\n  rollout\n    trajectory" or traces.one("trajectory").parent_id == rollout.span_id


def test_added_spans_nest_by_parent(traces: Traces) -> None:
    """The handle that `add` returns is a parent for the next, also where something else is open."""
    with rl_otel.step(3):
        with rl_otel.rollout() as rollout:
            pass
        with rl_otel.train():
            trajectory = rl_otel.add("trajectory", *moments(2), parent=rollout, id="a")
            rl_otel.add("generate", *moments(), parent=trajectory)
    spans = {span.name: span for span in traces.spans}
    assert spans["trajectory"].parent_id == spans["rollout"].span_id
    assert spans["generate"].parent_id == spans["trajectory"].span_id
    assert {span.trace_id for span in traces.spans} == {spans["step"].trace_id}
    assert spans["generate"].attributes["rl.step"] == 3


def test_a_given_parent_comes_before_a_span_of_another_library(traces: Traces) -> None:
    """What is current does not matter to a span whose parent was named."""
    from opentelemetry import trace

    with rl_otel.step(0), rl_otel.rollout() as rollout, trace.get_tracer("library").start_as_current_span("http"):
        rl_otel.add("trajectory", *moments(), parent=rollout, id="named")
        rl_otel.add("trajectory", *moments(), id="ambient")
    parents = {span.attributes["rl.trajectory.id"]: span.parent_id for span in traces.all("trajectory")}
    assert parents == {"named": traces.one("rollout").span_id, "ambient": traces.one("http").span_id}


def test_without_anything_open_it_is_a_trace_of_its_own(traces: Traces) -> None:
    """Added where nothing is open, and with the null object for a parent, it is a root."""
    rl_otel.add("checkpoint", *moments(), parent=rl_otel.current())
    assert traces.one("checkpoint").parent_id == ""


def test_the_kind_may_be_the_openers_name(traces: Traces) -> None:
    """`env_step` is the environment's step, and no phase of that name."""
    with rl_otel.rollout(), rl_otel.trajectory():
        rl_otel.add("env_step", *moments(), environment="swe", reward=1.0)
    assert traces.one("env.step").attributes["rl.env.reward"] == 1.0
    assert traces.one("env.step").attributes["rl.environment.name"] == "swe"


def test_an_added_trajectory_has_no_parts(traces: Traces) -> None:
    """What happened inside it is not known, so no part of its duration is told; the rollout counts it."""
    with rl_otel.step(0), rl_otel.rollout():
        rl_otel.add("trajectory", *moments(), id="a", reward=1.0)
    trajectory = traces.one("trajectory")
    assert not [name for name in trajectory.attributes if name.endswith(".duration")]
    assert traces.one("rollout").attributes["rl.rollout.trajectories"] == 1


def test_a_word_that_nobody_knows_is_a_custom_attribute() -> None:
    """As with `record`, what is no word of the span keeps its name under `rl.custom.`."""
    with capture(strict=False) as traces:
        rl_otel.add("generate", *moments(), engine="vllm-7")
        assert traces.one("generate").attributes["rl.custom.engine"] == "vllm-7"


def test_an_error_of_ours_gives_the_null_object(
    traces: Traces, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments that no span can be made of raise nothing, and what comes back takes `record`."""
    monkeypatch.setattr(_safety, "strict", False)
    handle = rl_otel.add(["no", "name"], *moments())  # type: ignore[arg-type]
    handle.record(reward=1)
    assert not handle
    assert len(lines(caplog)) == 1
