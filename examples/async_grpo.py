"""Asynchronous GRPO on FrozenLake, traced with rl_otel: four processes that read as one run.

    python examples/async_grpo.py

The trainer never waits for its own rollout. Two generators play all the time, in environments that an HTTP server has,
and put what they played into a buffer; the trainer takes from it, learns, and publishes weights, which the generators
take up before their next group. So what it learns from was played by weights that are a few versions old, and what is
older than that is thrown away. Policy and lake are those of `grpo.py`.

              groups                   weights, version
    generator ──────> buffer ──> trainer ─────────────> generators
        └── HTTP ──> environment server
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import queue
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import grpo
import lake
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import rl_otel

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE, TURNS = 3, 6  # of a lake, of a trajectory: small enough to learn in seconds
GENERATORS, GROUP = 2, 8  # processes; trajectories that start on the same map
BATCH = 4  # groups of a step
PATIENCE = 120  # s until a trainer without a batch gives up

spawn = multiprocessing.get_context("spawn")  # torch and its threads do not survive a fork


# --- weights and groups on their way between trainer and generators ---------------------------------------------------


class Weights:
    """How weights get from the trainer to the generators."""

    def send(self, vector: torch.Tensor, version: int) -> None:
        raise NotImplementedError

    def receive(self) -> tuple[torch.Tensor, int]:
        """Return what was sent last."""
        raise NotImplementedError

    def publish(self, policy: grpo.Policy, version: int) -> None:
        with rl_otel.weight_sync() as weight_sync:
            with weight_sync.part("gather"):
                vector = parameters_to_vector(policy.parameters()).detach()
            with weight_sync.part("transfer", bytes=vector.nbytes):
                self.send(vector, version)
            weight_sync.record(policy_version=version)

    def load_into(self, policy: grpo.Policy, known: int) -> int:
        """Take up what is newer than the version that is known. Returns the version that it has now."""
        vector, version = self.receive()
        if version > known:
            with rl_otel.weight_sync() as weight_sync:
                with weight_sync.part("load", bytes=vector.nbytes):
                    vector_to_parameters(vector, policy.parameters())
                weight_sync.record(policy_version=version)
        return version


class SharedWeights(Weights):
    """They lie in memory that all processes share."""

    def __init__(self, policy: grpo.Policy) -> None:
        self.vector = parameters_to_vector(policy.parameters()).detach().share_memory_()
        self.version = spawn.Value("i", -1)  # its lock is for both

    def send(self, vector: torch.Tensor, version: int) -> None:
        with self.version.get_lock():
            self.vector.copy_(vector)
            self.version.value = version

    def receive(self) -> tuple[torch.Tensor, int]:
        with self.version.get_lock():
            return self.vector.clone(), int(self.version.value)


@dataclass
class Sample:
    """What the trainer has to know of a trajectory."""

    id: str
    version: int  # of the policy that played it
    tokens: list[int]
    written: list[bool]
    reward: float
    advantage: float = 0.0


class Shared(NamedTuple):
    """What trainer and generators share."""

    weights: Weights
    buffer: Any  # a queue of groups
    done: Any  # an event


# --- the generators ---------------------------------------------------------------------------------------------------


@rl_otel.role("generator")
def generate(number: int, shared: Shared, port: int, seed: int) -> None:
    """Play groups until the run is done, and put them into the buffer."""
    prepare(seed)
    rl_otel.configure()
    asyncio.run(fill(number, shared, partial(lake.RemoteLake, port), seed))
    shared.buffer.cancel_join_thread()  # what is still in it nobody will read


async def fill(number: int, shared: Shared, make: Callable[..., lake.TextLake], seed: int) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(GROUP))
    engine, version = grpo.Engine(grpo.Policy()), -1
    for group in count(number, GENERATORS):
        version = shared.weights.load_into(engine.policy, version)
        sandboxes = [(group * GROUP + sample) % lake.SANDBOXES for sample in range(GROUP)]
        lakes = [make(sandbox, SIZE, TURNS) for sandbox in sandboxes]
        plays = [grpo.play(engine, each, str(group), sample, seed) for sample, each in enumerate(lakes)]
        played = [Sample(t.id, version, t.tokens, t.written, t.reward) for t in await asyncio.gather(*plays)]
        with rl_otel.wait("buffer_full"):
            shared.buffer.put(played)
        if shared.done.is_set():
            return


# --- the trainer ------------------------------------------------------------------------------------------------------


@rl_otel.role("trainer")
def train(steps: int, stalest: int, policy: grpo.Policy, shared: Shared) -> list[dict[str, float]]:
    """Learn from what is in the buffer, and publish. Returns each step's figures."""
    reference, adam = deepcopy(policy), torch.optim.Adam(policy.parameters(), lr=3e-3)
    figures = []
    for i in range(steps):  # i is also the version of the policy
        with rl_otel.step(i) as step:
            with rl_otel.wait("batch"):
                groups, stale = take(shared.buffer, i - stalest)
            with rl_otel.advantage():
                batch = grpo.advantages(groups)
            everyone = [sample for group in groups for sample in group]
            step.record(dropped={"stale": stale, "zero_variance": len(everyone) - len(batch)})
            step.consume([sample.id for sample in batch], policy_versions=[sample.version for sample in batch])
            if batch:
                step.record(loss=grpo.learn(policy, reference, adam, batch))
            shared.weights.publish(policy, i + 1)
            step.record(reward=mean(sample.reward for sample in everyone), samples=len(batch))
        figures.append({"reward": mean(sample.reward for sample in everyone), **step.summary})
        tell(i, figures[-1])
    return figures


def take(buffer: Any, oldest: int) -> tuple[list[list[Sample]], list[str]]:
    """Wait for a batch of that version or newer. Returns its groups, and the ids of what is too stale."""
    groups: list[list[Sample]] = []
    stale: list[str] = []
    while len(groups) < BATCH:
        group = buffer.get(timeout=PATIENCE)
        if group[0].version >= oldest:
            groups.append(group)
        else:
            stale += [sample.id for sample in group]
    return groups, stale


def tell(i: int, figures: dict[str, float]) -> None:
    line = f"Step {i:2}: reward {figures['reward']:.2f}"
    if "timing/step" in figures:  # with OTEL_SDK_DISABLED=true the summary is empty
        line += f", waited {figures['timing/wait']:.2f} s of {figures['timing/step']:.2f} s"
        line += f", buffer {figures['async/groups_buffer_qsize']} of {figures['async/groups_buffer_maxsize']}"
        line += f", stalest {figures.get('async/staleness_max', 'unknown')}"
        line += f", too stale {figures.get('dropped/stale', 0)}"
    print(line)


# --- all of them ------------------------------------------------------------------------------------------------------


def prepare(seed: int) -> None:
    torch.set_num_threads(1)  # so small a model only loses time between threads
    torch.manual_seed(seed)


def run(steps: int, stalest: int, capacity: int, seed: int) -> list[dict[str, float]]:
    """Start the other processes, train, and end them."""
    policy = grpo.Policy()
    shared = Shared(SharedWeights(policy), spawn.Queue(capacity), spawn.Event())
    rl_otel.buffer("groups", size=shared.buffer.qsize, capacity=capacity)
    shared.weights.publish(policy, 0)
    server = subprocess.Popen([sys.executable, lake.__file__], stdout=subprocess.PIPE, text=True)  # noqa: S603
    port = int(server.stdout.readline())
    generators = [spawn.Process(target=generate, args=(n, shared, port, seed)) for n in range(GENERATORS)]
    for generator in generators:
        generator.start()
    try:
        return train(steps, stalest, policy, shared)
    finally:
        shared.done.set()
        while any(generator.is_alive() for generator in generators):
            with suppress(queue.Empty):
                shared.buffer.get(timeout=0.1)  # one of them may wait for a place
        server.terminate()
        server.wait()


def main(run: Callable[..., list[dict[str, float]]], name: str, about: str) -> None:
    """Do what the command line says, and tell how it went."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--stalest", type=int, default=3, help="versions that what is trained on may be behind")
    parser.add_argument("--capacity", type=int, default=8, help="groups that the buffer takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path, default="rl-otel-runs")
    args = parser.parse_args()
    prepare(args.seed)

    rl_otel.configure(service_name=name, run_dir=args.run_dir)
    figures = run(args.steps, args.stalest, args.capacity, args.seed)
    delivered = rl_otel.shutdown()

    rewards = [each["reward"] for each in figures]
    print(f"\nReward: {grpo.gain(rewards)}")
    if not delivered.folder:
        return  # OTEL_SDK_DISABLED=true: nothing was recorded
    waited, lasted = (sum(each[f"timing/{what}"] for each in figures) for what in ("wait", "step"))
    stalest = max((each["async/staleness_max"] for each in figures if "async/staleness_max" in each), default="unknown")
    print(f"Waits: the trainer {waited:.1f} of {lasted:.1f} s, for its batches")
    print(f"Staleness: at most {stalest} versions; {sum(each.get('dropped/stale', 0) for each in figures)} too stale")
    if delivered.sent or delivered.pending:
        print(f"Sent by the trainer: {delivered.sent} spans, {delivered.pending} pending, {delivered.dropped} dropped")
    tool = "rl-otel" if shutil.which("rl-otel") else f"{os.path.relpath(sys.executable)} -m rl_otel"
    longest = max(range(args.steps), key=lambda i: figures[i]["timing/wait"])
    print(f"All steps, over all processes: {tool} report {delivered.folder}")
    print(f"The one that waited longest: {tool} report {delivered.folder} --step {longest}\n", flush=True)
    report = ["-m", "rl_otel", "report", delivered.folder, "--step", str(longest)]
    subprocess.run([sys.executable, *report], check=True)  # noqa: S603


if __name__ == "__main__":
    main(run, "async-grpo", __doc__)
