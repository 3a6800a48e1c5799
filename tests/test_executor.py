"""The executor that carries the context into its pool."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import context

if TYPE_CHECKING:
    from rl_otel.testing import Traces


def step_environment(name: str = "swe") -> str:
    with rl_otel.env_step(name):
        return name


def play(pool: Executor, number: int) -> None:
    with rl_otel.trajectory(number):
        for _ in range(3):
            assert pool.submit(step_environment).result() == "swe"
        assert list(pool.map(step_environment, ["a", "b"], timeout=60)) == ["a", "b"]


def test_64_trajectories_that_step_their_environments_in_a_pool_keep_their_parents(traces: Traces) -> None:
    """Each environment step is a child of the trajectory that submitted it, and counts in that."""

    async def collect() -> None:
        await asyncio.gather(*[asyncio.to_thread(play, pool, i) for i in range(64)])

    with rl_otel.step(0), rl_otel.rollout(), context.executor(ThreadPoolExecutor(8)) as pool:
        asyncio.run(collect())
    trajectories = traces.all("trajectory")
    assert len(trajectories) == 64
    for trajectory in trajectories:
        assert (
            sorted(child.attributes["rl.environment.name"] for child in trajectory.children) == ["a", "b"] + ["swe"] * 3
        )
        assert {child.attributes["rl.turn"] for child in trajectory.children} == {1, 2, 3, 4, 5}
        assert trajectory.attributes["rl.trajectory.env.duration"] > 0


async def test_an_event_loop_takes_it_for_its_executor(traces: Traces) -> None:
    """`run_in_executor`, which loses the context, keeps it with this one."""
    with context.executor(ThreadPoolExecutor(2)) as pool, rl_otel.trajectory("t"):
        await asyncio.get_running_loop().run_in_executor(pool, step_environment)
    assert traces.tree() == "trajectory\n  env.step"


def test_what_is_submitted_where_nothing_is_open_is_open_nowhere(traces: Traces) -> None:
    """A worker thread that served a trajectory does not keep it for whoever comes next."""
    with context.executor(ThreadPoolExecutor(1)) as pool:
        with rl_otel.trajectory("t"):
            pool.submit(step_environment).result()
        pool.submit(step_environment).result()
    assert [span.parent_id == "" for span in traces.all("env.step")] == [False, True]


def test_exceptions_and_results_pass_as_they_are(recording: None) -> None:
    """What the function raises is what its future raises, and a pool that is over says so itself."""
    error = KeyError("mine")

    def fail() -> None:
        raise error

    with context.executor(ThreadPoolExecutor(1)) as pool:
        future: Future[Any] = pool.submit(fail)
        assert future.exception() is error
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(fail)
