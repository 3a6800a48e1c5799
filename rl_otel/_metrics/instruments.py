"""Instruments of OpenTelemetry's SDK for what is measured seldom: steps, phases, trajectories, and what is observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from math import isfinite
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from rl_otel import semconv
from rl_otel import semconv_metrics as table
from rl_otel._metrics.host import provider_of_host
from rl_otel._metrics.observed import OBSERVED, Read, Watched
from rl_otel._metrics.series import Attributes, Series
from rl_otel._safety import say_once, swallow
from rl_otel._version import __version__

if TYPE_CHECKING:
    from rl_otel._metrics.events import Seen

#: What our own bucket arrays hold.
OWN: Final = frozenset({table.GENERATE, table.ENV_STEP, table.TOKENS, table.SPANS, table.OVERHEAD})
#: The SDKs that know exemplars take the context of a measurement.
EXEMPLARS: Final = "context" in signature(metrics.Histogram.record).parameters
#: Those that know it let an instrument say its bounds.
ADVICE: Final = "explicit_bucket_boundaries_advisory"
ADVISED: Final = ADVICE in signature(metrics.Meter.create_histogram).parameters

_OBSERVABLE: Final = {
    table.GAUGE: "create_observable_gauge",
    table.COUNTER: "create_observable_counter",
    table.UP_DOWN: "create_observable_up_down_counter",
}


class Instruments:
    """The instruments on one provider. They are made once; what they read changes, as after a second `configure()`."""

    def __init__(self, provider: metrics.MeterProvider) -> None:
        meter = provider.get_meter(semconv.SCOPE, __version__)
        self.watched: Watched | None = None
        self.before: Callable[[], None] = lambda: None  # called before anything is read
        self._seen: Seen | None = None
        self._context = Context()  # with that span in it
        self._histograms = {row: _histogram(meter, row) for row in _rows(table.HISTOGRAM)}
        self._counters = {row: meter.create_counter(row.name, row.unit, row.doc) for row in _rows(table.COUNTER)}
        self._labels: dict[table.Metric, Series[Attributes]] = {row: Series(row, dict) for row in table.METRICS}
        for row, read in OBSERVED.items():
            create = getattr(meter, _OBSERVABLE[row.kind])
            create(row.name, [self._observing(row, read)], row.unit, row.doc)

    def record(self, row: table.Metric, value: float, *values: str | None, seen: Seen | None) -> None:
        """Record a measurement of the span `seen`."""
        attributes = self._labels[row].at(*values)
        if EXEMPLARS:
            self._histograms[row].record(value, attributes, context=self._inside(seen))
        else:
            self._histograms[row].record(value, attributes)

    def add(self, row: table.Metric, amount: int, *values: str | None) -> None:
        """Add to a counter."""
        self._counters[row].add(amount, self._labels[row].at(*values))

    def _inside(self, seen: Seen | None) -> Context:
        if seen is not self._seen:  # a trajectory has several measurements
            self._seen, self._context = seen, _context(seen)
        return self._context

    def _observing(
        self, row: table.Metric, read: Callable[[Watched], Read]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        labels = self._labels[row]

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            watched = self.watched
            if watched is None:
                return []
            try:
                self.before()
                known = [(value, values) for value, values in read(watched) if isfinite(value)]
                return [Observation(value, labels.at(*values)) for value, values in known]
            except Exception as error:
                swallow(f"metric {row.name}", error)
                return []

        return observe


def _rows(kind: str) -> list[table.Metric]:
    return [row for row in table.METRICS if row.kind == kind and row not in OWN and row not in OBSERVED]


def bounded() -> list[table.Metric]:
    """Return the histograms among them."""
    return _rows(table.HISTOGRAM)


def _histogram(meter: metrics.Meter, row: table.Metric) -> metrics.Histogram:
    advice: dict[str, Any] = {ADVICE: row.bounds} if ADVISED else {}
    return meter.create_histogram(row.name, row.unit, row.doc, **advice)


def _context(seen: Seen | None) -> Context:
    if seen is None:
        return Context()
    ids = int.from_bytes(seen.trace, "big"), int.from_bytes(seen.span, "big")
    span = trace.NonRecordingSpan(trace.SpanContext(*ids, False, trace.TraceFlags(seen.flags)))
    return trace.set_span_in_context(span, Context())


_joined: WeakKeyDictionary[metrics.MeterProvider, Instruments] = WeakKeyDictionary()


def joined() -> Instruments | None:
    """Return the instruments on the provider that the host has set, None where there is none."""
    present = provider_of_host()
    if present is None:
        return None
    if present not in _joined:
        _joined[present] = Instruments(present)
        bounds = "" if ADVISED else "; histograms have its bounds, since this OpenTelemetry is older than 1.30"
        say_once(
            "joined metrics",
            "rl_otel: a MeterProvider is set already and stays; metrics of steps, phases and trajectories leave by it, "
            "those of calls by their own way%s",
            bounds,
        )
    return _joined[present]
