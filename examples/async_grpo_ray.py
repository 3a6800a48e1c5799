"""The same asynchronous GRPO as in `async_grpo.py`, on Ray: the driver trains, actors play, and it reads as one run.

    pip install ray
    python examples/async_grpo_ray.py

Training, playing, and what is told at the end are those of `async_grpo.py`. Here is what Ray changes: where the
environments are, how weights travel, and who starts and ends what.

                     groups                        weights, version
    Generator actor ──────> buffer (actor) ──> driver ─────────────> Generator actors
        └── calls with a carrier ──> Environments actor
"""

from __future__ import annotations

import asyncio
import queue
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any

import async_grpo
import grpo
import lake
import ray
from async_grpo import GENERATORS, GROUP, Shared
from ray.util.queue import Queue

import rl_otel

# --- the environments -------------------------------------------------------------------------------------------------


@ray.remote(num_cpus=0, max_concurrency=GENERATORS * GROUP)
class Environments:
    """Has all lakes, and records each call in the trace of the trajectory that makes it."""

    def __init__(self) -> None:
        self.lakes: dict[Any, lake.TextLake] = {}

    @rl_otel.role("env")
    def reset(self, key: Any, how: tuple[int, int, int], map_seed: int, carrier: dict[str, str]) -> str:
        with rl_otel.context.use(carrier), rl_otel.env_reset("frozen-lake"):
            self.lakes[key] = lake.TextLake(*how)
            return self.lakes[key].reset(map_seed)

    @rl_otel.role("env")
    def step(self, key: Any, words: list[str], carrier: dict[str, str]) -> tuple[str, float, bool, bool]:
        with rl_otel.context.use(carrier), rl_otel.env_step("frozen-lake"):
            return self.lakes[key].step(words)


class ActorLake(lake.TextLake):
    """A lake in that actor."""

    def __init__(self, environments: Any, player: int, sandbox: int, size: int, turns: int) -> None:
        super().__init__(sandbox, size, turns)
        self.environments, self.key = environments, (player, sandbox)

    def reset(self, map_seed: int) -> str:
        how = (self.sandbox, self.size, self.left)
        return str(ray.get(self.environments.reset.remote(self.key, how, map_seed, rl_otel.context.inject())))

    def step(self, words: list[str]) -> Any:
        return ray.get(self.environments.step.remote(self.key, words, rl_otel.context.inject()))


# --- groups and weights on their way ----------------------------------------------------------------------------------


class Buffer(Queue):
    """It has references to groups: to take up a group its actor would import torch, and all would wait meanwhile."""

    def put(self, group: list[async_grpo.Sample]) -> None:
        super().put([ray.put(group)])

    def get(self, timeout: float) -> Any:
        (group,) = super().get(timeout=timeout)
        return ray.get(group)


class Sender(async_grpo.Weights):
    """The trainer's end."""

    def __init__(self, generators: list[Any]) -> None:
        self.generators = generators

    def send(self, vector: Any, version: int) -> None:
        shared = ray.put(vector)  # once, for all
        ray.get([generator.receive.remote(shared, version) for generator in self.generators])


class Receiver(async_grpo.Weights):
    """A generator's end: what was sent last."""

    def __init__(self) -> None:
        self.newest: tuple[Any, int] = (None, -1)

    def receive(self) -> tuple[Any, int]:
        return self.newest


# --- the generators ---------------------------------------------------------------------------------------------------


@ray.remote(num_cpus=1, max_concurrency=2)  # `receive` and `stop` are called while `generate` runs
class Generator:
    def __init__(self, number: int, seed: int) -> None:
        async_grpo.prepare(seed)
        rl_otel.configure()  # it plays for no step in particular: no carrier begins its recording
        self.number, self.seed, self.weights, self.done = number, seed, Receiver(), Event()

    @rl_otel.role("generator")
    def generate(self, buffer: Buffer, environments: Any) -> None:
        """Play groups until it is to stop, and put them into the buffer."""
        shared = Shared(self.weights, buffer, self.done)
        asyncio.run(async_grpo.fill(self.number, shared, partial(ActorLake, environments, self.number), self.seed))

    def receive(self, vector: Any, version: int) -> None:
        self.weights.newest = (vector, version)

    def stop(self) -> None:
        self.done.set()


# --- the driver -------------------------------------------------------------------------------------------------------


def run(steps: int, stalest: int, capacity: int, seed: int) -> list[dict[str, float]]:
    """Start Ray and the actors, train, and end them."""
    env = {"env_vars": rl_otel.context.environ({})}
    ray.init(num_cpus=4, include_dashboard=False, logging_level="warning", runtime_env=env)
    try:
        return with_actors(steps, stalest, capacity, seed)
    finally:
        ray.shutdown()  # before rl_otel's, which delivers what the actors leave


def with_actors(steps: int, stalest: int, capacity: int, seed: int) -> list[dict[str, float]]:
    environments = Environments.remote()
    generators = [Generator.remote(number, seed) for number in range(GENERATORS)]
    policy, shared = grpo.Policy(), Shared(Sender(generators), Buffer(capacity), None)
    ray.get([actor.__ray_ready__.remote() for actor in (environments, shared.buffer.actor, *generators)])
    rl_otel.buffer("groups", size=shared.buffer.qsize, capacity=capacity)
    shared.weights.publish(policy, 0)
    playing = [generator.generate.remote(shared.buffer, environments) for generator in generators]
    try:
        return async_grpo.train(steps, stalest, policy, shared)
    finally:
        ray.get([generator.stop.remote() for generator in generators])
        while ray.wait(playing, num_returns=len(playing), timeout=0)[1]:
            with suppress(queue.Empty):
                shared.buffer.get(timeout=0.1)  # one of them may wait for a place
        ray.get(playing)


if __name__ == "__main__":
    async_grpo.main(run, "async-grpo-ray", __doc__)
