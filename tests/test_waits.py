"""Who waited for whom: in a step's figures, sentence and summary, and in a report over several processes."""

from __future__ import annotations

import contextvars
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _timeline
from rl_otel._analysis import Analysis
from rl_otel._read import Run
from rl_otel._table import step_lines
from tests import clock as clocks
from tests import process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_otel.testing import Traces


@pytest.fixture
def clock() -> Iterator[clocks.Clock]:
    with clocks.running() as moving:
        yield moving


def wait(role: str, reason: str, **more: Any) -> Any:
    """Begin a wait of a role, as a task of its own does."""

    def begin() -> Any:
        with rl_otel.role(role):
            return rl_otel.wait(reason, **more).start()

    return contextvars.copy_context().run(begin)


def told(step: Any) -> dict[str, float]:
    return {key: value for key, value in step.summary.items() if "waited" in key}


def sentence(step: Any) -> str:
    return " ".join(" ".join(step_lines(step.in_figures())).split()).partition("total: ")[2].partition(" ")[2]


def test_a_step_says_who_waited_for_whom(clock: clocks.Clock, traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Wall time by reason within the step: two who wait at once count once, and what lies outside is cut off."""
    early = wait("generator", "weight_sync")
    clock.pass_by(5)
    with rl_otel.step(0) as step:
        clock.pass_by(1)
        early.end()
        with rl_otel.wait("batch"):
            clock.pass_by(4)
        first = wait("generator", "buffer_full")
        clock.pass_by(1)
        second = wait("generator", "buffer_full")
        with rl_otel.train():
            clock.pass_by(2)
        first.end()
        clock.pass_by(3)
        before = told(step)
    clock.pass_by(50)
    second.end()
    expected = {
        "async/waited/batch": 4.0,
        "async/generator_waited/buffer_full": 6.0,
        "async/generator_waited/weight_sync": 1.0,
    }
    assert before == told(step) == expected
    assert sentence(step) == "waited 4.0s for batch; generator waited: buffer_full 6.0s, weight_sync 1.0s"
    assert step.summary["timing/wait"] == 4.0
    with rl_otel.step(1) as later:
        clock.pass_by(1)
    assert told(later) == {}
    assert not caplog.records


@pytest.mark.parametrize(
    ("reasons", "printed"),
    [
        ([None], "waited 1.0s"),
        (["batch"], "waited 1.0s for batch"),
        (["batch", "slot"], "waited 2.0s: batch 1.0s, slot 1.0s"),
        (["batch", None], "waited 2.0s: batch 1.0s"),
        ([], ""),
    ],
)
def test_a_loop_s_own_waits_in_words(
    clock: clocks.Clock, traces: Traces, reasons: list[str | None], printed: str
) -> None:
    """One reason stands in the sentence, several after it, a wait without one in the whole alone."""
    with rl_otel.step(0) as step:
        for reason in reasons:
            with rl_otel.wait(reason):
                clock.pass_by(1)
    assert sentence(step) == printed


def test_a_wait_inside_the_step_counts_once_for_its_own_role(clock: clocks.Clock, traces: Traces) -> None:
    """A generation task that was begun inside a step inherits it; its waits are the generator's all the same."""
    with rl_otel.step(0) as step:
        waits = wait("generator", "slot")
        clock.pass_by(2)
        waits.end()
    assert told(step) == {"async/generator_waited/slot": 2.0}
    assert traces.one("wait").trace_id == traces.one("step").trace_id


def test_the_sentence_tells_what_was_trained_on_and_dropped(clock: clocks.Clock, traces: Traces) -> None:
    """An asynchronous step has no trajectories of its own: it says what it took, and what it threw away."""
    for version in (1, 4):
        with rl_otel.weight_sync() as sync:
            sync.record(policy_version=version)
        with rl_otel.trajectory(f"t{version}"):
            pass
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(["t1", "t4"])
        step.record(dropped={"stale": ["a", "b"], "overlong": 1})
    assert sentence(step) == "2 trajectories trained on, staleness 0 to 3 (mean 1.5); dropped 2 stale, 1 overlong"


def test_a_wait_says_how_full_the_buffer_is(traces: Traces) -> None:
    """The one that is watched, or the one that is named; of several that nobody names none."""
    held = [1, 2]
    rl_otel.buffer("gen", size=lambda: len(held), capacity=16)
    with rl_otel.wait("batch"):
        held.append(3)
    with rl_otel.trajectory("a"), rl_otel.wait("buffer_full"):
        pass
    rl_otel.buffer("replay", size=lambda: 7)
    for name in (None, "replay", "nobody's"):
        with rl_otel.wait("batch", buffer=name):
            pass
    depths = [
        {key: value for key, value in span.attributes.items() if key.startswith("rl.buffer.")}
        for span in traces.all("wait")
    ]
    assert depths == [
        {"rl.buffer.name": "gen", "rl.buffer.size": 2, "rl.buffer.capacity": 16},
        {"rl.buffer.name": "gen", "rl.buffer.size": 3, "rl.buffer.capacity": 16},
        {},
        {"rl.buffer.name": "replay", "rl.buffer.size": 7},
        {},
    ]


def test_waits_that_are_remembered_are_bounded(clock: clocks.Clock, traces: Traces) -> None:
    """A step without end knows of the last waits of other loops, and no more."""
    with rl_otel.step(0) as step:
        for _ in range(_timeline.MOST_WAITS + 10):
            clock.pass_by(1)
            wait("generator", "slot").end()
            clock.pass_by(1)
        waits = wait("generator", "slot")
        clock.pass_by(3)
        waits.end()
    assert told(step) == {"async/generator_waited/slot": 3.0}


def test_a_report_joins_the_waits_of_all_processes() -> None:
    """A generator in a process of its own waits while the trainer steps: the report's sentence has both."""
    generator = process.start(
        """
        import sys, rl_otel
        rl_otel.configure(run_dir="runs", run_id="r")
        with rl_otel.wait("weight_sync"):
            print("waiting", flush=True)
            sys.stdin.readline()
        with rl_otel.role("judge"), rl_otel.wait("slot"):
            pass
        """,
        env={"RL_OTEL_ROLE": "generator"},
    )
    assert generator.stdout is not None
    assert generator.stdout.readline() == "waiting\n"
    rl_otel.configure(run_dir="runs", run_id="r")
    with rl_otel.step(0):
        with rl_otel.wait("batch"):
            pass
        with rl_otel.role("generator"), rl_otel.wait("buffer_full"):
            assert generator.communicate("\n", timeout=20) == ("", "")
    rl_otel.shutdown()
    (report,) = Analysis(Run(Path("runs/r"))).steps()
    figures = report.figures
    assert list(figures.waited) == ["batch"]
    assert {role: list(reasons) for role, reasons in figures.waited_beside.items()} == {
        "generator": ["buffer_full", "weight_sync"], "judge": ["slot"],
    }  # fmt: skip
    assert 0 < figures.waited_beside["generator"]["weight_sync"] <= figures.total
