"""The public API as a typed program uses it. Not run: mypy checks it, strictly, with `make check`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from typing_extensions import assert_type

import rl_otel

rl_otel.configure(
    service_name="grpo", endpoint="http://127.0.0.1:4318", headers={"a": "b"}, resource={"gpus": 8}, gpu_all=True
)


@rl_otel.train()
def decorated(batch: list[int]) -> float:
    return sum(batch) / 2


@rl_otel.generate(model="m")
async def coroutine(prompt: str) -> str:
    return prompt


@rl_otel.role("generator")
async def loop(prompt: str) -> str:
    with rl_otel.role("judge") as judge:
        judge.end()
    return prompt


@rl_otel.phase("stream")
def generator() -> Iterator[int]:
    yield 1


@rl_otel.phase("stream")
async def asynchronous() -> AsyncIterator[int]:
    yield 1


async def play() -> None:
    with rl_otel.trajectory(group="g", sample=1) as trajectory:
        with rl_otel.env_reset("swe"):
            await asyncio.sleep(0)
        with rl_otel.generate(model="m") as generation:
            assert_type(await coroutine("p"), str)
            generation.record(input_tokens=3, output_tokens=[1, 2], finish_reason="stop")
        with rl_otel.env_step("swe", tool="bash") as env_step:
            env_step.record({"loss/extra": 1.0}, reward=0.5, terminated=True)
        trajectory.record(reward=1.0)
        assert_type(trajectory.id, str)
    async with rl_otel.env_reset("swe") as env_reset:
        env_reset.record(reward=0.0)
        assert_type(await rl_otel.bind(coroutine)("p"), str)
    async for number in asynchronous():
        assert_type(number, int)


for index in range(3):
    with rl_otel.step(index) as step:
        with rl_otel.rollout() as rollout:
            asyncio.run(play())
            rollout.record(rewards=[0.0, 1.0])
        assert_type(decorated([1]), float)
        with ThreadPoolExecutor() as pool:
            loss: float = pool.submit(rl_otel.bind(decorated), [1]).result()
        assert_type(rl_otel.bind(decorated)([1]), float)
        step.consume(["g/1", ("g/2", 1, 2)], policy_versions={"g/1": 3})
        with rl_otel.wait("batch", buffer="gen"):
            step.record(loss=loss, samples=4, dropped={"stale": ["g/3"]})
    assert_type(step.summary, dict[str, float | int])

for number in rl_otel.steps(range(3)):
    assert_type(number, int)

handle = rl_otel.weight_sync().start()
handle.end(error=None)
rl_otel.current("step").record(kl=0.1)
assert_type(rl_otel.flush(timeout=1.0), rl_otel.Delivery)
assert_type(rl_otel.shutdown().sent, int)
