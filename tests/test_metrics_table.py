"""The table of metrics is what the code makes and what the page says."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from rl_otel import semconv_metrics
from rl_otel._metrics.instruments import OWN, Instruments
from rl_otel._metrics.observed import OBSERVED

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
TABLE = semconv_metrics.METRICS


def test_the_page_has_the_table() -> None:
    """docs/metrics.md has each metric with kind, unit, attributes and sentence, in the order of the code."""
    assert "\n".join(rows()) in PAGE.read_text(), "docs/metrics.md should hold:\n" + "\n".join(rows())


def test_there_are_few_metrics() -> None:
    """A run has 35 names at most, each once, and each a metric of its own among the constants."""
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names) <= 35
    known = [value for value in vars(semconv_metrics).values() if isinstance(value, semconv_metrics.Metric)]
    assert sorted(known) == sorted(TABLE)


def test_each_metric_is_made_once() -> None:
    """A row is an instrument of the SDK, or one of our own bucket arrays; what is observed has something to read."""
    made: list[str] = []

    class Provider(MeterProvider):
        def get_meter(self, *what: object, **more: object) -> object:  # type: ignore[override]
            return Meter()

    class Meter:
        def __getattr__(self, create: str) -> object:
            return lambda name, *what, **more: made.append(name)

    Instruments(Provider([InMemoryMetricReader()], shutdown_on_exit=False))
    assert sorted([*made, *(row.name for row in OWN)]) == sorted(row.name for row in TABLE)
    gauges = {row for row in TABLE if row.kind in (semconv_metrics.GAUGE, semconv_metrics.UP_DOWN)}
    assert gauges <= OBSERVED.keys()


def test_units_do_not_double_names_in_prometheus() -> None:
    """Prometheus appends `_ratio` to a gauge of unit 1: only what is a ratio has it."""
    ones = {row.name for row in TABLE if row.unit == "1"}
    assert ones == {"rl.rollout.env_time.ratio", "hw.gpu.utilization"}


def test_bounds_reach_from_a_quick_call_to_a_long_phase() -> None:
    """Histograms of time have bounds from 5 ms to 2 h, all histograms some of their own."""
    for row in TABLE:
        assert bool(row.bounds) == (row.kind == semconv_metrics.HISTOGRAM)
        assert list(row.bounds) == sorted(set(row.bounds))
        if row.bounds and row.unit == "s":
            assert (row.bounds[0], row.bounds[-1]) == (0.005, 7200.0)


def rows() -> list[str]:
    """Return the table as Markdown."""
    lines = ["| metric | kind | unit | attributes | |", "|---|---|---|---|---|"]
    for row in TABLE:
        attributes = ", ".join(f"`{name}`" for name in row.attributes)
        lines.append(f"| `{row.name}` | {row.kind} | {row.unit} | {attributes} | {row.doc} |")
    return lines
