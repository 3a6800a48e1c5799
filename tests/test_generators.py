"""Decorated generators and async generators behave as their undecorated twins, whatever their consumer does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rl_otel
from rl_otel.testing import capture
from tests.generators import (
    OPERATIONS,
    STATEMENTS,
    Pause,
    async_body,
    body,
    driven,
    freed_at_once,
    observed,
    played,
    unheard,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from rl_otel.testing import Traces

programs = st.lists(st.sampled_from(STATEMENTS), max_size=5)
scripts = st.lists(st.sampled_from(OPERATIONS), max_size=7)


@pytest.mark.parametrize("function", [body, async_body])
@given(program=programs, script=scripts)
def test_it_cannot_be_told_from_its_undecorated_twin(
    function: Callable[..., Any], program: list[str], script: list[str]
) -> None:
    """Values, results, exceptions with cause, context and frames, and what the generator itself saw are the same."""
    log: list[Any] = []
    expected_log: list[Any] = []
    with capture() as traces, unheard():
        twin, decorated = function(program, expected_log), rl_otel.data()(function)(program, log)
        assert (played(decorated, script), log) == (played(twin, script), expected_log)
        # Who answers its closing with one more value is never over, and who has nothing to do does not say it began.
        if program and not {"guarded", "stubborn"} & set(program):
            assert len(traces.all("data")) == bool(log)
        del twin, decorated


@pytest.mark.parametrize("function", [body, async_body])
def test_it_is_one_for_whoever_asks(function: Callable[..., Any]) -> None:
    """A decorated generator function is a generator function still."""
    decorated = rl_otel.data()(function)
    asks = inspect.isgeneratorfunction if function is body else inspect.isasyncgenfunction
    assert asks(decorated)
    assert decorated.__wrapped__ is function


@pytest.mark.parametrize("function", [body, async_body])
def test_one_that_never_begins_is_no_span(traces: Traces, function: Callable[..., Any]) -> None:
    """Calling a generator function runs nothing yet, and records nothing."""
    generator = rl_otel.data()(function)(["plain"], [])
    observed(generator.close if function is body else lambda: driven(generator.aclose()))
    assert traces.spans == []


@pytest.mark.parametrize(
    ("program", "script", "ended"),
    [
        (["plain"], ["next", "next"], ("unset", None)),
        (["plain"], ["next", "close"], ("unset", "GeneratorExit")),
        (["plain"], ["next", "CancelledError"], ("unset", "CancelledError")),
        (["plain"], ["next", "ValueError"], ("error", None)),
        (["guarded"], ["next", "ValueError"], ("unset", None)),
        (["raise"], ["next"], ("error", None)),
    ],
)
@pytest.mark.parametrize("function", [body, async_body])
def test_its_span_tells_how_it_ended(
    traces: Traces, function: Any, program: list[str], script: list[str], ended: tuple[str, str | None]
) -> None:
    """Exhausted is fine, left early is aborted, and an exception is an error unless the generator takes it."""
    played(rl_otel.data()(function)(program, []), script)
    span = traces.one("data")
    assert (span.status, span.attributes.get("rl.aborted")) == ended


def test_what_it_opens_is_inside_and_its_consumer_is_outside(traces: Traces) -> None:
    """Spans of the generator are its children; spans of the consumer between two values are not."""

    @rl_otel.generate()
    def tokens() -> Generator[int, None, None]:
        for token in range(2):
            with rl_otel.env_step():
                yield token

    with rl_otel.trajectory("t"):
        for _ in tokens():
            assert rl_otel.current().name == "trajectory"
            with rl_otel.reward():
                pass
    trajectory = traces.one("trajectory")
    assert sorted(span.name for span in trajectory.children) == ["generate", "reward", "reward"]
    assert [span.name for span in traces.one("generate").children] == ["env.step", "env.step"]


async def test_an_async_generator_is_apart_from_its_consumer(traces: Traces) -> None:
    """The same for async generators, across real waits."""

    @rl_otel.generate()
    async def tokens() -> AsyncGenerator[int, None]:
        for token in range(2):
            await asyncio.sleep(0)
            with rl_otel.env_step():
                yield token

    with rl_otel.trajectory("t"):
        async for _ in tokens():
            assert rl_otel.current().name == "trajectory"
    assert traces.tree() == "trajectory\n  generate\n    env.step\n    env.step"


def test_two_at_once_do_not_mix(traces: Traces) -> None:
    """Interleaved generators keep to their own spans."""

    @rl_otel.generate()
    def tokens() -> Generator[str, None, None]:
        for _ in range(2):
            yield rl_otel.current().span_id

    with rl_otel.trajectory("t"):
        first, second = zip(*zip(tokens(), tokens(), strict=True), strict=True)
    assert (len(set(first)), len(set(second)), first == second) == (1, 1, False)
    assert [span.name for span in traces.one("trajectory").children] == ["generate", "generate"]


def test_its_context_variables_are_its_own() -> None:
    """A generator sees the context it began in, and what it sets does not reach its consumer, traced or not."""
    variable = contextvars.ContextVar("variable", default="outside")

    @rl_otel.data()
    def generator() -> Generator[str, None, None]:
        variable.set("inside")
        yield variable.get()
        yield variable.get()

    assert list(generator()) == ["inside", "inside"]
    assert variable.get() == "outside"


class Batch:
    pass


class Thrown(Exception):
    pass


def _freed(resume: Callable[[], Any]) -> bool:
    gone = weakref.ref(resume())
    return gone() is None


@pytest.mark.parametrize("configured", [True, False])
def test_what_passes_through_is_not_kept(configured: bool, request: pytest.FixtureRequest) -> None:
    """A yielded batch, a sent one and a thrown exception are freed as soon as the host lets go of them."""
    if configured:
        request.getfixturevalue("traces")

    @rl_otel.data()
    def sync() -> Generator[Batch, Any, None]:
        while True:
            try:
                yield Batch()
            except Thrown:
                pass

    @rl_otel.data()
    async def later() -> AsyncGenerator[Batch, Any]:
        while True:
            try:
                await Pause()
                yield Batch()
            except Thrown:
                pass

    one, other = sync(), later()
    gc.collect()
    gc.disable()
    try:
        assert _freed(lambda: next(one))
        assert _freed(lambda: driven(other.asend(None)))
        sent, thrown = Batch(), Thrown()
        gone = [weakref.ref(sent), weakref.ref(thrown)]
        one.send(sent)
        driven(other.asend(sent))
        one.throw(thrown)
        del sent, thrown
        assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()
        one.close()
        driven(other.aclose())


def test_an_exception_thrown_through_it_is_freed_without_the_garbage_collector(traces: Traces) -> None:
    """An exception that passes through a decorated generator is not tied into a circle with its own frames."""
    one, other = rl_otel.data()(body)(["plain"], []), rl_otel.data()(async_body)(["plain"], [])
    next(one)
    driven(other.asend(None))
    assert freed_at_once(Thrown, lambda: one.throw(Thrown()))

    async def throw() -> None:
        await other.athrow(Thrown())

    assert freed_at_once(Thrown, lambda: throw().send(None))
    waiting = rl_otel.data()(async_body)(["pause"], []).asend(None)
    waiting.send(None)
    assert freed_at_once(Thrown, lambda: waiting.throw(Thrown()))


@pytest.mark.skipif(sys.version_info < (3, 13), reason="close() returns nothing before 3.13")
def test_close_returns_what_the_generator_returns(traces: Traces) -> None:
    """A generator that answers its closing with a value hands that value on."""
    generator = rl_otel.data()(body)(["guarded", "return"], [])
    next(generator)
    assert generator.close() == 1
