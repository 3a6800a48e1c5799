"""An exception of the host at each place in turn where CPython lets one in: as a function begins, behind calls of C."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import rl_otel
from rl_otel._spans.usual import Usual

#: Whether calls are compiled: then nothing of the host comes in between, but where they call what is not.
COMPILED = not isinstance(Usual.__enter__, FunctionType)

OURS = str(Path(rl_otel.__file__).parent)


class Stop(BaseException):
    """What a handler of the host raises."""


class Strike:
    """Raises `Stop` at one of the places in our code.

    Args:
        at: at which of them, counted from 0.
    """

    def __init__(self, at: int) -> None:
        self.left = at
        self._called: dict[FrameType, bool] = {}  # whether it has just called something

    @property
    def struck(self) -> bool:
        """Whether there were so many places."""
        return self.left < 0

    def during(self, work: Callable[[], object]) -> None:
        """Do `work`, and strike on its way."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        except Stop:
            pass
        finally:
            sys.settrace(before)
            self._called.clear()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        # What is raised in a finalizer reaches nobody: CPython tells of it and goes on.
        if not frame.f_code.co_filename.startswith(OURS) or frame.f_code.co_name == "__del__":
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._pass()
        elif event == "opcode":
            if self._called.get(frame):
                self._pass()
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self._called[frame] = name.startswith(("CALL", "JUMP_BACKWARD"))
        elif event == "exception":
            self._called[frame] = False  # nor behind a call that has raised: struck there, CPython keeps that for good
        elif event == "return" and frame.f_back is not None:
            self._called[frame.f_back] = False  # nothing comes in behind a call of a function in Python
        return self._trace

    def _pass(self) -> None:
        self.left -= 1
        if self.struck:
            sys.settrace(None)
            raise Stop
