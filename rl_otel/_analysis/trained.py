"""What a step trained on of other traces: only its links tell, so that the run is read once more for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rl_otel import _figures, _record, semconv
from rl_otel._analysis.checked import checked
from rl_otel._analysis.trace import Played, Trace
from rl_otel._journal import decoded
from rl_otel._read import Also, Run, Source

TRAINS: Final = (semconv.TRAIN, semconv.STEP)  # spans that say what they train on


class Detail(NamedTuple):
    """Trajectories with the calls in them, and what inference servers say of those, by trajectory."""

    trajectories: list[Played]
    calls: list[_record.End]
    served: dict[bytes, list[_figures.Request]]


class Trained(NamedTuple):
    """Those of other traces that a step trained on, as far as they are here; only the `slowest` with their calls."""

    detail: Detail
    slowest: tuple[_figures.Trajectory, ...]
    number: int  # of all of them, here or not


def trained_on(run: Run, also: Also, trace: Trace) -> Trained | None:
    """Return what a step trained on that is not in its own trace, None where there is no such thing here."""
    links = links_of(record for _, record in (*trace.phases, *trace.steps))
    played = list(_played(run, links, trace.restart))
    if not played:
        return None
    slowest = _figures.slowest(each.figures for each in played)
    shown = {each.span for each in slowest}
    traces = _with_calls(run, also, {each.record.span: each for each in played if each.record.span in shown})
    calls = [call for each in traces for call in each.calls]
    detail = Detail(played, calls, by_trajectory(pair for each in traces for pair in each.served()))
    number = sum(max(count_of(link.attributes, semconv.GROUP_TRAJECTORIES), 1) for link in links.values())
    return Trained(detail, slowest, number)


def by_trajectory(served: Iterable[tuple[bytes, _figures.Request]]) -> dict[bytes, list[_figures.Request]]:
    """Return requests by the trajectory that they are of."""
    by: dict[bytes, list[_figures.Request]] = {}
    for trajectory, request in served:
        by.setdefault(trajectory, []).append(request)
    return by


def count_of(attributes: _record.Attributes, name: str) -> int:
    """Return a number that counts from 1, which is what it is where it is not said."""
    value = attributes.get(name, 1)
    return value if type(value) is int else 1


def links_of(records: Iterable[_record.End]) -> dict[bytes, _record.Link]:
    """Return the links to trajectories of other traces, by their spans."""
    return {
        link.span: link
        for record in records
        for link in (record.links if record.name in TRAINS else ())
        if semconv.TRAJECTORY_ID in link.attributes and link.trace != record.trace
    }


def _played(run: Run, links: dict[bytes, _record.Link], restart: int) -> Iterator[Played]:
    """Yield the trajectories that are linked to; of one that was played again the last before the step was done."""
    found: dict[bytes, tuple[Source, _record.End]] = {}
    for source in run.sources if links else ():
        for record in _records(source, set()) if source.restart <= restart else ():
            if isinstance(record, _record.End) and record.name == semconv.TRAJECTORY and record.span in links:
                record.attributes = checked(record.attributes)
                if record.span not in found or found[record.span][0].restart <= source.restart:
                    found[record.span] = source, record
            elif isinstance(record, _record.Late) and record.span in found and found[record.span][0] is source:
                found[record.span][1].attributes.update(checked(record.attributes))
    for span, (source, record) in found.items():
        start, end = record.start + source.shift, record.end + source.shift
        stale = links[span].attributes.get(semconv.STALENESS)
        figures = _figures.trajectory_of(span, start, end, record.attributes)
        yield Played(figures, record, source, stale if type(stale) is int else None)


def _with_calls(run: Run, also: Also, played: dict[bytes, Played]) -> list[Trace]:
    """Return the traces of some trajectories, with nothing but these, their calls and what stands between those."""
    traces: dict[bytes, Trace] = {}
    for each in played.values():
        trace = traces.setdefault(each.record.trace, Trace(detail=True))
        trace.end(each.source, each.record)
    for trace_id, trace in traces.items():
        trace.beneath(also.of(trace_id))
    for source in run.sources:
        for record in _records(source, played.keys()):
            if isinstance(record, _record.End) and record.parent in played and record.name in semconv.SERVICE_SUFFIX:
                traces[played[record.parent].record.trace].end(source, record)
            elif isinstance(record, _record.Foreign) and record.trace in traces:
                traces[record.trace].foreign(record)
    return list(traces.values())


def _records(source: Source, around: Iterable[bytes]) -> Iterator[_record.Record]:
    """Yield the records of a process; of calls, which are nine in ten, those alone that are in the spans `around`."""
    wanted = set(around)
    for _, payloads in source.batches():
        for payload in payloads:
            ids = _record.call_ids(payload)
            record = decoded(payload) if ids is None or ids[1] in wanted else None
            if record is not None:
                yield record
