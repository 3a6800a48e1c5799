"""Where a span finds its parent: tasks, threads, executors, callbacks, and spans that end out of order."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel.testing import capture
from tests import needs

if TYPE_CHECKING:
    from rl_otel.testing import Recorded, Traces


def parent(traces: Traces, span: Recorded) -> str:
    """Return the name of the span's recorded parent, empty for a root."""
    return next((other.name for other in traces.spans if other.span_id == span.parent_id), "")


# --- What has ended does not become a parent ------------------------------------------------------------------------


async def test_a_task_made_in_step_0_is_no_part_of_step_5(traces: Traces) -> None:
    """A worker that lives on after the step it was made in records its later trajectories as traces of their own."""
    go, done = asyncio.Queue[int](), asyncio.Queue[int]()

    async def worker() -> None:
        while True:
            number = await go.get()
            with rl_otel.trajectory(f"t{number}"), rl_otel.generate():
                await asyncio.sleep(0)
            await done.put(number)

    for number in range(6):
        with rl_otel.step(number), rl_otel.rollout():
            if number == 0:
                task = asyncio.create_task(worker())
            await go.put(number)
            await done.get()
    task.cancel()
    played = {span.attributes["rl.trajectory.id"]: span for span in traces.all("trajectory")}
    first = traces.all("step")[0]
    assert (parent(traces, played["t0"]), played["t0"].trace_id) == ("rollout", first.trace_id)
    for number in range(1, 6):
        lone = played[f"t{number}"]
        assert lone.parent_id == ""
        assert "rl.step" not in lone.attributes
        assert [span.name for span in lone.children] == ["generate"]
    assert len({span.trace_id for span in traces.spans}) == 6 + 5


async def test_a_span_that_outlives_its_step_stays_in_its_trace(traces: Traces) -> None:
    """A trajectory still open when its step ends stays where it began, and so does what is opened inside it."""
    release = asyncio.Event()

    async def play() -> None:
        with rl_otel.trajectory("long"):
            await release.wait()
            with rl_otel.generate():
                pass

    with rl_otel.step(0), rl_otel.rollout():
        task = asyncio.create_task(play())
        await asyncio.sleep(0)
    release.set()
    await task
    step, trajectory, generate = traces.one("step"), traces.one("trajectory"), traces.one("generate")
    assert trajectory.trace_id == generate.trace_id == step.trace_id
    assert trajectory.attributes["rl.late"] is True
    assert (parent(traces, trajectory), parent(traces, generate)) == ("rollout", "trajectory")


def test_ends_out_of_order_leave_the_nearest_open_ancestor(traces: Traces) -> None:
    """When an outer span ends first, what begins next is inside the inner one, then inside what is still open."""
    step, outer, inner = rl_otel.step(0), rl_otel.phase("outer"), rl_otel.phase("inner")
    step.start()
    outer.start()
    inner.start()
    outer.end()
    assert rl_otel.current() is inner
    inner.end()
    assert rl_otel.current() is step
    with rl_otel.train():
        pass
    step.end()
    assert not rl_otel.current()
    assert traces.tree() == "step\n  outer\n    inner\n  train"


def test_ends_from_the_middle_outwards_leave_the_nearest_open_ancestor(traces: Traces) -> None:
    """However many ancestors ended meanwhile, and in whatever order, the parent is the first that is open."""
    handles = [rl_otel.phase(f"depth{i}").start() for i in range(8)]
    for handle in handles[-2:0:-1]:
        handle.end()
    handles[-1].end()
    assert rl_otel.current() is handles[0]
    with rl_otel.train():
        pass
    handles[0].end()
    assert traces.one("train").parent_id == handles[0].span_id


def test_callbacks_on_other_threads_end_what_another_began(traces: Traces) -> None:
    """A step ended on another thread is left on the thread that began it too."""
    step = rl_otel.step(0).start()
    in_thread(step.end)
    assert not rl_otel.current()
    with rl_otel.step(1):
        pass
    assert [(span.attributes["rl.step"], span.parent_id) for span in traces.all("step")] == [(0, ""), (1, "")]


def in_thread(function: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_spans_that_overlap_for_ever_do_not_pile_up(traces: Traces) -> None:
    """Each span begun before the one before it ends, as in a prefetching loop, keeps no more than its neighbour."""
    handles = []
    before = rl_otel.data().start()
    for _ in range(50):
        after = rl_otel.data().start()
        before.end()
        handles.append(weakref.ref(before))
        before = after
    before.end()
    del after
    gc.collect()
    assert sum(handle() is not None for handle in handles) <= 2


def test_a_call_that_has_ended_is_freed_without_the_garbage_collector(traces: Traces) -> None:
    """Thousands of calls a second leave nothing for the garbage collector to find."""
    gc.collect()
    gc.disable()
    try:
        with rl_otel.rollout(), rl_otel.trajectory():
            with rl_otel.generate() as generation:
                gone = weakref.ref(generation)
            del generation
            assert gone() is None
    finally:
        gc.enable()


# --- Where the parent is ambient -----------------------------------------------------------------------------------


async def test_tasks_inherit_the_span_they_are_made_in(traces: Traces) -> None:
    """Sixty-four trajectories at once, in tasks and in threads of `asyncio.to_thread`, keep to their own calls."""

    async def play(i: int) -> None:
        with rl_otel.trajectory(i):
            with rl_otel.generate():
                await asyncio.sleep(0)
            await asyncio.to_thread(act, i)

    def act(i: int) -> None:
        with rl_otel.env_step() as env_step:
            env_step.record(reward=float(i))

    with rl_otel.step(0), rl_otel.rollout():
        await asyncio.gather(*map(play, range(64)))
    trajectories = traces.one("rollout").children
    assert len(trajectories) == 64
    for trajectory in trajectories:
        generate, env_step = trajectory.children
        assert (generate.name, env_step.name) == ("generate", "env.step")
        assert trajectory.attributes["rl.trajectory.id"] == str(int(env_step.attributes["rl.env.reward"]))


def test_a_thread_of_ones_own_knows_no_parent(traces: Traces) -> None:
    """Without `bind` a plain thread starts with nothing around it, and its trajectory is a trace of its own."""
    with rl_otel.step(0), rl_otel.rollout():
        in_thread(lambda: rl_otel.trajectory("t").start().end())
    assert traces.one("trajectory").parent_id == ""


async def test_bind_carries_the_parent_into_an_executor(traces: Traces) -> None:
    """Each env.step of sixty-four trajectories through one pool has its own trajectory as parent."""
    loop = asyncio.get_running_loop()

    @rl_otel.env_step()
    def act(i: int, *, bonus: float) -> float:
        rl_otel.current().record(reward=i + bonus)
        return i + bonus

    async def play(i: int) -> None:
        with rl_otel.trajectory(i):
            assert await loop.run_in_executor(pool, partial(rl_otel.bind(act), i, bonus=0.5)) == i + 0.5

    with ThreadPoolExecutor(8) as pool, rl_otel.step(0), rl_otel.rollout():
        await asyncio.gather(*map(play, range(64)))
    for trajectory in traces.all("trajectory"):
        (call,) = trajectory.children
        assert call.attributes["rl.env.reward"] == int(trajectory.attributes["rl.trajectory.id"]) + 0.5
    assert len(traces.all("trajectory")) == 64


def test_a_bound_function_may_run_many_times_at_once(traces: Traces) -> None:
    """One bound function in several threads at a time, and after its span has ended, neither blocks nor raises."""
    together = threading.Barrier(4)

    def act() -> str:
        together.wait(30)
        return str(rl_otel.current().name)

    with rl_otel.step(0), ThreadPoolExecutor(4) as pool:
        bound = rl_otel.bind(act)
        assert [future.result() for future in [pool.submit(bound) for _ in range(4)]] == ["step"] * 4
        together = threading.Barrier(1)
    assert bound() == ""
    assert bound.__wrapped__ is act  # type: ignore[attr-defined]


async def test_bind_keeps_arguments_results_and_exceptions() -> None:
    """A bound function or coroutine function answers as it would unbound, and leaks no context variable."""
    variable = contextvars.ContextVar("variable", default="outside")
    error = ValueError()

    def fail() -> None:
        variable.set("inside")
        raise error

    async def fail_later() -> None:
        variable.set("inside")
        await asyncio.sleep(0)
        assert variable.get() == "inside"
        raise error

    with pytest.raises(ValueError, match=r"^$") as caught:
        rl_otel.bind(fail)()
    assert caught.value is error
    with pytest.raises(ValueError, match=r"^$") as caught:
        await rl_otel.bind(fail_later)()
    assert caught.value is error
    assert variable.get() == "outside"


async def test_a_bound_coroutine_function_runs_inside_its_span(traces: Traces) -> None:
    """Each step of a bound coroutine finds the span that was open at `bind`, in whatever task it runs."""

    async def play() -> None:
        await asyncio.sleep(0)
        with rl_otel.trajectory("t"):
            await asyncio.sleep(0)

    with rl_otel.step(0), rl_otel.rollout():
        bound = rl_otel.bind(play)
        await contextvars.Context().run(asyncio.ensure_future, bound())
    assert parent(traces, traces.one("trajectory")) == "rollout"


@needs.torch
def test_pools_of_other_libraries_take_bound_functions(traces: Traces) -> None:
    """A data loader's threads, and torch's backward hooks on its own threads, run what is bound to the step."""
    import torch

    weight = torch.ones(2, requires_grad=True)
    with rl_otel.step(0), rl_otel.train():
        weight.register_hook(rl_otel.bind(lambda gradient: rl_otel.current().record(tokens=7)))
        weight.sum().backward()
    assert traces.one("train").attributes["rl.train.tokens"] == 7


# --- current() ------------------------------------------------------------------------------------------------------


def test_current_without_a_span_takes_everything() -> None:
    """Where there is no span a null object answers like a handle, and is false."""
    null = rl_otel.current()
    assert not null
    assert (null.name, null.id, null.trace_id, null.span_id, null.index) == ("", "", "", "", -1)
    null.record({"a": 1}, b=2)
    null.set_attribute("a", 1)
    null.add_event("event")
    null.end(ValueError())
    with null as entered:
        assert entered is null.start() is null
    assert (null.summary, null.summary_with("x/"), null.attributes) == ({}, {}, {})
    assert (null.is_recording(), null.recording, null.ended) == (False, False, True)
    assert null.get_span_context().is_valid is False


def test_current_finds_the_nearest_of_a_name(traces: Traces) -> None:
    """By name it is the innermost open span of that name around here; another name is the null object."""
    with rl_otel.step(3) as step, rl_otel.rollout(), rl_otel.trajectory("a") as outer:
        with rl_otel.trajectory("b", agent="helper") as inner, rl_otel.env_step() as env_step:
            assert rl_otel.current() is rl_otel.current("env_step") is rl_otel.current("env.step") is env_step
            assert rl_otel.current("trajectory") is inner
            assert rl_otel.current("step") is step
            assert not rl_otel.current("train")
            outer.end()
            assert rl_otel.current("trajectory") is inner
        rl_otel.current("step").record(kl=0.5)
        assert not rl_otel.current("trajectory")
    assert traces.one("step").attributes["rl.kl"] == 0.5


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("trajectry", "trajectory"), ("Rollout", "rollout"), ("envstep", "env_step"), ("generation", None), ("own", None)],
)
def test_a_name_close_to_a_known_one_is_asked_about_once(
    traces: Traces, caplog: pytest.LogCaptureFixture, asked: str, meant: str | None
) -> None:
    """A name misspelt would be lost without a word; one of a phase of one's own is nobody's mistake."""
    with rl_otel.step(0):
        for _ in range(3):
            rl_otel.current(asked).record(loss=1.0)
    line = f"rl_otel: current({asked!r}): no span has that name; did you mean {meant!r}?"
    assert caplog.messages == ([] if meant is None else [line])


def test_a_phase_of_ones_own_is_found_by_a_name_close_to_a_known_one(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    """What is open has that name, whatever it looks like."""
    with rl_otel.step(0), rl_otel.phase("training") as training:
        assert rl_otel.current("training") is training
    assert caplog.messages == []


def test_current_survives_shutdown_inside_a_span() -> None:
    """A span open at `shutdown` ends without a word, and the next run begins with nothing around it."""
    with capture():
        step = rl_otel.step(0).start()
        rl_otel.shutdown()
    step.record(loss=1.0)
    step.end()
    with capture() as traces:
        with rl_otel.step(0):
            pass
        assert traces.one("step").parent_id == ""
