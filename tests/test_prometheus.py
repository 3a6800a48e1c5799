"""The real Prometheus of the tests: what OpenTelemetry's SDK sends is found there, with the way to the trace."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests import needs
from tests.stack.prometheus import prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack.prometheus import Prometheus

pytestmark = [needs.prometheus, pytest.mark.once]


@pytest.fixture(scope="module")
def server() -> Iterator[Prometheus]:
    with prometheus() as server:
        yield server


def send(server: Prometheus, service: str) -> str:
    """Export a gauge and a histogram whose one measurement was made in a span, and return the id of its trace."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    reader = PeriodicExportingMetricReader(OTLPMetricExporter(server.metrics))
    resource = Resource({"service.name": service, "service.instance.id": "rank 0", "rl.run.id": "run"})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("tests")
    with TracerProvider(shutdown_on_exit=False).get_tracer("tests").start_as_current_span("step") as span:
        meter.create_gauge("rl.loss").set(0.25)
        meter.create_histogram("rl.phase.duration", "s").record(3.0, {"rl.phase": "train"})
    provider.shutdown()
    return f"{span.get_span_context().trace_id:032x}"


def test_a_gauge_arrives_with_who_sent_it(server: Prometheus) -> None:
    """Labels are those of the series and, as configured, of its resource."""
    send(server, "gauge")
    server.wait('rl_loss{job="gauge"}')
    ((labels, value),) = server.query('rl_loss{job="gauge"}')
    assert value == 0.25
    known = {"__name__": "rl_loss", "job": "gauge", "instance": "rank 0", "rl_run_id": "run"}
    assert known.items() <= labels.items()


def test_a_histogram_arrives_under_its_unit(server: Prometheus) -> None:
    """Sums and buckets can be asked for, at a moment and over time."""
    before = time.time()
    send(server, "histogram")
    server.wait('rl_phase_duration_seconds_count{job="histogram"}')
    assert server.query('sum by (rl_phase) (rl_phase_duration_seconds_sum{job="histogram"})') == [
        ({"rl_phase": "train"}, 3.0)
    ]
    buckets = server.query('rl_phase_duration_seconds_bucket{job="histogram"}')
    assert {labels["le"]: value for labels, value in buckets}["5"] == 1.0
    over_time = server.query_range('rl_phase_duration_seconds_count{job="histogram"}', before, time.time() + 1, 0.5)
    assert {value for _, values in over_time for _, value in values} == {1.0}


def test_an_exemplar_leads_to_the_trace(server: Prometheus) -> None:
    """The measurement of a bucket names the span that it was made in."""
    before = time.time()
    trace = send(server, "exemplar")
    server.wait('rl_phase_duration_seconds_count{job="exemplar"}')
    (found,) = server.exemplars('rl_phase_duration_seconds_bucket{job="exemplar"}', before - 1, time.time() + 1)
    assert (found.labels["trace_id"], found.value) == (trace, 3.0)
    assert found.series["rl_phase"] == "train"
