"""Spans that have others inside them, and let go of all that was around them when they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_otel._spans import ambient
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime


class Parent(Span):
    """Steps, trajectories and phases: a handle that is kept when its span has ended holds nothing around it."""

    def anchor(self) -> ambient.Place:
        return ambient.place_of(self)

    def _write(self, runtime: Runtime, end: int) -> None:
        try:
            super()._write(runtime, end)
        finally:
            ambient.let_go(self)
