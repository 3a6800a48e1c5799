"""A run on Ray: a driver, and actors that play its trajectories, of which some come to a bad end.

`python -m tests.ray_driver ENDPOINT FOLDER` prints what the driver saw of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

import rl_otel
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    Carrier = dict[str, str]

AT_ONCE = 8
seen: dict[str, Any] = {}


# --- What runs in the workers -----------------------------------------------------------------------------------------


def turn(last: bool = False) -> None:
    with rl_otel.generate(model="toy") as generation:
        generation.record(output_tokens=3)
    with rl_otel.env_step("toy") as env_step:
        env_step.record(reward=0.5, terminated=last)


@ray.remote(num_cpus=0)
class Player:
    """Plays one trajectory at a time, or with `max_concurrency` one in each thread."""

    def __init__(self) -> None:
        self.all_there = threading.Barrier(AT_ONCE, timeout=PATIENCE)

    def play_together(self, name: str, carrier: Carrier) -> None:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name):
            turn()
            self.all_there.wait()
            turn(last=True)

    def play(self, name: str, carrier: Carrier) -> tuple[int, str]:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name) as trajectory:
            turn()
            turn(last=True)
            trajectory.record(reward=1.0)
        return os.getpid(), trajectory.trace_id

    def stream(self, name: str, carrier: Carrier) -> Iterator[int]:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name):
            for index in range(3):
                turn(last=index == 2)
                yield index

    def fail(self, name: str, carrier: Carrier) -> None:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name):
            turn()
            raise LookupError(name)

    def hang(self, name: str, carrier: Carrier, signal: str) -> None:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name):
            turn()
            turn()
            Path(signal).touch()
            time.sleep(600)

    def leave(self, name: str, carrier: Carrier) -> None:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name):
            turn(last=True)
        os._exit(3)


@ray.remote(num_cpus=0, max_concurrency=2 * AT_ONCE)
class AsyncPlayer:
    """Plays many at a time."""

    def __init__(self) -> None:
        self.waiting = 0
        self.all_there = asyncio.Event()

    async def play_together(self, name: str, carrier: Carrier) -> None:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name):
            turn()
            self.waiting += 1
            if self.waiting == AT_ONCE:
                self.all_there.set()
            await self.all_there.wait()
            turn(last=True)

    async def stream(self, name: str, carrier: Carrier) -> AsyncIterator[int]:
        with rl_otel.context.use(carrier), rl_otel.trajectory(name):
            for index in range(3):
                await asyncio.sleep(0)
                turn(last=index == 2)
                yield index


@ray.remote(num_cpus=0)
class Generator:
    """Plays for no step in particular."""

    def __init__(self) -> None:
        rl_otel.configure()

    def play(self, name: str) -> None:
        with rl_otel.trajectory(name, detached=True):
            turn(last=True)


@ray.remote
def bare() -> str:
    with rl_otel.trajectory("of nobody") as trajectory:
        return str(trajectory.trace_id)


@ray.remote
def judge(carrier: Carrier) -> float:
    with rl_otel.context.use(carrier), rl_otel.generate(purpose="judge"):
        return 0.25


# --- The driver -------------------------------------------------------------------------------------------------------


def actors_play(players: list[Any]) -> None:
    with rl_otel.step(0) as step, rl_otel.rollout():
        carrier = rl_otel.context.inject()
        played = ray.get([players[n % 4].play.remote(f"0/{n}", carrier) for n in range(8)])
    seen["pids"] = sorted({pid for pid, _ in played})
    seen["traces"] = [step.trace_id, *{trace for _, trace in played}]
    seen["summary"] = dict(step.summary)


def many_at_once(actors: dict[str, Any]) -> None:
    with rl_otel.step(1), rl_otel.rollout():
        carrier = rl_otel.context.inject()
        ray.get(
            [
                actor.play_together.remote(f"{kind}/{n}", carrier)
                for kind, actor in actors.items()
                for n in range(AT_ONCE)
            ]
        )


def streams(players: list[Any]) -> None:
    with rl_otel.step(2), rl_otel.rollout():
        seen["streamed"] = [
            [ray.get(item) for item in player.stream.remote(f"2/{n}", rl_otel.context.inject())]
            for n, player in enumerate(players)
        ]


def tasks(player: Any) -> None:
    with rl_otel.step(3), rl_otel.rollout():
        with rl_otel.trajectory("3/0"), rl_otel.reward():
            seen["judged"] = ray.get(judge.remote(rl_otel.context.inject()))
        error = error_of(player.fail.remote("3/1", rl_otel.context.inject()))
        seen["raised"] = isinstance(error, LookupError)


def error_of(call: Any) -> Exception | None:
    try:
        ray.get(call)
    except Exception as error:
        return error
    return None


def bad_ends(players: list[Any], signal: Path) -> None:
    with rl_otel.step(4), rl_otel.rollout():
        hangs, leaves = players
        killed = hangs.hang.remote("4/killed", rl_otel.context.inject(), str(signal))
        left = leaves.leave.remote("4/left", rl_otel.context.inject())
        until(signal.exists)
        ray.kill(hangs)
        seen["gone"] = [type(error).__name__ for error in map(error_of, (killed, left))]


def consumed(generator: Any) -> None:
    ray.get(generator.play.remote("5/0"))
    with rl_otel.step(5) as step:
        step.consume(["5/0"])
        with rl_otel.train():
            pass


def main(endpoint: str, folder: str) -> None:
    rl_otel.configure(service_name="grpo", endpoint=endpoint, run_dir=folder)
    env = {"env_vars": rl_otel.context.environ({})}
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=env)
    seen["bare"] = ray.get(bare.remote())
    players = [*(Player.remote() for _ in range(3)), Player.options(max_concurrency=AT_ONCE).remote()]
    async_player, generator = AsyncPlayer.remote(), Generator.remote()
    actors_play(players)
    many_at_once({"async": async_player, "threads": players[3]})
    streams([players[0], async_player])
    tasks(players[0])
    bad_ends(players[:2], Path(f"{folder}.signal"))
    consumed(generator)
    ray.shutdown()
    delivered = rl_otel.shutdown(timeout=30.0)
    seen["pending"], seen["dropped"] = delivered.pending, delivered.dropped
    print(json.dumps(seen, default=str))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
