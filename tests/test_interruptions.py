"""What stays behind when the host's own exception strikes inside our code, or a name is used where none can load."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from opentelemetry import trace

import rl_otel
from rl_otel import _clock, _runtime, _safety
from rl_otel._spans import ambient, usual
from rl_otel.testing import Traces
from tests import process
from tests.strikes import COMPILED


class Stop(BaseException):
    """What a handler of the host raises."""


class Boom:
    """An object of the host that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("boom")

    __repr__ = __str__


class Interrupted:
    """The context variable of the current span, where the host's exception strikes when it has been set."""

    def __init__(self, real: Any) -> None:
        self.get = real.get
        self._set = real.set
        self._strikes = True
        self.set = self

    def __call__(self, span: object) -> None:
        self._set(span)
        if self._strikes:
            self._strikes = False
            raise Stop


def skip_compiled(name: str) -> None:
    """Skip a test of a call that is compiled: there nothing of the host comes in between."""
    if COMPILED and name != "train":
        pytest.skip("nothing strikes inside a compiled call")


@pytest.mark.parametrize("name", ["train", "generate", "env_step"])
def test_an_interrupted_beginning_is_taken_back(traces: Traces, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An exception of the host when a span has just become current reaches the host, and the span is left again."""
    skip_compiled(name)
    assert _runtime.active is not None
    with rl_otel.step(1), rl_otel.rollout() as rollout:
        for module, place in (ambient, "innermost"), (usual, "_set_innermost"):
            monkeypatch.setattr(module, place, Interrupted(ambient.innermost))
        with pytest.raises(Stop), getattr(rl_otel, name)():
            raise AssertionError("the body must not run")
        assert rl_otel.current() is trace.get_current_span() is rollout
        assert (_runtime.active.timelines.own.active, _runtime.active.in_flight.calls) == (rollout, set())
    assert [span.name for span in traces.spans] == ["step", "rollout"]
    assert rl_otel.shutdown().dropped == 1


@pytest.mark.parametrize("at", ["clock", "figures", "context"])
@pytest.mark.parametrize("name", ["train", "generate", "env_step"])
def test_an_interrupted_end_is_made_up_for(traces: Traces, monkeypatch: pytest.MonkeyPatch, name: str, at: str) -> None:
    """An exception of the host anywhere in the end of a span reaches the host; the span is recorded and left."""
    skip_compiled(name)
    assert _runtime.active is not None

    def struck(*_: object) -> None:
        patch.undo()
        raise Stop

    with rl_otel.step(1), rl_otel.rollout() as rollout:
        handle = getattr(rl_otel, name)().start()
        places = {
            "clock": [(_clock, "monotonic")],
            "figures": [(type(handle), "_closed")],
            "context": [(ambient, "attach"), (usual, "_attach")],
        }
        with monkeypatch.context() as patch:
            for place in places[at]:
                patch.setattr(*place, struck)
            with pytest.raises(Stop):
                handle.end()
        assert rl_otel.current() is trace.get_current_span() is rollout
        assert (_runtime.active.timelines.own.active, _runtime.active.in_flight.calls) == (rollout, set())
    assert [each.name for each in traces.spans] == ["step", "rollout", handle.name]
    assert rl_otel.shutdown().dropped == 0


def test_a_beginning_that_fails_is_counted(
    traces: Traces, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A span that could not begin, for an error of ours, is told and counted as dropped."""
    monkeypatch.setattr(_safety, "strict", False)
    with monkeypatch.context() as patch:
        patch.setattr(rl_otel.train, "_opened", lambda self, runtime: 1 / 0)
        with rl_otel.train() as train:
            train.record(tokens=1)
    assert "internal error in train entered" in caplog.text
    assert (traces.spans, rl_otel.shutdown().dropped) == ([], 1)


def test_arguments_that_cannot_be_shown_cost_no_span(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Objects of the host that raise when they are shown name a span by their type, or are left out."""
    with rl_otel.step(1), rl_otel.phase(Boom()):  # type: ignore[arg-type]
        pass
    trajectory = rl_otel.trajectory(Boom(), group=Boom(), attempt=Boom())  # type: ignore[arg-type]
    with trajectory, rl_otel.env_step(Boom(), tool=Boom()):  # type: ignore[arg-type]
        pass
    assert trajectory.id == "<Boom>"
    assert {"<Boom>", "trajectory", "env.step"} <= {span.name for span in traces.spans}
    assert traces.one("env.step").attributes["rl.environment.name"] == "<Boom>"
    assert "trajectory(attempt=<Boom>): not a whole number, left out" in caplog.text


def test_an_end_of_opentelemetrys_ends_the_span(traces: Traces) -> None:
    """Who takes a span for one of OpenTelemetry's may give its end a time; what is no exception is none."""
    rl_otel.train().start().end(end_time=1)
    rl_otel.train().start().end(1)  # type: ignore[arg-type]
    rl_otel.current().end(end_time=1)
    assert [(span.name, span.status) for span in traces.spans] == [("train", "unset")] * 2
    assert all(span.end >= span.start for span in traces.spans)


def test_handles_know_what_they_were_asked_without_configure() -> None:
    """A step's number and a trajectory's id are what the opener was called with where nothing is recorded."""
    assert (rl_otel.step(7).index, rl_otel.step().index) == (7, -1)
    named = rl_otel.trajectory("a"), rl_otel.trajectory(group="g", sample=3), rl_otel.trajectory(sample=3)
    assert [handle.id for handle in named] == ["a", "g/3", "3"]
    assert (rl_otel.trajectory().id, rl_otel.trajectory(group="g").id) == ("", "")


def test_log_keys_have_no_names_of_the_hosts(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A thousand phase names, misspelt words and unknown kinds make a few lines, and no memory that grows."""
    for i in range(1000):
        first, second = rl_otel.phase(f"a{i}").start(), rl_otel.phase(f"b{i}")
        second.start().end()
        first.end()
        task = contextvars.copy_context()
        task.run(second.start)
        with rl_otel.phase(f"c{i}"):
            second.end()
        rl_otel.add(f"kind{i}", 1, 2)
    assert len(caplog.records) < 10
    assert len(_safety._said) < 10


# --- awaitables and generators ----------------------------------------------------------------------------------------


class Judge:
    """An object that is called like a coroutine function."""

    async def __call__(self) -> str:
        await asyncio.sleep(0.02)
        return str(rl_otel.current().name)


def test_the_span_of_an_awaitable_lasts(traces: Traces) -> None:
    """Objects with an async `__call__`, and functions that return a coroutine, are open while these run."""

    @rl_otel.reward()
    def score() -> Awaitable[str]:
        return Judge()()

    async def main() -> None:
        with rl_otel.step(1) as step:
            assert await rl_otel.reward()(Judge())() == "reward"
            waiting = score()
            assert rl_otel.current() is step
            assert await waiting == "reward"
            assert rl_otel.current() is step

    asyncio.run(main())
    assert [span.duration >= 15_000_000 for span in traces.all("reward")] == [True, True]


def test_an_error_of_a_returned_coroutine_is_its_spans(traces: Traces) -> None:
    """What a returned coroutine raises ends the span as an error and reaches the host."""

    async def fail() -> None:
        raise KeyError("x")

    def returned() -> Awaitable[None]:
        return fail()

    with pytest.raises(KeyError):
        asyncio.run(rl_otel.reward()(returned)())
    assert traces.one("reward").status == "error"
    assert not rl_otel.current()


def test_an_inner_generator_may_be_closed_first(traces: Traces) -> None:
    """At its end a loop closes all async generators, inner and outer ones, in any order."""

    @rl_otel.data()
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def main(order: int) -> None:
        begun: list[AsyncIterator[int]] = []
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=begun.append)
        await anext(numbers())
        sys.set_asyncgen_hooks(*before)
        for generator in begun[::order]:
            await generator.aclose()  # type: ignore[attr-defined]

    asyncio.run(main(1))
    asyncio.run(main(-1))
    assert [span.attributes["rl.aborted"] for span in traces.all("data")] == ["GeneratorExit"] * 2


# --- names ------------------------------------------------------------------------------------------------------------

HALF_LOADED = """
import signal, rl_otel
handled = 0
def handler(number, frame):
    global handled
    with rl_otel.env_step("signal") as span:
        span.record(reward=1)
    rl_otel.current("step").record(loss=1)
    rl_otel.bind(len)([])
    handled += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
rl_otel.configure(run_dir="runs")
with rl_otel.step(1):
    while handled < 5:
        signal.pause()
signal.setitimer(signal.ITIMER_REAL, 0)
print("fine", handled >= 5)
"""

AT_EXIT = """
import rl_otel
class Model:
    def __del__(self):
        with rl_otel.checkpoint():
            print("checkpoint")
rl_otel.configure(run_dir="runs")
model = Model()
"""


@pytest.mark.parametrize(("script", "said"), [(HALF_LOADED, "fine True"), (AT_EXIT, "checkpoint")])
def test_a_name_may_be_used_at_any_moment(script: str, said: str) -> None:
    """A signal handler that interrupts our first import, and a destructor at exit, get a name that works."""
    done = process.run(script)
    assert (done.stdout.strip(), done.stderr) == (said, "")
