"""Which span is current: one context variable of ours, and OpenTelemetry's context for everybody else.

Nothing here holds a token. A token can only be given back in the context it came from, and a generator that is left
early is closed in another; so leaving sets what is current then: the nearest ancestor that is still open.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, cast

from opentelemetry import context as otel_context
from opentelemetry import trace

from rl_otel._spans.otel import OtelSpan

if TYPE_CHECKING:
    from rl_otel._spans.span import Span

#: Where OpenTelemetry keeps the current span in a context; found by looking, for it has no public name.
_KEY: Final = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, otel_context.Context())))

_current: ContextVar[Span | None] = ContextVar("rl_otel_span", default=None)


def nearest(span: Span | None) -> Span | None:
    """Return `span`, or the nearest of those around it that is still open."""
    while span is not None and span.finished:
        span = span.enclosing
    return span


def current() -> Span | None:
    """Return the innermost span that is open here."""
    span = _current.get()
    if span is None or not span.finished:
        return span
    # It was left in another context: a generator closed elsewhere, a callback on another thread. Leave it here too.
    leave(span)
    return span.enclosing


def enter(span: Span, before: otel_context.Context) -> None:
    """Make `span` the current one, for us and for the spans of other libraries; `before` is what they see now."""
    span.outside = before
    span.inside = inside = otel_context.Context({**before, _KEY: span})
    otel_context.attach(inside)
    _current.set(span)


def leave(span: Span) -> None:
    """Make the nearest open ancestor current again, unless something else has become current meanwhile."""
    enclosing = span.enclosing
    if enclosing is not None and enclosing.finished:
        # What has ended is let go, else spans that overlap would form a chain without end.
        enclosing = nearest(enclosing)
        span.outside, span.enclosing = _around(span, enclosing), enclosing
    if _current.get() is span:
        _current.set(enclosing)
    now = otel_context.get_current()
    if now is span.inside:
        otel_context.attach(span.outside)
    elif trace.get_current_span(now) is cast(trace.Span, span):  # another library put something of its own beside it
        otel_context.attach(trace.set_span_in_context(trace.get_current_span(span.outside), now))
    span.inside = None  # it holds the span, which must not wait for the garbage collector


def _around(span: Span, enclosing: Span | None) -> otel_context.Context:
    """Return OpenTelemetry's context as it was around `span`, without ancestors that have ended since."""
    while span.enclosing is not enclosing and span.enclosing is not None:
        span = span.enclosing
    return span.outside


def foreign_parent(now: otel_context.Context) -> trace.SpanContext | None:
    """Return the span of another library that is current in `now`, None where it is one of ours."""
    span = trace.get_current_span(now)
    context = span.get_span_context()
    return context if context.is_valid and not isinstance(span, OtelSpan) else None
