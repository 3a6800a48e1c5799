"""A span of another process, or of this one elsewhere, as what is around the spans opened here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import TraceState

from rl_otel import _record, _runtime, semconv
from rl_otel._carrier import Origin, read
from rl_otel._clock import now
from rl_otel._configure import begin_as_told
from rl_otel._safety import swallow
from rl_otel._spans import ambient, misuse
from rl_otel._spans.gather import Books, Gathering
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from typing_extensions import Self

    from rl_otel._runtime import Runtime


class _Dropping(list[Any]):
    """A list that takes everything and keeps nothing: whoever recorded the span around has no use for it here."""

    def append(self, item: Any) -> None:
        """Drop it."""

    def extend(self, items: Any) -> None:
        """Drop them."""


class RemoteBooks(Books):
    """The books of a step that another process keeps.

    Args:
        index: of the step.
        origin: what was handed on of it.
    """

    def __init__(self, index: int, origin: Origin) -> None:
        super().__init__(index, origin.opening)
        self.origin = origin
        self.phases, self.trajectories = _Dropping(), _Dropping()

    def next_rollout(self) -> None:
        """Return None: how many there were is not known here."""


class RemoteGathering(Gathering):
    """What is around calls inside a trajectory of another process, where its turns are not known.

    Args:
        kind: of the span there. One of the same name here is the other side of that call, not another one.
        shown: whether the calls of that trajectory are sent.
    """

    def __init__(self, kind: str, *, shown: bool) -> None:
        super().__init__(semconv.TRAJECTORY, None)
        self.counted_elsewhere, self.counts_turns, self.shown = kind, False, shown
        self.children, self.versions, self.tokens = _Dropping(), _Dropping(), _Dropping()
        self.trajectories = _Dropping()


class Remote(Span):
    """The place of a carrier: spans that are opened inside it are children of the span it comes from.

    A context manager, and a decorator, like the openers; where the carrier tells nothing it does nothing.

    Args:
        carrier: what `inject` has written, in any mapping, or what `extract` has returned.
    """

    name = "context.use"
    origin: Origin | None = None

    def __init__(self, carrier: Any) -> None:
        misuse.check_brackets(type(self), carrier)
        self._carrier = carrier

    def arguments(self) -> dict[str, Any]:
        return {"carrier": self._carrier}

    def __enter__(self) -> Self:
        try:
            origin = read(self._carrier)
            if origin is not None:
                self._become(origin)
                ambient.enter(self, ambient.get_current())
        except Exception as error:
            swallow("context.use() entered", error)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if self.inside is not None:
                self.finished = now()
                ambient.leave(self)
        except Exception as failure:
            swallow("context.use() left", failure)

    def record(self, *given: Any, **words: Any) -> None:
        """Do nothing: what is known of this span is recorded where it is open."""

    def get_span_context(self) -> trace.SpanContext:
        """Return the identity of the span elsewhere; an invalid one where the carrier tells none."""
        context = super().get_span_context()
        if self.origin is None:
            return context
        state = TraceState.from_header([self.origin.others]) if self.origin.others else None
        return trace.SpanContext(context.trace_id, context.span_id, True, context.trace_flags, state)

    def _become(self, origin: Origin) -> None:
        runtime = _runtime.active or (begin_as_told() if origin.kind else None)
        enclosing = ambient.current()
        if self._span:  # entered before
            self.name = type(self).name
            enclosing = self._again(enclosing)
        self.origin = origin
        self.name, self.mode, self._attributes = origin.kind, origin.mode, {}
        self._trace, self._span, self._flags = origin.trace, origin.span, _record.SAMPLED if origin.sampled else 0
        self.step = None if origin.step is None else RemoteBooks(origin.step, origin)
        self.gathering = RemoteGathering(origin.kind, shown=origin.detail) if origin.inside else None
        self.enclosing, self.began, self.finished = enclosing, now(), 0
        if runtime is not None:
            self._tell(runtime, origin)

    def _tell(self, runtime: Runtime, origin: Origin) -> None:
        if origin.phase:
            runtime.gpu.elsewhere = origin.phase
        if origin.version is not None:
            runtime.learn(origin.version, origin.sync)


__all__ = ["Remote", "RemoteBooks", "RemoteGathering"]
