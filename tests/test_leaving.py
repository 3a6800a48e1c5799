"""Generators and loops that are left early: a plain `with` around a yield, and `steps()`."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace

import rl_otel

if TYPE_CHECKING:
    from rl_otel.testing import Traces


def streamed(n: int = 5) -> Any:
    """A plain `with` around yields, as in a streaming client."""
    with rl_otel.generate():
        yield from range(n)


async def astreamed(n: int = 5) -> Any:
    with rl_otel.generate():
        for i in range(n):
            await asyncio.sleep(0)
            yield i


def assert_left_quietly(traces: Traces, caplog: pytest.LogCaptureFixture, why: str = "GeneratorExit") -> None:
    generate = traces.one("generate")
    assert (generate.status, generate.attributes["rl.aborted"]) == ("unset", why)
    assert traces.tree() == "trajectory\n  generate\n  env.step"
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


@pytest.mark.parametrize("collected", [False, True], ids=["closed", "collected"])
def test_a_generator_left_early_leaks_nothing(
    traces: Traces, caplog: pytest.LogCaptureFixture, collected: bool
) -> None:
    """After a break the parent is the nearest span still open, whether the generator is closed or collected."""
    with rl_otel.trajectory("t"):
        stream = streamed()
        for token in stream:
            if token == 2:
                break
        if collected:
            circle: list[Any] = [stream]
            circle.append(circle)
            del stream, circle
            gc.collect()
        else:
            stream.close()
        with rl_otel.env_step():
            pass
    assert_left_quietly(traces, caplog)


def test_a_generator_closed_by_another_thread_leaks_nothing(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A generator that ends in a context it never ran in ends its span, there and here."""
    with rl_otel.trajectory("t"):
        stream = streamed()
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(stream.close).result()
        with rl_otel.env_step():
            pass
    assert_left_quietly(traces, caplog)


@pytest.mark.parametrize("how", ["break", "aclose", "collect", "cancel"])
async def test_an_async_generator_left_early_leaks_nothing(
    traces: Traces, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Broken off, closed, collected by the event loop in another context or cancelled: one aborted span, no log."""

    async def consume() -> None:
        stream = astreamed()
        async for token in stream:
            if token == 2:
                break
        if how == "aclose":
            await stream.aclose()
        elif how == "cancel":
            task = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with rl_otel.trajectory("t"):
        await consume()
        gc.collect()
        for _ in range(3):
            await asyncio.sleep(0)  # the event loop closes what was collected
        with rl_otel.env_step():
            pass
    assert_left_quietly(traces, caplog, "CancelledError" if how == "cancel" else "GeneratorExit")


def test_after_a_generator_left_in_another_context_others_find_the_right_parent(traces: Traces) -> None:
    """With the next span of ours, OpenTelemetry's current span is right again too, for libraries that ask it."""
    tracer = trace.get_tracer("library")
    with rl_otel.trajectory("t"):
        stream = streamed()
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(stream.close).result()
        rl_otel.current()
        with tracer.start_as_current_span("http"):
            pass
    assert traces.tree() == "trajectory\n  generate\n  http"


# --- steps() --------------------------------------------------------------------------------------------------------


def left(traces: Traces) -> list[tuple[int, bool | None, str]]:
    return [(s.attributes["rl.step"], s.attributes.get("rl.step.left"), s.status) for s in traces.all("step")]


def test_a_loop_that_is_broken_off_marks_its_step_as_left(traces: Traces) -> None:
    """`break` ends the step at once, marked, and is neither an error nor aborted."""
    for i in rl_otel.steps(range(5)):
        with rl_otel.train():
            pass
        if i == 1:
            break
    assert not rl_otel.current()
    assert left(traces) == [(0, None, "unset"), (1, True, "unset")]
    assert "rl.aborted" not in traces.all("step")[1].attributes


def test_a_loop_that_an_exception_leaves_marks_its_step_as_left(traces: Traces) -> None:
    """Nobody can tell `steps` of an exception in the loop's body: the step is marked, the exception passes."""
    error = ValueError("in the body")

    def loop() -> None:
        for _ in rl_otel.steps(range(5)):
            raise error

    with pytest.raises(ValueError, match="in the body") as caught:
        loop()
    assert caught.value is error
    assert left(traces) == [(0, True, "unset")]
    assert not rl_otel.current()


def test_an_exception_thrown_into_steps_ends_its_step(traces: Traces) -> None:
    """Thrown in by whoever drives the generator, an exception passes and leaves no step open."""
    loop = rl_otel.steps(range(5))
    next(loop)
    with pytest.raises(KeyboardInterrupt):
        loop.throw(KeyboardInterrupt())
    assert left(traces) == [(0, True, "unset")]


def test_an_iterable_that_fails_leaves_no_step_open(traces: Traces) -> None:
    """What the iterable raises between two steps passes; the steps before it have ended unmarked."""

    def items() -> Any:
        yield 7
        raise OSError("no more data")

    with pytest.raises(OSError, match="no more data"):
        list(rl_otel.steps(items()))
    assert left(traces) == [(7, None, "unset")]
    assert not rl_otel.current()


def test_steps_number_by_the_item_where_it_is_an_int(traces: Traces) -> None:
    """A resumed loop keeps its numbers; batches are counted; True is no number."""
    assert list(rl_otel.steps([5, "batch", True, 2])) == [5, "batch", True, 2]
    assert [step.attributes["rl.step"] for step in traces.all("step")] == [5, 6, 7, 2]


def test_steps_are_open_while_the_body_runs(traces: Traces) -> None:
    """The body is inside the step, and what the iterable does between two steps is not."""

    def items() -> Any:
        for i in range(2):
            with rl_otel.data():
                pass
            yield i

    for _ in rl_otel.steps(items()):
        rl_otel.current("step").record(loss=0.5)
        with rl_otel.train():
            pass
    assert traces.tree() == "data\nstep\n  train\ndata\nstep\n  train"
    assert [step.attributes["rl.loss"] for step in traces.all("step")] == [0.5, 0.5]


def test_steps_without_configure_are_the_items() -> None:
    """Switched off, the loop runs as over the iterable itself."""
    assert list(rl_otel.steps("abc")) == ["a", "b", "c"]
