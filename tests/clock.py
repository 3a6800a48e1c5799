"""A clock that the test moves, and spans that are open at the moments it says."""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Any
from unittest import mock

from rl_otel import _clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SECOND = 1_000_000_000


class Clock:
    """In place of the monotonic clock while it is `running`; nanoseconds."""

    def __init__(self) -> None:
        self.time = 0

    def __call__(self) -> int:
        return self.time

    def pass_by(self, seconds: float) -> None:
        """Let time go by."""
        self.time += round(seconds * SECOND)


@contextlib.contextmanager
def running() -> Iterator[Clock]:
    """Put a clock in place that only the test moves."""
    clock = Clock()
    clock.time = _clock.monotonic()
    with mock.patch.object(_clock, "monotonic", clock):
        yield clock


def play(clock: Clock, spans: Iterable[tuple[Callable[[], Any], int, int]]) -> None:
    """Open each span (its opener, start, end; ns from now) at its time, as if a task of its own did.

    Time stands at the last end afterwards. What an opener returns may be any handle with `start` and `end`.
    """
    began = clock.time
    moments = []
    for i, (opener, start, end) in enumerate(spans):
        task = contextvars.copy_context()
        handle = task.run(opener)
        moments.append((start, 1, i, task, handle.start))
        moments.append((end, 2 if end == start else 0, i, task, handle.end))  # who ends goes before who begins
    for time, _, _, task, do in sorted(moments, key=lambda moment: moment[:3]):
        clock.time = began + time
        task.run(do)
