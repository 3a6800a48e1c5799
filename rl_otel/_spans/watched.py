"""What the host lets us watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rl_otel import _runtime
from rl_otel._safety import guarded
from rl_otel._spans import misuse


@guarded
def buffer(name: str, *, size: Callable[[], Any], capacity: int | None = None) -> None:
    """Watch a buffer between generation and training: gauges, and `async/<name>_buffer_qsize` of `step.summary`.

    Args:
        name: of low cardinality; another buffer of that name takes its place.
        size: called now and then, from any thread, for how much is in it. The object of a bound method, as of
            `queue.qsize`, is not kept alive.
        capacity: how much it takes.
    """
    runtime = _runtime.active
    if runtime is not None:
        runtime.buffers.add(misuse.words_for(name, 64), size, capacity)
