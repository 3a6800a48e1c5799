"""OTLP as JSON: protobuf's JSON mapping, but ids are hex and enums are numbers.

Integers of 64 bits are strings, and so are NaN and the infinities, which JSON has no numbers for.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from rl_otel._otlp import clean
from rl_otel._otlp.clean import Span
from rl_otel._record import Attributes, Event, Link

CONTENT_TYPE: Final = "application/json"

_dumps: Final = msgspec.json.Encoder().encode


def encode_span(span: Span) -> bytes:
    """Return a span as a JSON object on one line.

    Raises:
        Unencodable: it has no usable ids.
    """
    if not (clean.usable(span.trace, 16) and clean.usable(span.span, 8)):
        raise clean.Unencodable(span)
    fields: dict[str, Any] = {"traceId": span.trace.hex(), "spanId": span.span.hex()}
    if len(span.parent) == 8:
        fields["parentSpanId"] = span.parent.hex()
    fields |= {
        "flags": clean.flags(span),
        "name": clean.text(span.name),
        "kind": clean.kind(span),
        "startTimeUnixNano": str(clean.moment(span.start)),
        "endTimeUnixNano": str(clean.moment(span.end)),
        "attributes": _attributes(span.attributes),
    }
    return _dumps(fields | _rare(span))


def _rare(span: Span) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if span.events:
        fields["events"] = [_event(event) for event in span.events]
    if span.links:
        links = [link for link in span.links if clean.usable(link.trace, 16) and clean.usable(link.span, 8)]
        fields["links"] = [_link(link) for link in links]
        fields["droppedLinksCount"] = len(span.links) - len(links)
    if span.status or span.message:
        fields["status"] = {"message": clean.text(span.message), "code": clean.status(span)}
    return fields


def _event(event: Event) -> dict[str, Any]:
    return {
        "timeUnixNano": str(clean.moment(event.time)),
        "name": clean.text(event.name),
        "attributes": _attributes(event.attributes),
    }


def _link(link: Link) -> dict[str, Any]:
    return {"traceId": link.trace.hex(), "spanId": link.span.hex(), "attributes": _attributes(link.attributes)}


def _attributes(attributes: Attributes, depth: int = 0) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any(value, depth)} for key, value in clean.pairs(attributes)]


def _any(value: Any, depth: int = 0) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": clean.text(value)}
    if isinstance(value, bool):
        return {"boolValue": bool(value)}
    if isinstance(value, int):
        return {"intValue": str(clean.whole(value))}
    if isinstance(value, float):
        return {"doubleValue": _double(float(value))}
    if value is None:
        return {}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytesValue": base64.b64encode(bytes(value)).decode()}
    return _nested(value, depth)


def _nested(value: Any, depth: int) -> dict[str, Any]:
    if depth < clean.DEEPEST and isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_any(item, depth + 1) for item in value]}}
    if depth < clean.DEEPEST and isinstance(value, dict):
        return {"kvlistValue": {"values": _attributes(value, depth + 1)}}
    return {"stringValue": clean.text(value)}


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def resource(attributes: Attributes) -> bytes:
    """Return what the spans of a resource begin with."""
    return b'{"resource":' + _dumps({"attributes": _attributes(attributes)}) + b',"scopeSpans":['


def request(resources: Iterable[tuple[bytes, Mapping[tuple[str, str], list[bytes]]]]) -> bytes:
    """Return an `ExportTraceServiceRequest` on one line: resources, each with the spans of its scopes."""
    return b'{"resourceSpans":[' + b",".join(_resource_spans(*each) for each in resources) + b"]}"


def _resource_spans(front: bytes, scopes: Mapping[tuple[str, str], list[bytes]]) -> bytes:
    return front + b",".join(_scope_spans(scope, spans) for scope, spans in scopes.items()) + b"]}"


def _scope_spans(scope: tuple[str, str], spans: list[bytes]) -> bytes:
    name, version = (clean.text(word) for word in scope)
    described = {"name": name, "version": version} if version else {"name": name}
    return b'{"scope":' + _dumps(described) + b',"spans":[' + b",".join(spans) + b"]}"
