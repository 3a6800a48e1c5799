"""Exceptions of the host that strike at any place in the end of a span."""

from __future__ import annotations

import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from opentelemetry import trace

import rl_otel
from rl_otel import _runtime
from rl_otel._record import End
from rl_otel.testing import Traces
from tests.strikes import COMPILED, Strike


@pytest.mark.parametrize("name", ["generate", "env_step", "train"])
def test_a_span_is_recorded_once_wherever_its_end_is_struck(traces: Traces, name: str) -> None:
    """It is left, written once and counted once; where nothing of its end has begun it is open still."""
    with rl_otel.trajectory() as around:
        for at in count():
            span, strike = getattr(rl_otel, name)().start(), Strike(at)
            strike.during(span.end)
            if span.recording:
                span.end()
            assert rl_otel.current() is trace.get_current_span() is around
            if not strike.struck:
                break
    assert _runtime.active is not None
    assert not _runtime.active.in_flight.calls
    assert at > (2 if COMPILED else 10)
    all_are_there(traces, at + 2)


def test_a_span_that_is_added_is_recorded_once(traces: Traces) -> None:
    """`add` that is struck records its span once, or not at all, and the counts are those of the journal."""
    now = time.time_ns()
    with rl_otel.step(1):
        for at in count():
            strike = Strike(at)
            strike.during(lambda: rl_otel.add("env.step", now, now + 1))
            if not strike.struck:
                break
    ended = len([record for record in traces.records if isinstance(record, End)])
    assert at > ended > 5
    all_are_there(traces, ended)


@pytest.mark.once
def test_the_first_span_of_a_process_may_be_struck() -> None:
    """Wherever the beginning of the journal is struck, what ends next is in it."""
    for at in count():
        rl_otel.configure(run_dir="runs", run_id=f"r{at}")
        strike = Strike(at)
        strike.during(rl_otel.step(1).start)
        with rl_otel.env_step():
            pass
        report = rl_otel.shutdown()
        names = [span.name for span in Traces(Path(f"runs/r{at}")).spans]
        assert "env.step" in names
        assert (len(names), report.pending) == (report.kept, 0)
        if not strike.struck:
            break


def test_an_error_is_recorded_wherever_its_end_is_struck(traces: Traces) -> None:
    """The same holds for a span that an exception ends, which has more to write."""
    for at in count():
        span, strike = rl_otel.env_step().start(), Strike(at)
        strike.during(lambda span=span: span.end(ValueError("no")))  # type: ignore[misc]
        if span.recording:
            span.end()
        if not strike.struck:
            break
    all_are_there(traces, at + 1)


def all_are_there(traces: Traces, ended: int) -> None:
    """Check that so many spans ended, each is in the journal once, and none is counted as lost."""
    ids = Counter(record.span for record in traces.records if isinstance(record, End))
    assert set(ids.values()) == {1}
    report = rl_otel.shutdown()
    assert (len(ids), report.kept, report.dropped) == (ended, ended, 0)
