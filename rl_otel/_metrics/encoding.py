"""Metrics as OTLP: with the encoder of OpenTelemetry's exporters, in protobuf or in JSON."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricsData

from rl_otel._kinds import JSON

_IDS: Final = frozenset({"traceId", "spanId"})


def encode(data: MetricsData, protocol: str) -> bytes:
    """Return an `ExportMetricsServiceRequest`."""
    request = encode_metrics(data)
    if protocol != JSON:
        return bytes(request.SerializeToString())
    tree = MessageToDict(request, use_integers_for_enums=True)
    return msgspec.json.encode(_with_hex_ids(tree))


def points_of(data: MetricsData) -> int:
    """Return how many data points there are."""
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return sum(len(metric.data.data_points) for scope in scopes for metric in scope.metrics)


def _with_hex_ids(tree: Any) -> Any:
    # protobuf's own JSON mapping has bytes in base64 where OTLP has ids in hex.
    if isinstance(tree, list):
        return [_with_hex_ids(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {key: base64.b64decode(item).hex() if key in _IDS else _with_hex_ids(item) for key, item in tree.items()}
