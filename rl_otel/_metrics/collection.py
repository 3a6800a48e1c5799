"""All metrics of the process at one moment: what the SDK holds, and what our own bucket arrays hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final

from opentelemetry.sdk import metrics as sdk
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    Metric,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from rl_otel import semconv
from rl_otel import semconv_metrics as table
from rl_otel._clock import now
from rl_otel._config import Config
from rl_otel._metrics import points
from rl_otel._metrics.calls import Calls
from rl_otel._metrics.encoding import encode, points_of
from rl_otel._metrics.instruments import ADVISED, Instruments, bounded, joined
from rl_otel._metrics.series import NANO, Series, Total
from rl_otel._version import __version__

_SCOPE: Final = InstrumentationScope(semconv.SCOPE, __version__)
_DELTA: Final = AggregationTemporality.DELTA
_TEMPORALITIES: Final[dict[str, dict[type, AggregationTemporality]]] = {
    "cumulative": {},
    "delta": {sdk.Counter: _DELTA, sdk.Histogram: _DELTA, sdk.ObservableCounter: _DELTA},
    "lowmemory": {sdk.Counter: _DELTA, sdk.Histogram: _DELTA},
}


class Collection:
    """The provider of our own, or the host's joined, with our own series beside it.

    Args:
        config: how metrics are made.
        resource: of this process.
        began: when it began, in ns since the epoch.
        calls: the figures of calls.
        counts: tells what became of the spans, by state.
        overhead: tells what we have cost so far, in ns; None where it is not known.
    """

    def __init__(
        self,
        config: Config,
        resource: Mapping[str, Any],
        began: int,
        calls: Calls,
        *,
        counts: Callable[[], Mapping[str, int]],
        overhead: Callable[[], int | None],
    ) -> None:
        self._resource = Resource(dict(resource))
        self._since = began
        self._delta = config.metrics_temporality != "cumulative"
        self._calls = calls
        self._counts = counts
        self._overhead = overhead
        self._spans = Series(table.SPANS, Total)
        self._spent = Series(table.OVERHEAD, Total)
        self._reader = InMemoryMetricReader(preferred_temporality=_TEMPORALITIES[config.metrics_temporality])
        self._provider: sdk.MeterProvider | None = None
        host = joined()
        if host is None:
            self._provider = _provider(config, self._resource, self._reader)
            host = Instruments(self._provider)
        self.instruments = host

    def export(self, protocol: str) -> tuple[bytes, int]:
        """Return all metrics that leave by our own way, as they are now: a request, and how many data points it has."""
        data = self._data()
        return encode(data, protocol), points_of(data)

    def _data(self) -> MetricsData:
        found = self._reader.get_metrics_data() if self._provider is not None else None
        scopes = [scope for each in found.resource_metrics for scope in each.scope_metrics] if found is not None else []
        ours = [metric for scope in scopes if scope.scope == _SCOPE for metric in scope.metrics]
        others = [scope for scope in scopes if scope.scope != _SCOPE]
        mine = ScopeMetrics(_SCOPE, [*ours, *self._own()], "")
        return MetricsData([ResourceMetrics(self._resource, [mine, *others], "")])

    def close(self) -> None:
        """Let go of what is read."""
        self.instruments.watched = None
        if self._provider is not None:
            self._provider.shutdown()

    def _own(self) -> list[Metric]:
        calls, since, moment = self._calls, self._since, now()
        for state, count in self._counts().items():
            self._spans.at(state).value = count
        spent = self._overhead()
        if spent is not None:
            self._spent.at().value = spent / NANO
        if self._delta:
            self._since = moment
        told = points.Told(since, moment, self._delta)
        with calls.still:
            found = [points.histogram(series, told) for series in (calls.generate, calls.env_step)]
            found += [points.counter(series, told) for series in (calls.tokens, self._spans, self._spent)]
        return [metric for metric in found if metric.data.data_points]


def _provider(config: Config, resource: Resource, reader: InMemoryMetricReader) -> sdk.MeterProvider:
    told: dict[str, Any] = {}
    if "exemplar_filter" in signature(sdk.MeterProvider).parameters:
        told["exemplar_filter"] = _exemplar_filter(config.metrics_exemplars)
    views = [] if ADVISED else [_view(row) for row in bounded()]
    return sdk.MeterProvider([reader], resource=resource, shutdown_on_exit=False, views=views, **told)


def _exemplar_filter(name: str) -> Any:
    filters = {
        "trace_based": "TraceBasedExemplarFilter",
        "always_on": "AlwaysOnExemplarFilter",
        "always_off": "AlwaysOffExemplarFilter",
    }
    return getattr(sdk, filters[name])()


def _view(row: table.Metric) -> View:
    return View(instrument_name=row.name, aggregation=ExplicitBucketHistogramAggregation(row.bounds))
