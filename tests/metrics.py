"""What metrics say: exports that a receiver took or a run folder has, read with the official protobuf classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint

import rl_otel
from tests.otlp import REQUESTS, from_json, values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.receiver import Received


#: What this OpenTelemetry can do.
EXEMPLARS = "exemplars" in HistogramDataPoint.__dataclass_fields__
exemplars = pytest.mark.skipif(not EXEMPLARS, reason="OpenTelemetry below 1.28 knows no exemplars")


@dataclasses.dataclass
class Point:
    """One data point, with what its metric says of it."""

    attributes: dict[str, Any]
    resource: dict[str, Any]
    kind: str
    unit: str
    temporality: int  # 0 of a gauge, 1 delta, 2 cumulative
    proto: Any

    @property
    def value(self) -> int | float:
        return getattr(self.proto, self.proto.WhichOneof("value"))

    @property
    def exemplars(self) -> set[tuple[str, str]]:
        """Trace and span of each exemplar, in hex."""
        return {(each.trace_id.hex(), each.span_id.hex()) for each in self.proto.exemplars}


Metrics = dict[str, list[Point]]


def last(exports: Iterable[Received]) -> Metrics:
    """Return the metrics of the last export."""
    return points(list(exports)[-1].message)


def in_folder(run: Path) -> list[Metrics]:
    """Return the exports in a run folder, by process and time."""
    return [
        points(from_json(line, REQUESTS["metrics"]))
        for path in sorted(run.glob("*.metrics.jsonl"))
        for line in path.read_text().splitlines()
    ]


def points(message: Any) -> Metrics:
    """Return the data points of a request, by the name of their metric."""
    found: Metrics = {}
    for resource in message.resource_metrics:
        told = values(resource.resource.attributes)
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            assert metric.name not in found, f"{metric.name} twice in one export"
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            temporality = getattr(data, "aggregation_temporality", 0)
            found[metric.name] = [
                Point(values(each.attributes), told, kind, metric.unit, temporality, each) for each in data.data_points
            ]
    return found


def now(run: Path = Path("runs/r1")) -> Metrics:
    """Return the metrics of this process as they are now; its run folder is `run`."""
    rl_otel.flush()
    return in_folder(run)[-1]


def one(found: Metrics, name: str, wanted: dict[str, Any]) -> Point:
    """Return the one point of that metric that has these attributes."""
    (point,) = [each for each in found[name] if wanted.items() <= each.attributes.items()]
    return point
