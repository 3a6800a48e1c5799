"""Openers without their brackets: refused where they are written, by a sentence that says what to write."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from tests import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_otel.testing import Traces

OPENERS = [
    "step", "rollout", "eval", "trajectory", "generate", "env_step", "env_reset", "reward", "logprobs", "ref_logprobs",
    "values", "advantage", "data", "train", "optimizer", "weight_sync", "offload", "onload", "checkpoint", "wait",
]  # fmt: skip


async def coroutine(batch: Any) -> Any:
    return batch


def generator(batch: Any) -> Any:
    yield batch


def function(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize(
    "decorated", [function, coroutine, generator, staticmethod(function), rl_otel.data()(function)]
)
@pytest.mark.parametrize("opener", OPENERS)
def test_a_decorator_without_brackets_is_refused(opener: str, decorated: Callable[..., Any]) -> None:
    """`@rl_otel.step` above a function fails at once: later the function would never run, and nothing would say so."""
    with pytest.raises(TypeError, match=rf"^write @rl_otel\.{opener}\(\) with brackets, above \w+\(\)$"):
        getattr(rl_otel, opener)(decorated)


def test_a_phase_without_a_name_is_refused() -> None:
    """The one opener that needs an argument says which."""
    with pytest.raises(TypeError, match=r'^write @rl_otel\.phase\("name"\) with brackets, above function\(\)$'):
        rl_otel.phase(function)  # type: ignore[arg-type]


def test_a_decorator_without_brackets_is_refused_unconfigured() -> None:
    """A program that runs with rl_otel switched off would stop just as silently."""
    done = process.run(
        """
        import rl_otel
        rl_otel.configure()
        @rl_otel.step
        def train(batch):
            return batch
        """,
        env={"OTEL_SDK_DISABLED": "true"},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("TypeError: write @rl_otel.step() with brackets, above train()\n")


def test_arguments_by_position_are_refused_by_name() -> None:
    """Openers that take no argument by position say so, as Python does."""
    with pytest.raises(TypeError, match=r"^rl_otel\.train\(\) takes its arguments by name; it was given 'critic'$"):
        rl_otel.train("critic")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [5, None, "text", [function]])
def test_only_what_can_be_called_is_decorated(wrong: Any) -> None:
    """A handle that is called with data, as `rl_otel.step()(batch)`, says what it is for."""
    with pytest.raises(TypeError, match=r"^rl_otel\.step\(\) decorates functions; it was given "):
        rl_otel.step()(wrong)


def test_callable_objects_and_classes_are_decorated(traces: Traces) -> None:
    """Whatever can be called is worth a span a call."""
    assert rl_otel.reward()(int)("3") == 3
    assert rl_otel.reward()(functools.partial(function, 4))() == 4
    assert len(traces.all("reward")) == 2


@pytest.mark.parametrize("opener", [*OPENERS, "phase"])
def test_a_with_without_brackets_is_refused(opener: str) -> None:
    """`with rl_otel.rollout:` says what to write instead."""
    shown = 'phase("name")' if opener == "phase" else f"{opener}()"
    with pytest.raises(TypeError) as refused, getattr(rl_otel, opener):
        raise AssertionError
    assert str(refused.value) == f"write `with rl_otel.{shown}:`, with brackets"


async def test_an_async_with_without_brackets_is_refused() -> None:
    """So does `async with`."""
    with pytest.raises(TypeError, match=r"^write `with rl_otel\.rollout\(\):`, with brackets$"):
        async with rl_otel.rollout:  # type: ignore[attr-defined]
            raise AssertionError


async def test_async_with_is_a_with(traces: Traces) -> None:
    """In a coroutine both open the same span, with the same context and the same errors."""
    with pytest.raises(ValueError, match="no"):  # noqa: PT012 - all of it is the block that fails
        async with rl_otel.step(0) as step, rl_otel.rollout(), rl_otel.trajectory():
            async with rl_otel.generate() as generation:
                generation.record(output_tokens=3)
            step.record(loss=0.5)
            raise ValueError("no")
    assert traces.tree() == "step\n  rollout\n    trajectory\n      generate"
    assert [span.status for span in traces.spans] == ["error", "error", "error", "unset"]
    assert not rl_otel.current()
    async with rl_otel.current() as nothing:
        assert not nothing
