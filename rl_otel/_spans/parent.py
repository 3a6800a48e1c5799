"""Spans that have others inside them, and let go of all that was around them when they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_otel import _runtime, semconv
from rl_otel._spans import ambient
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext
    from typing_extensions import Self

    from rl_otel._record import End
    from rl_otel._runtime import Runtime


class Parent(Span):
    """Steps, trajectories and phases: a handle that is kept when its span has ended holds nothing around it.

    The cost of each is measured, for there are few, and the figures of what is inside are made by them.
    """

    def __enter__(self) -> Self:
        runtime = _runtime.active
        if runtime is not None:
            stopwatch = runtime.overhead.parent()
            super().__enter__()
            stopwatch.pause()
            self._stopwatch = stopwatch
            runtime.overhead.look()
        return self

    def begin_at(self, runtime: Runtime, enclosing: Span | None, foreign: SpanContext | None) -> None:
        # Each call inside asks for these: CPython finds what lies on the handle itself sooner than its class.
        self.finished, self.name = 0, self.name
        super().begin_at(runtime, enclosing, foreign)

    def anchor(self) -> ambient.Place:
        return ambient.place_of(self)

    def _set_late(self, word: semconv.Word, value: Any, attributes: dict[str, Any]) -> None:
        super()._set_late(word, value, attributes)
        self._attributes.update(attributes)  # for figures that are made after it

    def _write(self, runtime: Runtime, end: int) -> End:
        try:
            return super()._write(runtime, end)
        finally:
            ambient.let_go(self)
