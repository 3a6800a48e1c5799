"""GRPO on FrozenLake, traced with rl_otel: a policy that writes its moves in words learns on two cores in a minute.

    python examples/grpo.py
    torchrun --nproc-per-node 2 examples/grpo.py     # twice the maps a step, gradients averaged over the ranks

Gymnasium's FrozenLake is told in words: each turn the policy reads what lies to its left, below, right and above
("wall ice hole wall") and writes up to three words ("down stop"). Nothing tells it which of its words are moves. The
trajectories of a group start on the same map, and GRPO learns from nothing but that some of them reach the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, pstdev

import torch
import torch.distributed as dist
from lake import SANDBOXES, TextLake
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import rl_otel

VOCABULARY = ("<start>", "left", "down", "right", "up", "stop", "ice", "hole", "goal", "wall")
TOKENS = {word: token for token, word in enumerate(VOCABULARY)}

SIZE, TURNS, WORDS = 4, 12, 3  # of the lake; of a trajectory and of a turn, at most
EPOCHS, MINIBATCH, CLIP, KL = 2, 32, 0.2, 0.005
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Policy(nn.Module):
    """A recurrent language model: its state after a token is all it remembers of the text before."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), width)
        self.recur = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(VOCABULARY))

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden, state = self.recur(self.embed(tokens), state)
        return self.head(hidden), state


@dataclass
class Trajectory:
    """A trajectory as text: all tokens, and which of them the policy wrote."""

    chance: random.Random  # its own, so that a seed gives the same text in whatever order the threads finish
    state: Tensor  # the engine's after the first `seen` tokens: what a key-value cache is to a transformer
    seen: int = 0
    tokens: list[int] = field(default_factory=lambda: [TOKENS["<start>"]])
    written: list[bool] = field(default_factory=lambda: [False])
    reward: float = 0.0
    advantage: float = 0.0
    id: str = ""
    seconds: float = 0.0

    def read(self, text: str) -> None:
        self.tokens += [TOKENS[word] for word in text.split()]
        self.written += [False] * (len(self.tokens) - len(self.written))


class Engine:
    """The rollout engine: its own copy of the policy, which writes for all that wait at once."""

    def __init__(self, policy: Policy) -> None:
        self.policy = deepcopy(policy).requires_grad_(False)
        self.waiting: list[Trajectory] = []
        self.busy = asyncio.Lock()

    def load(self, weights: dict[str, Tensor]) -> int:
        self.policy.load_state_dict(weights)
        return sum(weight.nbytes for weight in weights.values())

    async def generate(self, trajectory: Trajectory) -> list[str]:
        before = len(trajectory.tokens)
        if not self.waiting:
            self.batch = asyncio.create_task(self.serve())
        self.waiting.append(trajectory)
        await self.batch
        return [VOCABULARY[token] for token in trajectory.tokens[before:]]

    async def serve(self) -> None:
        async with self.busy:  # while one batch is written the next one gathers
            batch, self.waiting = self.waiting, []
            await asyncio.to_thread(self.write, batch)

    def write(self, batch: list[Trajectory], words: int = WORDS) -> None:
        if not batch or not words:
            return
        unseen = torch.tensor([trajectory.tokens[trajectory.seen :] for trajectory in batch])
        logits, states = self.policy(unseen, torch.cat([trajectory.state for trajectory in batch], dim=1))
        draws = torch.tensor([[trajectory.chance.random()] for trajectory in batch])
        chosen = torch.searchsorted(logits[:, -1].softmax(-1).cumsum(-1), draws).clamp(max=len(VOCABULARY) - 1)
        for trajectory, state, token in zip(batch, states.split(1, dim=1), chosen[:, 0].tolist(), strict=True):
            trajectory.state, trajectory.seen = state, len(trajectory.tokens)
            trajectory.tokens.append(token)
            trajectory.written.append(True)
        self.write([trajectory for trajectory in batch if trajectory.tokens[-1] != TOKENS["stop"]], words - 1)


async def play(engine: Engine, lake: TextLake, group: str, sample: int, seed: int) -> Trajectory:
    """One trajectory: read, write, walk, until the goal, a hole or the last turn."""
    started, map_seed = time.perf_counter(), random.Random(f"{seed} {group}").getrandbits(31)
    me = Trajectory(random.Random(f"{seed} {group} {sample}"), torch.zeros(1, 1, engine.policy.recur.hidden_size))
    with rl_otel.trajectory(group=group, sample=sample) as trajectory:
        with rl_otel.env_reset("frozen-lake"):
            me.read(await asyncio.to_thread(lake.reset, map_seed))
        done = False
        while not done:
            with rl_otel.generate(model="gru-64") as generation:
                words = await engine.generate(me)
                generation.record(input_tokens=len(me.tokens) - len(words), output_tokens=len(words))
            with rl_otel.env_step("frozen-lake") as env_step:
                text, reward, terminated, truncated = await asyncio.to_thread(lake.step, words)
                env_step.record(reward=reward, terminated=terminated, truncated=truncated)
            me.read(text)
            me.reward += reward
            done = terminated or truncated
        trajectory.record({"sandbox": lake.sandbox}, reward=me.reward)
    me.id, me.seconds = trajectory.id, time.perf_counter() - started
    return me


async def collect(engine: Engine, groups: list[str], size: int, seed: int) -> list[list[Trajectory]]:
    """All groups at once; each plays `size` times on a map of its own."""
    starts = [(group, sample) for group in groups for sample in range(size)]
    plays = [
        play(engine, TextLake(number % SANDBOXES, SIZE, TURNS), *start, seed) for number, start in enumerate(starts)
    ]
    played = await asyncio.gather(*plays)
    return [played[first : first + size] for first in range(0, len(played), size)]


def useful(group: list[Trajectory]) -> bool:
    """Whether something can be learned from comparing its trajectories."""
    return len({t.reward for t in group}) > 1


def advantages(played: list[list[Trajectory]]) -> list[Trajectory]:
    """Compare each trajectory with its group; return those of groups that are useful."""
    batch = []
    for group in filter(useful, played):
        average, spread = mean(t.reward for t in group), pstdev(t.reward for t in group)
        for t in group:
            t.advantage = (t.reward - average) / spread
        batch += group
    return batch


def logprobs(policy: Policy, tokens: Tensor) -> Tensor:
    logits, _ = policy(tokens[:, :-1])
    return logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]


def least(number: int) -> int:
    """The smallest on all ranks: what each of them does as often."""
    everywhere = torch.tensor(number)
    if RANKS > 1:
        with rl_otel.wait("collective"):
            dist.all_reduce(everywhere, dist.ReduceOp.MIN)
    return int(everywhere)


def average_gradients(policy: Policy) -> None:
    gradients = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    with rl_otel.wait("collective"):
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient /= RANKS


def learn(policy: Policy, reference: Policy, adam: torch.optim.Optimizer, batch: list[Trajectory]) -> float:
    """Clipped policy gradient with a KL penalty, on what the policy wrote itself. Returns the last loss."""
    tokens = pad_sequence([torch.tensor(t.tokens) for t in batch], batch_first=True)
    written = pad_sequence([torch.tensor(t.written) for t in batch], batch_first=True)[:, 1:]
    advantage = torch.tensor([[t.advantage] for t in batch])
    with torch.no_grad():
        with rl_otel.logprobs():
            old = logprobs(policy, tokens)
        with rl_otel.ref_logprobs():
            ref = logprobs(reference, tokens)
    minibatches = least(-(-len(batch) // MINIBATCH))
    for epoch in range(EPOCHS):
        for index, rows in enumerate(torch.randperm(len(batch)).split(MINIBATCH)[:minibatches]):
            with rl_otel.train() as train:
                new = logprobs(policy, tokens[rows])
                ratio = (new - old[rows]).exp()
                gain = torch.minimum(ratio * advantage[rows], ratio.clamp(1 - CLIP, 1 + CLIP) * advantage[rows])
                kl = (ref[rows] - new).expm1() - (ref[rows] - new)
                loss = (KL * kl - gain)[written[rows]].mean()
                loss.backward()
                train.record(tokens=int(written[rows].sum()), minibatch=index, epoch=epoch)
            with rl_otel.optimizer():
                if RANKS > 1:
                    average_gradients(policy)
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                adam.step()
                adam.zero_grad()
    return loss.item()


async def run(steps: int, groups: int, size: int, seed: int) -> tuple[list[float], list[Trajectory]]:
    """Train. Returns each step's mean reward and its slowest trajectory."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(SANDBOXES))
    policy = Policy()
    reference, engine = deepcopy(policy), Engine(policy)
    adam = torch.optim.Adam(policy.parameters(), lr=3e-3)
    rewards, slowest = [], []
    for i in range(steps):
        with rl_otel.step(i) as step:
            with rl_otel.rollout() as rollout:
                maps = [str((i * groups + n) * RANKS + RANK) for n in range(groups)]
                played = await collect(engine, maps, size, seed)
                rollout.record(dropped={"zero_variance": size * sum(not useful(group) for group in played)})
            with rl_otel.advantage():
                batch = advantages(played)
            if least(len(batch)):
                step.record(loss=learn(policy, reference, adam, batch), samples=len(batch))
            with rl_otel.weight_sync() as weight_sync:
                weight_sync.record(bytes=engine.load(policy.state_dict()), policy_version=i + 1)
            if i % 8 == 7:
                with rl_otel.eval():
                    await collect(engine, [f"eval-{n * RANKS + RANK}" for n in range(groups)], 1, seed)
            everyone = [t for group in played for t in group]
            rewards.append(mean(t.reward for t in everyone))
            slowest.append(max(everyone, key=lambda t: t.seconds))
            step.record(reward=rewards[-1])
    return rewards, slowest


def gain(rewards: list[float]) -> str:
    if len(rewards) < 10:  # the first five are among the last five
        return f"{mean(rewards):.3f}"
    return f"{mean(rewards[:5]):.3f} in the first five steps, {mean(rewards[-5:]):.3f} in the last five"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--groups", type=int, default=16, help="maps a step")
    parser.add_argument("--group-size", type=int, default=8, help="trajectories a map")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path, default="rl-otel-runs")
    args = parser.parse_args()
    torch.set_num_threads(1)  # so small a model only loses time between threads
    torch.manual_seed(args.seed)
    # Requests fall into other batches each run, which changes the last bits of a sum: in float32 enough to pick another
    # word now and then, in float64 not, so that a seed gives the same run.
    torch.set_default_dtype(torch.float64)

    if RANKS > 1:
        dist.init_process_group("gloo")
    rl_otel.configure(service_name="grpo-demo", run_dir=args.run_dir)
    rewards, slowest = asyncio.run(run(args.steps, args.groups, args.group_size, args.seed))
    delivered = rl_otel.shutdown()
    if RANKS > 1:
        dist.barrier()  # now all journals are whole
        dist.destroy_process_group()

    if not delivered.folder or RANK > 0:
        return  # OTEL_SDK_DISABLED=true: nothing was recorded
    folder, i = Path(delivered.folder), max(range(args.steps), key=lambda i: slowest[i].seconds)
    file = folder / f"step-{i}.json"
    export = ["-m", "rl_otel", "export", folder, "--step", str(i), "--output", file]
    subprocess.run([sys.executable, *export], check=True)  # noqa: S603
    tool = "rl-otel" if shutil.which("rl-otel") else f"{os.path.relpath(sys.executable)} -m rl_otel"
    print(f"""
Reward: {gain(rewards)}
Run folder: {folder}
Report: {tool} report {folder}
Slowest trajectory: {slowest[i].id} in step {i}, {slowest[i].seconds:.2f}s
  Where its time went: {tool} report {folder} --step {i}
  Its step as a trace: {file}
  In Jaeger: Search -> Upload, choose that file, open the trace; the rollout links to its slowest trajectories""")
    if delivered.sent or delivered.pending:
        print(f"Sent: {delivered.sent} spans, {delivered.pending} pending, {delivered.dropped} dropped")
        print(f"  That trajectory where they were sent: service grpo-demo, tag rl.trajectory.id={slowest[i].id}")


if __name__ == "__main__":
    main()
