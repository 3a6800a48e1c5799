"""How inference servers say that the time of generate calls was spent."""

from __future__ import annotations

from collections.abc import Sequence

from rl_otel import semconv
from rl_otel._analysis import Detail, StepReport
from rl_otel._figures import STAGES, Request
from rl_otel._record import End
from rl_otel._table import counted, short, wrapped

_IN_ROW = tuple(STAGES)[:3]  # the stages that follow one another


def serving_lines(report: StepReport) -> list[str]:
    """Return a line on all requests of a step, where anything is known of them."""
    serving = report.serving
    if serving is None:
        return []
    words = ", ".join(f"{stage} {short(time)}" for stage, time in serving.medians.items())
    return wrapped(f"inference servers, {counted(serving.requests, 'request')}: median {words}")


def served_lines(trajectory: bytes, detail: Detail) -> list[str]:
    """Return a line on how the generate calls of a trajectory went in their server."""
    requests = detail.served.get(trajectory, [])
    if not requests:
        return []
    calls = [call for call in detail.calls if call.parent == trajectory and call.name == semconv.GENERATE]
    told = {stage: sum(each.stages.get(stage, 0) for each in requests) for stage in _IN_ROW}
    words = [f"{stage} {short(time)}" for stage, time in told.items() if any(stage in each.stages for each in requests)]
    outside = _outside(requests, calls)
    words += [f"outside it {short(outside)}"] if outside is not None else []
    known = len({each.call for each in requests})
    of = "" if known == len(calls) else f" ({known} of {counted(len(calls), 'call')})"
    return wrapped(f"in the server{of}: {', '.join(words)}", indent="      ")


def _outside(requests: Sequence[Request], calls: Sequence[End]) -> int | None:
    """Return how long the calls took beyond what their server tells, where that is known of each call, and once."""
    inside = {each.call: sum(each.stages[stage] for stage in _IN_ROW if stage in each.stages) for each in requests}
    whole = all(stage in each.stages for each in requests for stage in _IN_ROW)
    took = sum(call.end - call.start for call in calls)
    if not whole or len(requests) != len(calls) or len(inside) != len(calls) or took < sum(inside.values()):
        return None
    return took - sum(inside.values())
