"""What worker processes of every kind run, where it can be imported by name."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import rl_otel
from rl_otel import context


def step_environment(name: str) -> int:
    """Record one environment step, and return the process's id."""
    with rl_otel.env_step(name):
        return os.getpid()


def record(carrier: Any, name: str) -> int:
    """Record one under a carrier."""
    with context.use(carrier):
        return step_environment(name)


def record_and_leave(carrier: Any, names: list[str], *, killed: bool = False) -> None:
    """Record several, and be gone without a word."""
    for name in names:
        record(carrier, name)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def act(tasks: Any, results: Any) -> None:
    """Serve the tasks of a queue in four threads, until there is none."""

    def serve() -> None:
        while task := tasks.get():
            carrier, name = task
            for each in _streamed(carrier, name):
                results.put(each)
        tasks.put(None)

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _streamed(carrier: Any, name: str) -> Iterator[str]:
    with context.use(carrier), rl_otel.env_step(name):
        yield name


class Items:
    """A data set that records each item."""

    def __init__(self, carrier: Any, length: int) -> None:
        self.carrier = carrier
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        record(self.carrier, str(index))
        return index


def make_environment() -> Any:
    """Return a gymnasium environment that records its steps under the carrier it is given."""
    import gymnasium

    class Recorded(gymnasium.Wrapper):  # type: ignore[type-arg]
        carrier: Any = None

        def step(self, action: Any) -> Any:
            with context.use(self.carrier), rl_otel.env_step("cartpole"):
                return super().step(action)

    return Recorded(gymnasium.make("CartPole-v1"))
