"""The thread that looks after what is open: a call that lasts gets its start record."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel import _keeper
from rl_otel._record import End, Start
from rl_otel.testing import capture
from tests.waiting import until

if TYPE_CHECKING:
    from rl_otel.testing import Traces


def starts(traces: Traces) -> list[str]:
    """Return what has begun but for steps, phases and trajectories, which are written at once."""
    return [record.name for record in traces.records if isinstance(record, Start) and record.name in CALLS]


CALLS = {"generate", "env.step", "env.reset"}


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_keeper, "TICK", 0.02)


def test_a_call_that_lasts_gets_its_start_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generate that is open for long is in the journal while it is open, once, as its end will be."""
    monkeypatch.setattr(_keeper, "LONG", 0)
    with capture() as traces, rl_otel.trajectory("t"):
        with rl_otel.generate(model="m") as generation:
            until(lambda: starts(traces))
            with rl_otel.env_step():
                until(lambda: "env.step" in starts(traces))  # so it has looked again
            assert starts(traces) == ["generate", "env.step"]
        (start,) = (record for record in traces.records if isinstance(record, Start) and record.name == "generate")
        (end,) = (record for record in traces.records if isinstance(record, End) and record.name == "generate")
    assert (start.trace, start.span, start.parent, start.start) == (end.trace, end.span, end.parent, end.start)
    assert start.span.hex() == generation.span_id
    assert start.attributes["gen_ai.request.model"] == "m"


def test_each_of_several_calls_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in flight at once are told apart, those that have ended are left out."""
    with capture() as traces, rl_otel.rollout():
        open_calls = [rl_otel.env_step(str(i)).start() for i in range(5)]
        open_calls.pop().end()
        monkeypatch.setattr(_keeper, "LONG", 0)
        until(lambda: len(starts(traces)) >= 4)
        for call in open_calls:
            call.end()
        found = [record for record in traces.records if isinstance(record, Start) and record.name == "env.step"]
    assert sorted(record.attributes["rl.environment.name"] for record in found) == ["0", "1", "2", "3"]


def test_a_short_call_gets_none() -> None:
    """A call of less than ten seconds costs one record alone."""
    with capture() as traces, rl_otel.trajectory("t"):
        with rl_otel.generate(), rl_otel.env_step():
            time.sleep(0.05)
        assert starts(traces) == []


def test_the_thread_ends_at_shutdown() -> None:
    """Stopped, there is no thread of ours left."""
    before = set(threading.enumerate())
    rl_otel.configure(run_dir="runs")
    with rl_otel.step(0):
        pass
    assert {thread.name for thread in set(threading.enumerate()) - before} == {"rl_otel keeper", "rl_otel meter"}
    rl_otel.shutdown()
    until(lambda: set(threading.enumerate()) <= before)
