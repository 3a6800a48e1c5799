"""Our spans as code of OpenTelemetry uses them: it may hand over anything, and nothing comes back at the run."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import StatusCode

import rl_otel
from rl_otel import _record, _safety
from rl_otel.testing import capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_otel.testing import Traces


class Boom:
    """What fails whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("boom")

    __repr__ = __str__


WRONG: list[Callable[[Any], Any]] = [
    lambda span: span.set_attribute("key", Boom()),
    lambda span: span.set_attribute(Boom(), 1),
    lambda span: span.set_attribute("key"),
    lambda span: span.set_attributes([1]),
    lambda span: span.add_event("event", {"key": Boom()}),
    lambda span: span.add_event(Boom()),
    lambda span: span.add_event("event", [("key", 1)]),
    lambda span: span.add_link(None),
    lambda span: span.set_status("ERROR"),
    lambda span: span.record_exception(ValueError("no"), [1]),
]


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_raises_nothing_and_costs_itself_alone(
    call: Callable[[Any], Any], traces: Traces, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span is recorded with what else it was told, and one line says what was wrong."""
    monkeypatch.setattr(_safety, "strict", False)
    with rl_otel.train() as train:
        assert call(train) is None
        train.set_attribute("right", 1)
    assert traces.one("train").attributes["right"] == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("rl_otel: internal error in ")


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_surfaces_in_a_strict_test(call: Callable[[Any], Any], traces: Traces) -> None:
    """Who tests traced code finds the mistake."""
    with rl_otel.train() as train, pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is
        call(train)


def test_an_attribute_that_cannot_be_read_costs_itself_alone(
    traces: Traces, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was set in the same call, before it or after, is recorded."""
    monkeypatch.setattr(_safety, "strict", False)
    with rl_otel.train() as train:
        train.set_attributes({"before": 1, "key": Boom(), "after": 2})
    assert traces.one("train").attributes == {"rl.phase": "train", "before": 1, "after": 2}


def test_a_description_of_a_status_is_a_text(traces: Traces) -> None:
    """Whatever describes a failure is recorded as it reads."""
    with rl_otel.train() as train:
        train.set_status(StatusCode.ERROR, 404)  # type: ignore[arg-type]
    assert (traces.one("train").status, traces.one("train").message) == ("error", "404")


@pytest.mark.parametrize("kind", [int, float])
def test_an_event_has_the_time_it_was_given(traces: Traces, kind: type) -> None:
    """Nanoseconds since the epoch are the event's time, to the precision of their type."""
    moment = kind(time.time_ns() - 5_000_000_000)
    with rl_otel.train() as train:
        train.add_event("tick", timestamp=moment)
    (event,) = traces.one("train").events
    assert (event.time, type(event.time)) == (int(moment), int)


@pytest.mark.parametrize(
    "moment",
    [time.time(), time.monotonic_ns(), 0, -1, float("nan"), "now", datetime.now(timezone.utc), [1, 2], True],
    ids=lambda moment: f"{type(moment).__name__} {moment}"[:20],
)
def test_an_event_at_no_possible_time_is_one_of_now(
    traces: Traces, caplog: pytest.LogCaptureFixture, moment: Any
) -> None:
    """Seconds, another clock or no number at all: the event is recorded at the time of the call, with one line."""
    with rl_otel.train() as train:
        train.add_event("tick", timestamp=moment)
    span = traces.one("train")
    (event,) = span.events
    assert span.start <= event.time <= span.end
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "rl_otel: the timestamp of an event must be nanoseconds since the epoch (time.time_ns()), not"
    )


def test_whatever_is_handed_over_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No combination of odd values makes a record that a reader cannot decode."""
    odd: list[Any] = [
        None,
        True,
        1 << 70,
        1.5,
        float("inf"),
        "\ud83d",
        b"\xff",
        [],
        [None],
        {},
        {1: Boom()},
        Boom(),
        set,
    ]
    with capture(strict=False) as traces:
        monkeypatch.setattr(_safety, "strict", False)
        for value in odd:
            with rl_otel.train() as train:
                train.set_attribute(value, value)
                train.set_attributes(value)
                train.add_event(value, {"key": value}, value)
                train.add_link(value, value)
                train.set_status(value, value)
                train.set_status(StatusCode.ERROR, value)
                train.record_exception(value, {"key": value}, value)
        assert len(traces.all("train")) == len(odd)
        for record in traces.records:
            assert _record.decode(_record.encode(record)) is not None
