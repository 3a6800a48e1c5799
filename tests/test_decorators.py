"""Openers as decorators of functions, coroutine functions and methods; generators are in `test_generators.py`."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel.testing import capture
from tests import needs, process
from tests.generators import driven, freed_at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_otel.testing import Traces


class Broken(Exception):
    pass


@rl_otel.reward()
def scored(x: int, *, y: int = 1) -> int:
    """Score."""
    return x + y


@rl_otel.generate(model="tiny")
async def generated(x: int) -> int:
    """Generate."""
    await asyncio.sleep(0)
    return x * 2


def failing(error: BaseException) -> None:
    raise error


async def failing_later(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


def run(function: Callable[..., Any], *args: Any) -> Any:
    result = function(*args)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@pytest.mark.parametrize("function", [failing, failing_later], ids=["function", "coroutine"])
def test_an_exception_leaves_as_it_was_raised(traces: Traces, function: Callable[..., Any]) -> None:
    """The same exception object arrives, with its cause, its context and the frames of the function untouched."""
    error, cause, context = Broken("no"), KeyError("cause"), LookupError("context")
    error.__cause__, error.__context__, error.__suppress_context__ = cause, context, False
    with pytest.raises(Broken) as caught:
        run(rl_otel.reward()(function), error)
    assert caught.value is error
    assert (error.__cause__, error.__context__, error.__suppress_context__) == (cause, context, False)
    assert traceback.extract_tb(error.__traceback__)[-1].name == function.__name__
    assert traces.one("reward").status == "error"


def broken() -> None:
    raise Broken


async def broken_later() -> None:
    raise Broken


@pytest.mark.parametrize("function", [broken, broken_later], ids=["function", "coroutine"])
def test_an_exception_is_freed_without_the_garbage_collector(traces: Traces, function: Callable[..., Any]) -> None:
    """Nothing of ours ties an exception, and the batches in its frames, into a circle."""
    decorated = rl_otel.reward()(function)
    assert freed_at_once(Broken, lambda: driven(decorated()) if function is broken_later else decorated())


def test_wrong_arguments_are_the_functions_own_error(traces: Traces) -> None:
    """A call that does not fit the signature raises what the function raises, and is recorded as failed."""
    with pytest.raises(TypeError, match="scored"):
        scored()  # type: ignore[call-arg]
    assert traces.one("reward").attributes["error.type"] == "TypeError"


def test_a_function_returns_what_it_returns_and_each_call_is_a_span(traces: Traces) -> None:
    """Arguments and results pass, and two calls are two spans."""
    assert scored(1, y=5) == 6
    assert scored(2) == 3
    assert [span.status for span in traces.all("reward")] == ["unset", "unset"]
    assert len({span.span_id for span in traces.spans}) == 2


async def test_a_coroutine_function_stays_one(traces: Traces) -> None:
    """A decorated coroutine function is one for whoever asks, and its span lasts while it is awaited."""
    assert inspect.iscoroutinefunction(generated)
    assert await generated(4) == 8
    span = traces.one("generate")
    assert span.attributes["gen_ai.request.model"] == "tiny"


def test_a_coroutine_that_is_never_awaited_is_no_span(traces: Traces) -> None:
    """The span begins with the first step of the coroutine, not with the call."""
    generated(1).close()
    assert traces.spans == []


@pytest.mark.parametrize("function", [scored, generated])
def test_a_decorated_function_looks_like_itself(function: Any) -> None:
    """Name, module, docstring, signature and the function itself are where `functools.wraps` puts them."""
    plain = function.__wrapped__
    assert (function.__name__, function.__qualname__, function.__module__) == (
        plain.__name__,
        plain.__qualname__,
        __name__,
    )
    assert function.__doc__ == plain.__doc__
    assert inspect.signature(function) == inspect.signature(plain)


def test_recursion_nests(traces: Traces) -> None:
    """A decorated function that calls itself records each call inside the one that made it."""

    @rl_otel.phase("descent")
    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)

    descend(2)
    assert traces.tree() == "descent\n  descent\n    descent"


async def test_concurrent_calls_do_not_mix(traces: Traces) -> None:
    """Calls in tasks of their own are siblings, each with its own attributes."""

    @rl_otel.trajectory()
    async def play(reward: float) -> None:
        await asyncio.sleep(0)
        rl_otel.current("trajectory").record(reward=reward)
        await asyncio.sleep(0)

    with rl_otel.rollout():
        await asyncio.gather(*(play(float(i)) for i in range(5)))
    played = traces.one("rollout").children
    assert sorted(span.attributes["rl.trajectory.reward"] for span in played) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(traces.spans) == 6


def test_calls_in_threads_do_not_mix(traces: Traces) -> None:
    """One decorated function in many threads at once records every call, each on its own."""
    together = threading.Barrier(4)

    @rl_otel.env_step("swe")
    def act(i: int) -> int:
        together.wait(30)
        rl_otel.current().record(reward=float(i))
        return i

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(act, range(8))) == list(range(8))
    spans = traces.all("env.step")
    assert sorted(span.attributes["rl.env.reward"] for span in spans) == [float(i) for i in range(8)]
    assert len({span.trace_id for span in spans}) == 8


class Environment:
    @rl_otel.env_step("swe")
    def method(self, x: int) -> tuple[Any, int]:
        return self, x

    @rl_otel.env_step("swe")
    async def coroutine(self, x: int) -> tuple[Any, int]:
        return self, x

    @staticmethod
    @rl_otel.env_step("swe")
    def static(x: int) -> int:
        return x

    @rl_otel.env_step("swe")
    @staticmethod
    async def static_outside(x: int) -> int:
        await asyncio.sleep(0)
        return x

    @classmethod
    @rl_otel.env_step("swe")
    def of_class(cls, x: int) -> tuple[Any, int]:
        return cls, x

    @rl_otel.env_step("swe")
    @classmethod
    def of_class_outside(cls, x: int) -> tuple[Any, int]:
        return cls, x


def test_methods_of_each_kind(traces: Traces) -> None:
    """Methods, static and class methods work, on whichever side of `staticmethod` the opener stands."""
    environment = Environment()
    assert environment.method(1) == (environment, 1)
    assert asyncio.run(environment.coroutine(2)) == (environment, 2)
    assert environment.static(3) == 3
    assert asyncio.run(Environment.static_outside(4)) == 4  # type: ignore[arg-type]
    assert environment.of_class(5) == (Environment, 5)
    assert Environment.of_class_outside(6) == (Environment, 6)  # type: ignore[call-arg]
    assert len(traces.all("env.step")) == 6
    assert {span.attributes["rl.environment.name"] for span in traces.spans} == {"swe"}


def test_an_opener_serves_many_functions(traces: Traces) -> None:
    """One opener may decorate several functions, which then call each other."""
    phase = rl_otel.phase("shared", model="critic")
    inner = phase(lambda: 1)
    outer = phase(lambda: inner() + 1)
    assert outer() == 2
    assert traces.tree() == "shared\n  shared"
    assert {span.attributes["rl.model.role"] for span in traces.spans} == {"critic"}


def test_a_function_decorated_before_configure_is_recorded_after_it() -> None:
    """What records is looked up when the function is called, not when it is decorated."""
    assert scored(1) == 2
    with capture() as traces:
        assert scored(1) == 2
        assert [span.name for span in traces.spans] == ["reward"]
    assert scored(1) == 2


def test_pickle_takes_decorated_functions_by_name() -> None:
    """A decorated function of a module pickles as any function does."""
    assert pickle.loads(pickle.dumps(scored)) is scored


@pytest.mark.parametrize(
    ("opener", "arguments"),
    [
        (rl_otel.trajectory, {"id": "a", "group": 1, "sample": 2, "detached": True}),
        (rl_otel.generate, {"model": "m", "purpose": "judge", "policy_version": 3}),
        (rl_otel.env_step, {"environment": "swe", "tool": "grep"}),
        (rl_otel.phase, {"name": "own", "model": "critic"}),
        (rl_otel.wait, {"reason": "batch"}),
        (rl_otel.step, {"index": 4}),
        (rl_otel.eval, {"model": None}),
    ],
)
def test_a_handle_pickles_as_what_it_was_made_with(traces: Traces, opener: Any, arguments: dict[str, Any]) -> None:
    """A copy is a handle that has not begun, with the same arguments, even if the original is open."""
    with opener(**arguments) as handle:
        copy = pickle.loads(pickle.dumps(handle))
    assert type(copy) is type(handle)
    assert {name: copy.arguments()[name] for name in arguments} == arguments
    assert (copy.span_id, copy.recording) == ("", False)


@needs.cloudpickle
def test_cloudpickle_carries_decorated_functions_to_another_process(tmp_path: Any) -> None:
    """Functions of `__main__` travel by value, decorated as they are, and record in the process that runs them."""
    carried = tmp_path / "functions.pickle"
    process.run(
        """
        import asyncio, sys, cloudpickle, rl_otel
        @rl_otel.reward()
        def score(x): return x + 1
        @rl_otel.generate(model="tiny")
        async def generate(x):
            await asyncio.sleep(0)
            return x * 2
        @rl_otel.data()
        def load(n):
            yield from range(n)
        @rl_otel.trajectory(group="g", sample=1)
        async def stream(n):
            for i in range(n):
                yield i
        class Environment:
            @rl_otel.env_step("swe")
            def act(self, x): return -x
        rl_otel.configure(run_dir="sender")
        with rl_otel.step(0):
            with open(sys.argv[1], "wb") as file:
                cloudpickle.dump((score, generate, load, stream, Environment), file)
        """,
        str(carried),
    )
    done = process.run(
        """
        import asyncio, pickle, sys
        from rl_otel.testing import capture
        with open(sys.argv[1], "rb") as file:
            score, generate, load, stream, Environment = pickle.load(file)
        async def collect(): return [i async for i in stream(3)]
        with capture() as traces:
            print(score(1), asyncio.run(generate(2)), list(load(2)), asyncio.run(collect()), Environment().act(3))
            print(sorted(span.name for span in traces.spans))
            print(traces.one("trajectory").attributes["rl.trajectory.id"])
        """,
        str(carried),
    )
    assert done.stdout.splitlines() == [
        "2 4 [0, 1] [0, 1, 2] -3",
        "['data', 'env.step', 'generate', 'reward', 'trajectory']",
        "g/1",
    ]
