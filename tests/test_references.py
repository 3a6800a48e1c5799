"""What spans hold on to: nothing waits for the garbage collector, and a kept handle keeps itself alone."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest

import rl_otel
from rl_otel.testing import Traces


class Batch:
    """Something that is heavy."""


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def play() -> tuple[weakref.ref[object], object, object]:
    with rl_otel.step() as step:
        with rl_otel.rollout() as rollout, rl_otel.trajectory() as trajectory:
            with rl_otel.generate() as generation:
                generation.record(output_tokens=3)
            with rl_otel.env_step("maze"):
                pass
        with rl_otel.train(), rl_otel.phase("forward"):
            pass
    return weakref.ref(step), trajectory, rollout


@pytest.mark.usefixtures("traces", "without_collector")
def test_a_thousand_steps_leave_nothing_to_collect() -> None:
    """Steps with trajectories are no reference cycles: with the collector off, each is gone when it is over."""
    play()
    gc.collect()
    for _ in range(1000):
        play()
    assert gc.collect() == 0


@pytest.mark.usefixtures("traces", "without_collector")
def test_a_kept_handle_does_not_keep_its_step() -> None:
    """Who saves the handles of trajectory and rollout keeps neither the step nor what was gathered in it."""
    step, trajectory, rollout = play()
    assert step() is None
    assert trajectory.trace_id == rollout.trace_id != ""  # type: ignore[attr-defined]


@pytest.mark.usefixtures("without_collector")
def test_an_ended_step_still_has_its_summary(traces: Traces) -> None:
    """A step's own handle has its figures for as long as it is kept."""
    with rl_otel.step(1) as step:
        with rl_otel.train():
            pass
        before = step.summary
    assert before.keys() == step.summary.keys() >= {"timing/train", "timing/step"}
    assert traces.one("step").duration == round(step.summary["timing/step"] * 1e9)


def test_what_outlives_its_trajectory_finds_what_is_open_around_it(traces: Traces) -> None:
    """A task whose trajectory and rollout have ended, and are gone, opens its next span in the step."""

    async def late(ended: asyncio.Event) -> None:
        await ended.wait()
        with rl_otel.phase("late"):
            pass

    async def main() -> None:
        ended = asyncio.Event()
        with rl_otel.step(1):
            with rl_otel.rollout(), rl_otel.trajectory(), rl_otel.env_step("maze"):
                task = asyncio.create_task(late(ended))
            gc.collect()
            ended.set()
            await task
            with rl_otel.train():
                pass

    asyncio.run(main())
    step = traces.one("step")
    assert traces.one("late").parent_id == traces.one("train").parent_id == step.span_id


def test_what_outlives_its_step_is_a_trace_of_its_own(traces: Traces) -> None:
    """A thread whose whole step has ended opens a root, and OpenTelemetry sees no ended span there."""
    from opentelemetry import trace

    seen = []

    def late() -> None:
        ended.wait(30)
        with rl_otel.trajectory("t"):
            pass
        seen.append(trace.get_current_span().get_span_context().is_valid)

    ended = threading.Event()
    with rl_otel.step(1), rl_otel.rollout():
        thread = threading.Thread(target=rl_otel.bind(late))
        thread.start()
    ended.set()
    thread.join()
    assert traces.one("trajectory").parent_id == ""
    assert seen == [False]


@pytest.mark.usefixtures("traces", "without_collector")
def test_steps_lets_go_of_each_item() -> None:
    """`steps` does not hold the item while the loop's body runs."""
    for item in rl_otel.steps(Batch() for _ in range(2)):
        reference = weakref.ref(item)
        del item
        assert reference() is None


@pytest.mark.usefixtures("traces", "without_collector")
def test_a_decorated_generator_lets_go_of_its_arguments() -> None:
    """Arguments of decorated generators and coroutine functions live as long as these want them."""
    alive = []

    @rl_otel.data()
    def numbers(batch: Batch) -> Iterator[bool]:
        reference = weakref.ref(batch)
        del batch
        yield reference() is None

    @rl_otel.data()
    async def more(batch: Batch) -> AsyncIterator[bool]:
        reference = weakref.ref(batch)
        del batch
        yield reference() is None

    @rl_otel.reward()
    async def score(batch: Batch) -> bool:
        reference = weakref.ref(batch)
        del batch
        await asyncio.sleep(0)
        return reference() is None

    async def main() -> None:
        alive.extend([freed async for freed in more(Batch())])
        alive.append(await score(Batch()))

    alive.extend(numbers(Batch()))
    asyncio.run(main())
    assert alive == [True, True, True]
