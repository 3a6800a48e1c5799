"""Handles used in ways nobody meant, spans out of place, and rl_otel that was never configured."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel.testing import capture
from tests import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_otel.testing import Traces


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rl_otel"]


OPENERS: list[Callable[[], Any]] = [
    lambda: rl_otel.step(0),
    rl_otel.rollout,
    lambda: rl_otel.trajectory(group="g", sample=1),
    lambda: rl_otel.generate(model="m"),
    lambda: rl_otel.env_step("swe"),
    lambda: rl_otel.env_reset("swe"),
    lambda: rl_otel.phase("own", model="critic"),
    lambda: rl_otel.wait("batch"),
    lambda: rl_otel.train(model="critic"),
    rl_otel.weight_sync,
    rl_otel.eval,
]


# --- Handles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opener", OPENERS)
def test_an_end_that_comes_twice_counts_once(traces: Traces, opener: Callable[[], Any]) -> None:
    """The second end, even with an error, changes nothing and is not worth a word."""
    handle = opener().start()
    handle.end()
    handle.end(ValueError("late"))
    with handle_left(handle):
        pass
    assert [span.status for span in traces.spans] == ["unset"]


class handle_left:  # noqa: N801 - a `with` whose end is the handle's, without its beginning
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.handle.__exit__(*error)


@pytest.mark.parametrize("opener", OPENERS)
def test_a_handle_that_never_began_does_nothing(
    traces: Traces, opener: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Made and dropped, ended or recorded on without a beginning, a handle leaves no span, and the log says so."""
    handle = opener()
    handle.record(anything=1)
    handle.end()
    handle.record(anything=2)
    assert (handle.trace_id, handle.span_id, handle.recording) == ("", "", False)
    assert traces.records == []
    assert lines(caplog) == [
        f"rl_otel: record() on a {handle.name} that has not begun is not recorded: "
        "first configure(), then enter or start() it"
    ]


@pytest.mark.parametrize("opener", OPENERS)
def test_record_after_the_end_is_one_line(
    traces: Traces, opener: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What comes after the end is not recorded; the line names the span."""
    with opener() as handle:
        pass
    for _ in range(3):
        handle.record({"late": 1})
        handle.set_attribute("late", 1)
    handle.end()
    (span,) = traces.spans
    assert not any("late" in name for name in span.attributes)
    assert lines(caplog) == [f"rl_otel: record() on a {span.name} that has ended is not recorded"]


@pytest.mark.parametrize("opener", OPENERS)
def test_a_handle_used_again_is_a_new_span(traces: Traces, opener: Callable[[], Any]) -> None:
    """One handle for many iterations is a span each time, with the attributes it was made with and no others."""
    handle = opener()
    for _ in range(3):
        with handle:
            handle.set_attribute("mine", 1)
            assert handle.recording
    spans = traces.spans
    assert len({span.span_id for span in spans}) == 3
    assert len({tuple(sorted(span.attributes)) for span in spans}) == 1
    assert [span.parent_id for span in spans] == [""] * 3
    assert not rl_otel.current()


@pytest.mark.parametrize("opener", OPENERS)
def test_a_handle_entered_twice_is_two_spans_and_one_line(
    traces: Traces, opener: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Entered again while open, the first span ends there, none is lost, and the line names the remedy."""
    handle = opener()
    with rl_otel.step(9), handle, handle:
        pass
    name = handle.name
    twice = f"rl_otel: {name} entered twice; make a new one for each `with`"
    assert [line for line in lines(caplog) if "twice" in line] == [twice]
    spans = [span for span in traces.spans if span.attributes.get("rl.step") != 9 or span.name != "step"]
    assert [span.name for span in spans] == [name, name]
    assert spans[0].end <= spans[1].end
    assert not rl_otel.current()


def test_a_handle_inside_itself_makes_no_circle(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Entered again inside its own child, a handle is not its own ancestor, and nothing hangs."""
    handle = rl_otel.trajectory("t")
    with handle:
        child = rl_otel.generate().start()
        with handle:
            assert rl_otel.current() is handle
        child.end()
        assert not rl_otel.current()
    assert not rl_otel.current()
    assert len(traces.all("trajectory")) == 2
    assert len(traces.all("generate")) == 1


def test_a_handle_takes_records_from_many_threads() -> None:
    """A handle that threads share takes what each of them records; beyond 128 names of the host's it counts."""
    together = threading.Barrier(8)

    def work(i: int) -> None:
        together.wait(30)
        for j in range(50):
            step.record({f"{i}.{j}": 1})

    with capture(strict=False) as traces, rl_otel.step(0) as step:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        step.end()
        attributes = traces.one("step").attributes
        assert attributes["rl.step"] == 0
        kept = [name for name in attributes if name.startswith("rl.custom.")]
        assert 128 <= len(kept) <= 128 + 8  # threads look at the count before they raise it
        assert len(kept) + attributes["rl.attributes.dropped"] <= 400


def test_phases_of_many_threads_leave_none_behind(traces: Traces) -> None:
    """Phases that threads open and close at once are all recorded, and none stays the active one."""
    from rl_otel import _runtime

    together = threading.Barrier(8)

    def work() -> None:
        together.wait(30)
        for _ in range(50):
            with rl_otel.data():
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traces.all("data")) == 400
    assert _runtime.active is not None
    assert _runtime.active.timelines.own.active is None


# --- Out of place -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "inner", "belongs"),
    [
        (rl_otel.generate, rl_otel.trajectory, "rollout, eval or trajectory"),
        (lambda: rl_otel.step(0), rl_otel.generate, "trajectory, rollout, eval, reward, env_step or env_reset"),
        (lambda: rl_otel.step(0), rl_otel.trajectory, "rollout, eval or trajectory"),
        (rl_otel.train, rl_otel.env_step, "trajectory, rollout, eval, reward, env_step or env_reset"),
        (rl_otel.env_reset, rl_otel.trajectory, "rollout, eval or trajectory"),
        (rl_otel.trajectory, rl_otel.train, "step or phase"),
        (rl_otel.generate, rl_otel.rollout, "step or phase"),
        (rl_otel.generate, lambda: rl_otel.phase("own"), "step or phase"),
    ],
)
def test_a_span_out_of_place_is_recorded_with_one_line(
    traces: Traces, caplog: pytest.LogCaptureFixture, outer: Any, inner: Any, belongs: str
) -> None:
    """It is recorded where it was opened, and one line names both by their openers and the right place."""
    with outer() as around:
        for _ in range(3):
            with inner() as within:
                pass
    assert lines(caplog) == [
        f"rl_otel: {within.name.replace('.', '_')} was opened directly inside {around.name.replace('.', '_')} and is "
        f"recorded there; open it inside a {belongs}"
    ]
    spans = [span for span in traces.spans if span.span_id != around.span_id]
    assert len(spans) == 3
    assert {span.parent_id for span in spans} == {around.span_id}


@pytest.mark.parametrize(("opener", "shown"), [(lambda: rl_otel.step(4), "step 4"), (rl_otel.trajectory, "trajectory")])
def test_a_step_inside_another_span_is_a_root_with_one_line(
    traces: Traces, caplog: pytest.LogCaptureFixture, opener: Any, shown: str
) -> None:
    """A step that was never ended is the usual reason, so the line names it and the way to end it."""
    with opener():
        for index in (5, 6):
            with rl_otel.step(index):
                pass
    assert lines(caplog) == [
        f"rl_otel: step 5 was opened inside {shown}, which is still open, and is a trace of its own all the same. "
        "If that is over, leave its `with` or call its .end() first"
    ]
    assert {span.parent_id for span in traces.all("step")} == {""}


@pytest.mark.parametrize(
    "openers",
    [
        [rl_otel.rollout, rl_otel.generate],
        [rl_otel.rollout, rl_otel.env_step],
        [rl_otel.eval, rl_otel.generate],
        [rl_otel.eval, rl_otel.env_reset],
        [rl_otel.eval, rl_otel.trajectory, rl_otel.generate],
        [rl_otel.rollout, rl_otel.trajectory, rl_otel.trajectory, rl_otel.env_step, rl_otel.generate],
        [rl_otel.trajectory, rl_otel.reward, rl_otel.generate],
        [rl_otel.trajectory, rl_otel.wait],
        [rl_otel.rollout, rl_otel.weight_sync, rl_otel.offload],
        [rl_otel.weight_sync],
        [rl_otel.checkpoint],
        [rl_otel.generate],
    ],
)
def test_spans_in_place_are_not_worth_a_word(
    traces: Traces, caplog: pytest.LogCaptureFixture, openers: list[Any]
) -> None:
    """Batched engines under a rollout, phases outside a step, agents inside trajectories, judges inside rewards."""
    handles = [opener().start() for opener in openers]
    for handle in reversed(handles):
        handle.end()
    assert lines(caplog) == []
    assert [span.name for span in traces.spans] == [handle.name for handle in handles]


@pytest.mark.parametrize(
    "name", ["step", "trajectory", "generate", "env.step", "env.reset", "rollout", "eval", "other"]
)
def test_a_phase_is_never_taken_for_another_kind(traces: Traces, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """A phase by the name of a call would be one to every figure: it gets a name of its own, and one line says so."""

    @rl_otel.phase(name)
    def work() -> None:
        with rl_otel.phase(name):
            pass

    with rl_otel.step(0):
        work()
        work()
    assert [span.name for span in traces.spans] == ["step", *[f"phase.{name}"] * 4]
    assert traces.all(f"phase.{name}")[0].attributes["rl.phase"] == f"phase.{name}"
    assert lines(caplog) == [
        f"rl_otel: phase({name!r}) is recorded as phase.{name}, for that name stands for something else in every figure"
    ]


@pytest.mark.parametrize("name", ["train", "reward", "own", "env_step"])
def test_a_phase_may_have_the_name_of_a_phase(traces: Traces, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """`phase("train")` is what `train()` is."""
    with rl_otel.step(0), rl_otel.phase(name):
        pass
    assert traces.one(name).attributes["rl.phase"] == name
    assert lines(caplog) == []


def test_a_step_number_that_comes_again_is_said_once(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Each opening is a trace of its own; who counts from 0 in each epoch learns what the number is for."""
    for number in (0, 1, 0, 1):
        with rl_otel.step(number):
            pass
    assert len({span.trace_id for span in traces.all("step")}) == 4
    assert lines(caplog) == [
        "rl_otel: step 0 was opened before in this process; this one is a trace of its own, beside the first. If "
        "it is the next one, give step() the number that your trainer logs, or none, and steps are counted"
    ]


@pytest.mark.parametrize(("name", "hint"), [("transfers", "; did you mean transfer?"), ("warmup", "")])
def test_an_unknown_part_of_a_weight_sync_is_said_once(
    traces: Traces, caplog: pytest.LogCaptureFixture, name: str, hint: str
) -> None:
    """It is recorded under its name, and one line has those that figures know."""
    for _ in range(2):
        with rl_otel.weight_sync() as sync, sync.part(name):
            pass
    assert len(traces.all(f"weight_sync.{name}")) == 2
    parts = "pause, gather, transfer, load, resume"
    assert lines(caplog) == [f"rl_otel: weight_sync().part({name!r}) is kept under that name; parts are {parts}{hint}"]


def test_a_step_inside_a_step_leaves_the_outer_one_whole(traces: Traces) -> None:
    """What is opened after the inner step is inside the outer one again, and each carries its own number."""
    with rl_otel.step(0):
        with rl_otel.step(7), rl_otel.train():
            pass
        with rl_otel.optimizer():
            pass
    assert traces.tree() == "step\n  optimizer\nstep\n  train"
    assert [span.attributes["rl.step"] for span in traces.spans] == [0, 7, 7, 0]


# --- Never configured -------------------------------------------------------------------------------------------------


async def test_never_configured_every_call_does_nothing() -> None:
    """All openers, as `with`, decorators and callbacks, run the host's code and record nothing."""

    @rl_otel.trajectory()
    async def play() -> int:
        await asyncio.sleep(0)
        return 1

    for opener in OPENERS:
        with opener() as handle:
            handle.record(loss=1, reward=object())
            assert not rl_otel.current()
            assert (handle.trace_id, handle.recording, handle.is_recording()) == ("", False, False)
        assert opener()(lambda x: x)(3) == 3
        opener().start().end(ValueError())
    assert await play() == 1
    assert rl_otel.add("env.step", 0, 1) is rl_otel.current()
    assert rl_otel.bind(len)("abc") == 3
    assert rl_otel.step(0).summary == {}
    assert rl_otel.flush(0.1).sent == rl_otel.shutdown(0.1).sent == 0


def test_never_configured_leaves_no_trace_in_the_process() -> None:
    """No thread, no file, no folder, no output, and neither torch, numpy nor the SDK is imported."""
    done = process.run(
        """
        import os, sys, threading, rl_otel
        before = sorted(os.listdir())
        with rl_otel.step(0) as step, rl_otel.rollout(), rl_otel.trajectory(), rl_otel.generate() as generation:
            generation.record(output_tokens=3)
            step.record(loss=0.5)
        for _ in rl_otel.steps(range(3)):
            rl_otel.current("step").record(kl=1)
        assert threading.enumerate() == [threading.main_thread()]
        assert sorted(os.listdir()) == before
        heavy = {"torch", "numpy", "grpc", "google.protobuf", "opentelemetry.sdk"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        """
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_span_begun_before_configure_stays_unrecorded() -> None:
    """What was opened while nothing recorded is not there later, and is no parent."""
    step = rl_otel.step(0).start()
    with capture() as traces:
        with rl_otel.train():
            pass
        step.record(loss=1.0)
        step.end()
        assert traces.tree() == "train"
