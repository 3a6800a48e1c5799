"""Prints the step tables while a run goes on, and its summary at the end: one process of a run does."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl_otel import _figures, _table
from rl_otel._safety import say
from rl_otel._terminal import Terminal, command, load


@dataclass
class _Held:
    make: Callable[[], _figures.StepFigures]
    waiting: set[bytes]


class Printer:
    """Keeps the run's figures, and prints each step as it ends.

    A step whose loss, or the GPU's time of a phase, is still on its way is held until that has come, or the next step
    ends.
    """

    def __init__(self, began: int, *, prints: bool) -> None:
        self.run = _figures.RunFigures(began)
        self._prints = prints
        self._held: list[_Held] = []
        self._lock = threading.RLock()  # a signal handler may end a step as well
        if prints:
            load()

    def step(self, make: Callable[[], _figures.StepFigures], waiting: Callable[[], set[bytes]]) -> None:
        """Take a step that has ended.

        Args:
            make: returns what is known of it by then.
            waiting: returns the spans in it that wait for a value; `late` is called when one does no more.
        """
        with self._lock:
            self._release()
            if spans := waiting():
                self._held.append(_Held(make, spans))
            else:
                self._show(make())

    def outside(self, phase: _figures.Phase, evaluation: _figures.Rollout | None) -> None:
        """Take a phase outside any step."""
        with self._lock:
            self.run.add_outside(phase, evaluation)

    def late(self, span: bytes, attributes: dict[str, Any]) -> None:
        """Take note that values of a span have come late."""
        with self._lock:
            for held in self._held:
                held.waiting.discard(span)
            if all(not held.waiting for held in self._held):
                self._release()

    def finish(self, folder: str | None) -> None:
        """Print what is held, the run's summary, and where it can be read again: a folder that stays."""
        with self._lock:
            self._release()
            if self._prints and self.run.steps:
                hint = [] if folder is None else [f"To read it again: {command('report', folder)}"]
                _print([*_table.run_lines(self.run), *hint])

    def _release(self) -> None:
        held, self._held = self._held, []
        for each in held:
            self._show(each.make())

    def _show(self, figures: _figures.StepFigures) -> None:
        self.run.add(figures)
        if self._prints:
            _print(_table.step_lines(figures))


def _print(lines: list[str]) -> None:
    stream = sys.stdout
    if stream is None:
        return
    try:
        with _beside_bars(stream):
            Terminal(stream).write(lines)
            if hasattr(stream, "flush"):
                stream.flush()
    except Exception as error:  # closed, or its reader has gone: the host's stream, and no fault of ours
        say("print", "rl_otel: cannot print to standard output: %s", error)


def _beside_bars(stream: Any) -> contextlib.AbstractContextManager[None]:
    """Return what clears the bars of tqdm meanwhile, if the host uses it: they own the terminal's last line."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    beside: contextlib.AbstractContextManager[None] = (
        contextlib.nullcontext() if tqdm is None else tqdm.external_write_mode(file=stream)
    )
    return beside
