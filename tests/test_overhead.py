"""`rl.telemetry.overhead`: what we cost a step, on its span. How much it is, `make bench` compares."""

from __future__ import annotations

import threading
from pathlib import Path

import rl_otel
from rl_otel.testing import Traces, capture
from tests import process
from tests.receiver import Receiver


def play(calls: int) -> None:
    with rl_otel.rollout(), rl_otel.trajectory():
        for _ in range(calls):
            with rl_otel.env_step("swe") as env_step:
                env_step.record(reward=0.5)


def overheads(traces: Traces) -> list[float]:
    found = [step.attributes["rl.telemetry.overhead"] for step in traces.all("step")]
    assert {type(overhead) for overhead in found} == {float}
    return found


def test_each_step_says_what_it_cost_us() -> None:
    """Every step has its overhead in seconds, more than nothing, and the more the more calls it has."""
    with capture() as traces:
        for calls in (3000, 0, 3000):
            with rl_otel.step():
                play(calls)
    first, none, many = overheads(traces)
    assert 0 < none < min(first, many)
    assert max(first, many) < 60


def test_a_step_without_anything_inside() -> None:
    """A step in which nothing is traced costs what it costs itself."""
    with capture() as traces, rl_otel.step(0):
        pass
    assert overheads(traces)[0] > 0


def test_calls_in_all_threads_count() -> None:
    """What other threads record while the step is open is its cost too."""

    def alone() -> None:
        with rl_otel.env_step("swe"):
            pass

    def work() -> None:
        for _ in range(1000):
            alone()

    with capture() as traces:
        with rl_otel.step(0):
            alone()
        with rl_otel.step(1):
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    quiet, busy = overheads(traces)
    assert 0 < quiet < busy


SENDS = """
    import sys
    import rl_otel
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    for _ in range(3):
        with rl_otel.step(), rl_otel.train():
            with rl_otel.phase("flushed"):
                assert rl_otel.flush(60)
"""


def test_the_figure_arrives() -> None:
    """It is on the step's span in the back end, and the same as in the journal; threads that send are no hindrance."""
    with Receiver() as receiver:
        process.run(SENDS, receiver.http)
        sent = [span.attributes["rl.telemetry.overhead"] for span in receiver.spans if span.name == "step"]
    assert sorted(sent) == sorted(overheads(Traces(Path("runs/r1"))))
    assert len(sent) == 3
