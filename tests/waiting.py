"""Waiting for what other threads and processes do: for a condition, never for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: s that a loaded machine may take for what is done at once; only a test that fails waits so long.
PATIENCE = 30.0


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something has happened elsewhere."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in {seconds} s"
        time.sleep(0.005)
