"""Spans that are only known afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from opentelemetry.context import get_current

from rl_otel import _runtime, _values, semconv
from rl_otel._clock import now
from rl_otel._safety import say, swallow
from rl_otel._spans import ambient, calls, phase, trajectory, weight_sync
from rl_otel._spans.null import NULL
from rl_otel._spans.span import Span
from rl_otel._spans.step import Step

_HOUR: Final = 3_600_000_000_000
KINDS: Final[dict[str, type[Span]]] = {
    kind.name: kind
    for kind in (
        Step,
        trajectory.Trajectory,
        calls.Generate,
        calls.EnvStep,
        calls.EnvReset,
        phase.Rollout,
        phase.Reward,
        phase.Logprobs,
        phase.RefLogprobs,
        phase.Values,
        phase.Advantage,
        phase.Data,
        phase.Train,
        phase.Optimizer,
        weight_sync.WeightSync,
        phase.Offload,
        phase.Onload,
        phase.Checkpoint,
        phase.Eval,
        phase.Wait,
    )
}


def add(kind: str, start: int | datetime, end: int | datetime, parent: Any = None, **words: Any) -> Any:
    """Record a span that began and ended before now, and return its handle.

    Args:
        kind: the span's name or its opener's, as in `env.step`; any other becomes a phase of that name.
        start: nanoseconds since the epoch, or a datetime with a time zone.
        end: the same.
        parent: the handle of the span it belongs to; default: the one that is open here.
        words: what its opener takes, and what its `record` takes.
    """
    runtime = _runtime.active
    if runtime is None:
        return NULL
    try:
        span = _made(kind, words)
        if isinstance(parent, Span):
            span.begin_at(runtime, parent, None)
        else:
            enclosing = ambient.current()
            span.begin_at(runtime, enclosing, ambient.foreign_parent(get_current()))
        span.record(words)
        span.end_at(runtime, *_times(kind, start, end, runtime.began, span))
        return span
    except Exception as error:
        swallow("add()", error)
        return NULL


def _made(kind: str, words: dict[str, Any]) -> Span:
    """Make the handle; words that the opener takes are taken out of `words`."""
    opener = KINDS.get(semconv.NAMES.get(kind, kind)) or _named(kind)
    span = opener()
    known = span.arguments().keys() - span.words.keys() - {"name"}
    return opener(**{name: words.pop(name) for name in known & words.keys()})


def _named(kind: str) -> Callable[..., Span]:
    """Return the opener of a span with a name of its own: of a part of a weight sync, else of a phase."""
    part = kind.removeprefix(semconv.SYNC_PART_SPAN.format(part=""))
    return partial(phase.Phase, kind) if part == kind else partial(weight_sync.SyncPart, part)


def _times(kind: str, start: Any, end: Any, began: int, span: Span) -> tuple[int, int]:
    first, last = _nanoseconds(start), _nanoseconds(end)
    # A clock that is not the epoch's (perf_counter, seconds) would put the span decades away from its trace.
    earliest, latest = began - _HOUR, now() + _HOUR
    if first is not None and last is not None and earliest <= first <= last <= latest:
        return first, last
    say(
        f"times {kind if kind in KINDS else 'phase'}",
        "rl_otel: add(%r): start and end must be nanoseconds since the epoch (time.time_ns()) or datetimes with a time "
        "zone, start first; got %r and %r. The span is recorded at the time of the call",
        kind,
        start,
        end,
    )
    span.attributes[semconv.TIME_REPAIRED] = True
    last = now()
    length = _length(start, end)
    return last - length, last


def _nanoseconds(moment: Any) -> int | None:
    if isinstance(moment, datetime):
        return None if moment.tzinfo is None else round(moment.timestamp() * 1e6) * 1000
    number = _number(moment)
    return None if number is None else round(number)


def _length(start: Any, end: Any) -> int:
    """Return the duration where both are of one clock: whatever its zero, the difference is right."""
    first, last = _seconds(start), _seconds(end)
    return 0 if first is None or last is None else min(max(round((last - first) * 1e9), 0), _HOUR)


def _seconds(moment: Any) -> float | None:
    if isinstance(moment, datetime):
        return moment.timestamp()
    number = _number(moment)
    if number is None or type(number) is float:  # time.time() or time.perf_counter()
        return number
    return number / 1e9


def _number(moment: Any) -> float | None:
    if isinstance(moment, int) and moment.bit_length() > 63:
        return None
    try:
        number: Any = _values.plain(moment) if hasattr(moment, "__float__") else None
    except _values.Unreadable:
        return None
    return number if type(number) in (int, float) and math.isfinite(number) else None
