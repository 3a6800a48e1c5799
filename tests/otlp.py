"""What OTLP messages say, read with the official protobuf classes and a strict JSON parser."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


TRACES, METRICS = "traces", "metrics"
REQUESTS: dict[str, Any] = {TRACES: ExportTraceServiceRequest, METRICS: ExportMetricsServiceRequest}


@dataclasses.dataclass
class ReceivedSpan:
    """A span with what surrounded it; attributes as plain values of exact types."""

    proto: Span
    resource: dict[str, Any]
    scope: tuple[str, str]

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def attributes(self) -> dict[str, Any]:
        return values(self.proto.attributes)


def values(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """Return attributes as plain values, each of the type that was sent."""
    return {attribute.key: value(attribute.value) for attribute in attributes}


def value(sent: AnyValue) -> Any:
    """Return one value as it was sent; None where none was set."""
    kind = sent.WhichOneof("value")
    if kind == "array_value":
        return [value(item) for item in sent.array_value.values]
    if kind == "kvlist_value":
        return values(sent.kvlist_value.values)
    return getattr(sent, kind) if kind else None


def from_json(body: bytes | str, kind: Any = ExportTraceServiceRequest) -> Any:
    """Return what a strict reader of OTLP JSON understands: no NaN outside strings, ids in hex."""
    tree = json.loads(body, parse_constant=_no_json)
    return json_format.ParseDict(_with_base64_ids(tree), kind())


def _with_base64_ids(tree: Any) -> Any:
    # protobuf's own JSON mapping has bytes in base64 where OTLP has ids in hex.
    if isinstance(tree, list):
        return [_with_base64_ids(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ids = {"traceId", "spanId", "parentSpanId"}
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in ids else _with_base64_ids(item)
        for key, item in tree.items()
    }


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def retry_info(seconds: float) -> bytes:
    """Return the status details with which a grpc server asks for patience."""
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.rpc import error_details_pb2, status_pb2

    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromNanoseconds(round(seconds * 1e9))
    detail = AnyMessage()
    detail.Pack(info)
    return status_pb2.Status(code=14, message="busy", details=[detail]).SerializeToString()
