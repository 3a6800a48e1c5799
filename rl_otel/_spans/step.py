"""The step span: root of one trace a step, with the figures of its phases and trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from rl_otel import _figures, _values, semconv
from rl_otel._clock import now
from rl_otel._safety import say, swallow
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime

Item = TypeVar("Item")


class Step(Span):
    """One step of the training loop, the root of its trace.

    Args:
        index: the number that the trainer itself logs as its step; default: one more than the last.
    """

    name = semconv.STEP
    words = semconv.WORDS[semconv.STEP]

    def __init__(self, index: int | None = None) -> None:
        self._index = index
        self.index = -1
        self.phases: list[_figures.Phase] = []
        self.trajectories: list[_figures.Trajectory] = []
        self._rollouts = count()

    def arguments(self) -> dict[str, Any]:
        return {"index": self._index}

    def next_rollout(self) -> int:
        """Return 0, 1, 2… for the rollouts of this step."""
        return next(self._rollouts)

    @property
    def summary(self) -> dict[str, float | int]:
        """The step's figures as a flat dict for whatever charts them; of an open step, what is known so far."""
        return self.summary_with("")

    def summary_with(self, prefix: str) -> dict[str, float | int]:
        """Return `summary` with `prefix` before each key, for hosts that log some of its words themselves."""
        if self._runtime is None:
            return {}
        try:
            return {prefix + key: value for key, value in _figures.summary(self.in_figures()).items()}
        except Exception as error:
            swallow("step.summary", error)
            return {}

    # --- beginning ----------------------------------------------------------------------------------------------------

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        self.index = self._number(runtime)
        super()._settle_in(enclosing, runtime)
        if enclosing is not None:  # a step is a root wherever it is opened
            self._parent, self.mode, self.gathering = b"", None, None
            self._attributes.clear()
        trace, root = runtime.derive_step(self.index)
        self._root(trace, runtime)
        if runtime.identity.owns_root:
            self._span = root
        else:
            self._parent = root
            self._attributes[semconv.RANK] = runtime.identity.rank
        self.step = self

    def _number(self, runtime: Runtime) -> int:
        if self._index is None:
            return runtime.next_step()
        number = _values.argument(self._index, int)
        if number is None:
            say("step index", "rl_otel: step(%r): the index is no number, counting on instead", self._index)
        return runtime.next_step(number)

    def _opened(self, runtime: Runtime) -> None:
        self._attributes[semconv.STEP_INDEX] = self.index

    def _watch(self, runtime: Runtime) -> None:
        runtime.journal.append(self.start_record())

    # --- ending -------------------------------------------------------------------------------------------------------

    def in_figures(self) -> _figures.StepFigures:
        end = self.finished or now()
        phases, trajectories = list(self.phases), list(self.trajectories)
        return _figures.step(self.index, self.began, end, self._attributes, phases=phases, trajectories=trajectories)

    def _closed(self, end: int) -> None:
        if self._runtime is not None:
            self._runtime.step_ended(self._span, self.in_figures(), awaited=bool(self._due()))

    def left(self) -> None:
        """End it where nobody can tell why the loop was left."""
        if self.recording:
            self._attributes[semconv.STEP_LEFT] = True
        self.end()


def steps(items: Iterable[Item]) -> Iterator[Item]:
    """Iterate over `items` with a step open around each, numbered by the item where that is an int.

    Spares the indentation of a `with`, but cannot know why the loop was left: that step is marked `rl.step.left`.
    """
    for item in items:
        step = Step(item if isinstance(item, int) and not isinstance(item, bool) else None).start()
        try:
            yield item
        except BaseException:
            step.left()
            raise
        step.end()


__all__ = ["Step", "steps"]
