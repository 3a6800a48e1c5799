"""Which span is current: one context variable of ours, and OpenTelemetry's context for everybody else.

Nothing here holds a token. A token can only be given back in the context it came from, and a generator that is left
early is closed in another; so leaving sets what is current then: the nearest ancestor that is still open.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, cast

from opentelemetry import context as otel_context
from opentelemetry import trace

from rl_otel._spans.otel import OtelSpan

if TYPE_CHECKING:
    from rl_otel._spans.span import Span

_current: ContextVar[Span | None] = ContextVar("rl_otel_span", default=None)


def nearest(span: Span | None) -> Span | None:
    """Return `span`, or the nearest of those around it that is still open."""
    while span is not None and span.ended:
        span = span.enclosing
    return span


def current() -> Span | None:
    """Return the innermost span that is open here."""
    return nearest(_current.get())


def enter(span: Span) -> None:
    """Make `span` the current one, for us and for the spans of other libraries."""
    before = otel_context.get_current()
    span.outside = before
    span.inside = trace.set_span_in_context(cast(trace.Span, span), before)
    otel_context.attach(span.inside)
    _current.set(span)


def leave(span: Span) -> None:
    """Make the nearest open ancestor current again, unless something else has become current meanwhile."""
    enclosing = nearest(span.enclosing)
    if _current.get() is span:
        _current.set(enclosing)
    if otel_context.get_current() is span.inside:
        otel_context.attach(_around(span, enclosing))


def _around(span: Span, enclosing: Span | None) -> otel_context.Context:
    """Return OpenTelemetry's context as it was around `span`, without ancestors that have ended since."""
    while span.enclosing is not enclosing and span.enclosing is not None:
        span = span.enclosing
    return span.outside


def foreign_parent(enclosing: Span | None) -> trace.SpanContext | None:
    """Return the span of another library that is current here, if it is not one of ours.

    Between us and the span that `enclosing` put in place another library may have opened one of its own.
    """
    now = otel_context.get_current()
    if enclosing is not None and now is enclosing.inside:
        return None
    span = trace.get_current_span(now)
    context = span.get_span_context()
    return context if context.is_valid and not isinstance(span, OtelSpan) else None
