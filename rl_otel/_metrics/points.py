"""Our own series as data points of OpenTelemetry's SDK."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

from rl_otel._metrics.series import NANO, Series, Slow, Spread, Total

#: The oldest SDKs that we work with know no exemplars.
_EXEMPLARS: Final = "exemplars" in HistogramDataPoint.__dataclass_fields__


class Told(NamedTuple):
    """Of which time an export tells, in ns since the epoch; with `delta` it is all since the one before."""

    start: int
    now: int
    delta: bool


def histogram(series: Series[Spread], told: Told) -> Metric:
    """Return a metric of durations; with `delta` the series begin anew."""
    points = [_histogram_point(spread, told) for spread in series if spread.count]
    for spread in series:
        spread.slow = {}
        if told.delta:
            spread.clear()
    table = series.metric
    return Metric(table.name, table.doc, table.unit, Histogram(points, _temporality(told)))


def counter(series: Series[Total], told: Told) -> Metric:
    """Return a metric of counts; with `delta` of what came since the last time."""
    points = []
    for total in series:
        value = total.value - total.told if told.delta else total.value
        total.told = total.value
        points.append(NumberDataPoint(total.attributes, told.start, told.now, value))
    table = series.metric
    return Metric(table.name, table.doc, table.unit, Sum(points, _temporality(told), is_monotonic=True))


def _temporality(told: Told) -> AggregationTemporality:
    return AggregationTemporality.DELTA if told.delta else AggregationTemporality.CUMULATIVE


def _histogram_point(spread: Spread, told: Told) -> HistogramDataPoint:
    exemplars: dict[str, Any] = {"exemplars": [_exemplar(slow) for slow in spread.slow.values()]} if _EXEMPLARS else {}
    return HistogramDataPoint(
        attributes=spread.attributes,
        start_time_unix_nano=told.start,
        time_unix_nano=told.now,
        count=spread.count,
        sum=spread.sum / NANO,
        bucket_counts=tuple(spread.counts),
        explicit_bounds=spread.bounds,
        min=spread.least / NANO,
        max=spread.most / NANO,
        **exemplars,
    )


def _exemplar(slow: Slow) -> object:
    from opentelemetry.sdk.metrics import Exemplar

    trace, span = int.from_bytes(slow.trace, "big"), int.from_bytes(slow.span, "big")
    return Exemplar({}, slow.nanoseconds / NANO, slow.end, span_id=span, trace_id=trace)
