"""What is handed to another process: the place where spans are now, and what a child there has to know of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from rl_otel import _runtime, semconv
from rl_otel._budget import in_share
from rl_otel._carrier import OWN_PHASE, Origin
from rl_otel._spans import ambient
from rl_otel._spans.remote import Remote

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from rl_otel._spans.span import Span

CALLS: Final = 2000  # of a step that servers may send spans of: those would be no part of any budget
_TRACES: Final = 256  # that are counted
_NAMED: Final = frozenset({semconv.STEP, semconv.TRAJECTORY, *semconv.SERVICE_SUFFIX, *semconv.PHASES})

_counters: OrderedDict[tuple[bytes, bool], Callable[[], int]] = OrderedDict()


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
    around, runtime = _around(span), _runtime.active
    trace, own, flags = span.seen
    gathering, books, remote = span.gathering, span.step, around.remote
    inside = gathering is not None and gathering.is_trajectory
    if books is not None and not inside:
        books.handed = True
    version, sync, phase = (None, None, "") if remote is None else (remote.version, remote.sync, remote.phase)
    if runtime is not None:
        version, sync = runtime.policy_version, runtime.policy_sync
        phase = runtime.phase or phase
    others = remote.others if remote is not None else ""
    if foreign is not None:
        own, others = _ids(foreign)[1], foreign.trace_state.to_header() or others
    return Origin(
        trace,
        own,
        bool(flags),
        bool(flags) and around.detail and _counted(trace, span.name),
        span.name if span.name in _NAMED or not span.name else OWN_PHASE,
        inside,
        None if books is None else books.index,
        1 if books is None else books.opening,
        span.mode,
        version,
        sync,
        phase,
        others,
    )


class _Around(NamedTuple):
    """What is around a span within its trace."""

    detail: bool  # whether the trajectory it is in, if any, is of the share that shows all its detail
    remote: Origin | None  # where its trace comes from, where that is another process


def _around(span: Span) -> _Around:
    trace, trajectory, origin = span.seen.trace, b"", None
    node: Span | None = span
    while node is not None and node.seen.trace == trace:
        if isinstance(node, Remote):
            origin = node.origin
            break
        if node.name == semconv.TRAJECTORY:
            trajectory = node.seen.span  # the outermost decides on the detail of all in it
        node = ambient.beyond(node)
    if origin is not None and origin.inside:
        return _Around(origin.detail, origin)
    return _Around(not trajectory or in_share(trajectory), origin)


def _counted(trace: bytes, name: str) -> bool:
    """Whether one more may be handed out of a trace with the wish for detail; calls and others apart."""
    key = trace, name in semconv.SERVICE_SUFFIX
    counter = _counters.get(key)
    if counter is None:
        counter = _counters.setdefault(key, count().__next__)
        if len(_counters) > _TRACES:
            _counters.popitem(last=False)
    runtime = _runtime.active
    return counter() < (CALLS if runtime is None else runtime.plan.part_of(CALLS))


def _ids(context: SpanContext) -> tuple[bytes, bytes]:
    return context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
