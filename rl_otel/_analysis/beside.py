"""The phases of other timelines that are in no step: which of them ran while a step did."""

from __future__ import annotations

from collections.abc import Iterable

from rl_otel import _figures, _record, semconv
from rl_otel._analysis.checked import checked
from rl_otel._analysis.trace import Trace
from rl_otel._read import Run, Source


class Owners:
    """The processes whose timeline is that of the steps; what others do outside a step is no part of the run's time.

    Args:
        run: all processes.
        seen: those that were seen to begin a step.
    """

    def __init__(self, run: Run, seen: set[str]) -> None:
        self._alone = len(run.sources) == 1
        self._seen = seen

    def has(self, source: Source) -> bool:
        """Whether a process is one of them."""
        return self._alone or (source.name in self._seen if self._seen else not source.resource.get(semconv.RANK))


class Beside:
    """Phases of other timelines outside any step, as long as a step can have run beside them."""

    def __init__(self) -> None:
        self._ended: list[_figures.Elsewhere] = []

    def add(self, source: Source, record: _record.End) -> None:
        """Take a phase that has ended."""
        self._ended.append(_phase(source, record, record.end + source.shift))

    def during(self, start: int, end: int, traces: Iterable[Trace]) -> list[_figures.Elsewhere]:
        """Return those that ran between `start` and `end`, also of `traces` that have not ended; none ends earlier."""
        self._ended = [each for each in self._ended if each[1].end > start]
        ran = [each for each in self._ended if each[1].start < end]
        opened = (each for trace in traces if trace.index is None for each in trace.opened.values())
        return ran + [_phase(*each, end) for each in opened if _is_root(each[1]) and each[1].start < end]


def _is_root(record: _record.Start) -> bool:
    return not record.parent and semconv.PHASE in record.attributes


def _phase(source: Source, record: _record.Start | _record.End, end: int) -> _figures.Elsewhere:
    attributes = checked({semconv.ROLE: source.role, **record.attributes})
    return source.name, _figures.Phase(record.name, record.span, b"", record.start + source.shift, end, attributes)
