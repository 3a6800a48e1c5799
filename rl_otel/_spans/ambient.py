"""Which span is current: one context variable of ours, and OpenTelemetry's context for everybody else.

Nothing here holds a token. A token can only be given back in the context it came from, and a generator that is left
early is closed in another; so leaving sets what is current then: the nearest ancestor that is still open.
"""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Final, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context

from rl_otel._spans.otel import OtelSpan

if TYPE_CHECKING:
    from rl_otel._spans.span import Span

#: Where OpenTelemetry keeps the current span in a context; found by looking, for it has no public name.
KEY: Final = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))

#: The innermost span of ours, which may have ended in another context.
innermost: Final[ContextVar[Span | None]] = ContextVar("rl_otel_span", default=None)
get_innermost: Final = innermost.get  # looked up once, as those of OpenTelemetry's below
set_innermost: Final = innermost.set


def _variable() -> ContextVar[Context] | None:
    """Return where OpenTelemetry keeps the current context; found by looking, for it has no public name."""
    probe = Context()
    token = otel_context.attach(probe)
    try:
        return next((variable for variable, value in copy_context().items() if value is probe), None)
    finally:
        otel_context.detach(token)


_theirs: Final = _variable()

# Straight to the variable, for what the API has around it is a quarter of what becoming current costs. Where somebody
# has plugged in another kind of context there is none, and the API is asked.
get_current: Final = otel_context.get_current if _theirs is None else _theirs.get
attach: Final = otel_context.attach if _theirs is None else _theirs.set


class Place:
    """Where a span is, for what still runs inside when it has ended: it leads further out without keeping the handle.

    A span that has ended would otherwise hold all that was ever around it, as long as anybody holds the span.
    """

    __slots__ = ("around", "outside", "span")

    def __init__(self, span: Span) -> None:
        self.span: Span | None = span  # until it has ended
        self.around: Place | Span | None = None  # from then on
        self.outside = Context()


def let_go(span: Span) -> None:
    """Once `span` has ended, drop what was around it: only its place leads there."""
    place = place_of(span)
    if span.enclosing is not None:
        place.around = span.enclosing.anchor()
    else:
        place.outside = span.__dict__.get("outside", place.outside)
    place.span = None
    span.enclosing = span.nest = None
    span.__dict__.pop("outside", None)


def place_of(span: Span) -> Place:
    """Return the place of `span`, the same for every thread that asks."""
    if span.place is None:
        span.__dict__.setdefault("place", Place(span))
    return cast(Place, span.place)


def beyond(span: Span) -> Span | None:
    """Return what is around `span`, without those that have ended and were let go."""
    if not _is_gone(span):
        return span.enclosing
    node: Place | Span | None = span.place
    while isinstance(node, Place):
        node = node.around if node.span is None else node.span
    return node


def nearest(span: Span | None) -> Span | None:
    """Return `span`, or the nearest of those around it that is still open."""
    while span is not None and span.finished:
        span = beyond(span)
    return span


def current() -> Span | None:
    """Return the innermost span that is open here."""
    span = innermost.get()
    if span is None or not span.finished:
        return span
    # It was left in another context: a generator closed elsewhere, a callback on another thread. Leave it here too.
    return leave(span)


def enter(span: Span, before: Context) -> None:
    """Make `span` the current one, for us and for the spans of other libraries; `before` is what they see now."""
    span.outside = before
    span.inside = inside = Context({**before, KEY: span})
    attach(inside)
    innermost.set(span)


def leave(span: Span) -> Span | None:
    """Make the nearest open ancestor current again, unless something else has become current meanwhile."""
    enclosing = span.enclosing
    if enclosing is None or enclosing.finished:
        enclosing, outside = _around(span)
    else:
        outside = span.outside
    if innermost.get() is span:
        innermost.set(enclosing)
    now = get_current()
    if now is span.inside:
        attach(outside)
    elif trace.get_current_span(now) is cast(trace.Span, span):  # another library put something of its own beside it
        attach(trace.set_span_in_context(trace.get_current_span(outside), now))
    span.inside = None  # it holds the span, which must not wait for the garbage collector
    return enclosing


def _around(span: Span) -> tuple[Span | None, Context]:
    """Return the nearest open ancestor of `span`, and OpenTelemetry's context there."""
    enclosing = nearest(beyond(span))
    inside = enclosing.inside if enclosing is not None else None
    outside = inside if inside is not None else _outermost(span)
    if not _is_gone(span):
        # What has ended is let go, else spans that overlap would form a chain without end.
        span.enclosing, span.outside = enclosing, outside
    return enclosing, outside


def _outermost(span: Span) -> Context:
    """Return OpenTelemetry's context as it was around the outermost ancestor of `span`."""
    node: Place | Span = span
    while True:
        if not isinstance(node, Place) and node.place is not None and _is_gone(node):
            node = node.place
        further = node.around if isinstance(node, Place) else node.enclosing
        if further is None:
            return node.outside
        node = further


def _is_gone(span: Span) -> bool:
    return span.place is not None and span.place.span is None


def foreign_parent(now: Context) -> trace.SpanContext | None:
    """Return the span of another library that is current in `now`, None where it is one of ours."""
    span = trace.get_current_span(now)
    context = span.get_span_context()
    return context if context.is_valid and not isinstance(span, OtelSpan) else None
