"""Spans that are only known afterwards."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from rl_otel import _runtime, _values, semconv
from rl_otel._clock import now
from rl_otel._safety import say, swallow
from rl_otel._spans import ambient, calls, phase, trajectory
from rl_otel._spans.null import NULL
from rl_otel._spans.span import Span
from rl_otel._spans.step import Step

_HOUR: Final = 3_600_000_000_000
_KINDS: Final[dict[str, type[Span]]] = {
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
        phase.WeightSync,
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
        kind: the span's name, as in `env.step`; any other becomes a phase of that name.
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
        span.begin_at(runtime, parent if isinstance(parent, Span) else ambient.current())
        span.record(words)
        span.end_at(*_times(kind, start, end, runtime.began, span))
        return span
    except Exception as error:
        swallow(f"add({kind!r})", error)
        return NULL


def _made(kind: str, words: dict[str, Any]) -> Span:
    """Make the handle; words that the opener takes are taken out of `words`."""
    opener = _KINDS.get(kind)
    if opener is None:
        return phase.Phase(kind)
    known = opener().arguments()
    return opener(**{name: words.pop(name) for name in list(words) if name in known and name not in opener.words})


def _times(kind: str, start: Any, end: Any, began: int, span: Span) -> tuple[int, int]:
    first, last = _nanoseconds(start), _nanoseconds(end)
    # A clock that is not the epoch's (perf_counter, seconds) would put the span decades away from its trace.
    earliest, latest = began - _HOUR, now() + _HOUR
    if first is not None and last is not None and earliest <= first <= last <= latest:
        return first, last
    say(
        f"times {kind}",
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
    moment = _values.plain(moment)
    return moment if type(moment) is int else None


def _length(start: Any, end: Any) -> int:
    """Return the duration where both are of one clock: whatever its zero, the difference is right."""
    first, last = _values.plain(start), _values.plain(end)
    if type(first) is int and type(last) is int:
        return min(max(last - first, 0), _HOUR)
    if isinstance(first, float) and isinstance(last, float):  # seconds of time.time() or time.perf_counter()
        return min(max(round((last - first) * 1e9), 0), _HOUR)
    return 0
