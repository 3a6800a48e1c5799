"""What is handed to another process: the place where spans are now, and what a child there has to know of it."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Final

from rl_otel import _runtime, semconv
from rl_otel._carrier import OWN_PHASE, Origin
from rl_otel._ship import CALLS
from rl_otel._spans import ambient
from rl_otel._spans.remote import Remote

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from rl_otel._spans.gather import Books
    from rl_otel._spans.span import Span

_TRACES: Final = 256  # that are counted
_NAMED: Final = frozenset({semconv.STEP, semconv.TRAJECTORY, *semconv.SERVICE_SUFFIX, *semconv.PHASES})

_counters: OrderedDict[tuple[bytes, bool], count[int]] = OrderedDict()


def here() -> Origin | None:
    """Return where spans go here and now; None where nothing is open."""
    span, now = ambient.current(), ambient.get_current()
    foreign = None if span is not None and now is span.inside else ambient.foreign_parent(now)
    if span is None:
        return None if foreign is None else _theirs(foreign)
    if foreign is not None and foreign.trace_id != span.get_span_context().trace_id:
        return _theirs(foreign)
    return _ours(span, foreign)


def _theirs(foreign: SpanContext) -> Origin:
    sampled = foreign.trace_flags.sampled
    return Origin(*_ids(foreign), sampled, sampled, others=foreign.trace_state.to_header())


def _ours(span: Span, foreign: SpanContext | None) -> Origin:
    """Return the origin that a span of ours is, or what another library has opened inside it."""
    gathering, books, runtime, name = span.gathering, span.step, _runtime.active, span.name
    trace, own, sampled = span.ids
    inside = gathering is not None and gathering.is_trajectory
    remote = books.origin if books is not None else _origin(span)
    step, opening, version, sync, phase, others = None, 1, None, None, "", ""
    if books is not None:
        step, opening = books.index, books.opening
        books.handed |= not inside
    if remote is not None:
        version, sync, phase, others = remote.version, remote.sync, remote.phase, remote.others
    if runtime is not None:
        version, sync = runtime.policy_version, runtime.policy_sync
        phase = runtime.phase or phase
    if foreign is not None:
        own, others = _ids(foreign)[1], foreign.trace_state.to_header() or others
    detail = sampled and (gathering is None or gathering.shown) and _counted(trace, books, name)
    kind = name if name in _NAMED or not name else OWN_PHASE
    return Origin(trace, own, sampled, detail, kind, inside, step, opening, span.mode, version, sync, phase, others)


def _origin(span: Span) -> Origin | None:
    """Return where a span that is in no step comes from, where that is another process."""
    node: Span | None = span
    while node is not None and not isinstance(node, Remote):
        node = None if node.is_root else ambient.beyond(node)
    return None if node is None else node.origin


def _counted(trace: bytes, books: Books | None, name: str) -> bool:
    """Whether one more of a step, else of a trace, may be handed on with the wish for detail; calls apart."""
    call = name in semconv.SERVICE_SUFFIX
    if books is not None:
        number = next(books.calls if call else books.others)
    else:
        number = next(_counters.setdefault((trace, call), count()))
        if len(_counters) > _TRACES:
            _counters.popitem(last=False)
    runtime = _runtime.active
    return number < (CALLS if runtime is None else runtime.plan.calls)


def _ids(context: SpanContext) -> tuple[bytes, bytes]:
    return context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
