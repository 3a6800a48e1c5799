"""A look at how each journal begins, before they are read together."""

from __future__ import annotations

from rl_otel import _record, semconv
from rl_otel._analysis.clocks import Clocks, Visits
from rl_otel._analysis.trace import Span
from rl_otel._journal import decoded
from rl_otel._read import Run, Source

_HEAD = 1 << 15  # bytes of each


def look(run: Run, clocks: Clocks) -> set[str]:
    """Return the names of the processes that begin steps, and set the clocks by what their first spans say."""
    spans: dict[bytes, Span] = {}
    visits = Visits()
    owners: list[Source] = []
    for source in run.sources:
        _, payloads = next(source.batches(_HEAD), (0, []))
        for record in map(decoded, payloads):
            if isinstance(record, _record.Start) and record.name == semconv.STEP and not record.parent:
                owners.append(source)
            _note(spans, visits, source, record)
    for source in run.sources:
        source.shift = 0
    if owners and clocks.differ:
        clocks.settle(owners[0].host, visits.of(spans))
    return {source.name for source in owners}


def _note(spans: dict[bytes, Span], visits: Visits, source: Source, record: _record.Record | None) -> None:
    if isinstance(record, (_record.Start, _record.End)):
        visits.add(source, record)
        end = record.end if isinstance(record, _record.End) else 0
        known = spans.setdefault(record.span, Span(source, record.name, record.parent, record.start, end))
        known.end = known.end or end
