"""Spans to encode: plain ones, and whatever hypothesis can make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rl_otel import semconv
from rl_otel._otlp import encode
from rl_otel._record import End, Event, Foreign, Link
from tests.otlp import from_json

if TYPE_CHECKING:
    from rl_otel._otlp import Span
    from rl_otel._record import Attributes

TRACE, SPAN, PARENT = bytes(range(1, 17)), bytes(range(8, 16)), bytes(range(20, 28))
LARGEST, SMALLEST = 2**63 - 1, -(2**63)
RESOURCE = {"service.name": "grpo", semconv.SDK_NAME: semconv.SCOPE, semconv.SDK_VERSION: "1.2.3"}
PROTOCOLS = ("http/protobuf", "http/json")


def decoded(body: bytes, protocol: str) -> Any:
    return from_json(body) if protocol == "http/json" else ExportTraceServiceRequest.FromString(body)


def only(span: Span, protocol: str) -> Any:
    """Return `span` as a receiver understands it."""
    message = decoded(encode([(RESOURCE, [span])], protocol).body, protocol)
    return message.resource_spans[0].scope_spans[0].spans[0]


def end(name: str = "step", attributes: Attributes | None = None, **fields: Any) -> End:
    given = {"trace": TRACE, "span": SPAN, "parent": b"", "start": 5, "end": 9, **fields}
    return End(name=name, attributes=attributes or {}, **given)


def names(message: Any) -> list[str]:
    return [s.name for r in message.resource_spans for scope in r.scope_spans for s in scope.spans]


# --- For hypothesis ---------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=()), max_size=80)
scalars = (
    texts | st.booleans() | st.floats() | st.none() | st.binary(max_size=20)
    | st.integers() | st.integers(-(2**70), 2**70) | st.sampled_from([LARGEST, LARGEST + 1, SMALLEST, SMALLEST - 1])
)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(), inner, max_size=4),
    max_leaves=8,
)
attribute_sets = st.dictionaries(texts, anything, max_size=6)
times = st.integers(0, LARGEST) | st.integers(-(2**70), 2**70)
identifiers = st.binary(min_size=8, max_size=8).filter(any)
traces = st.binary(min_size=16, max_size=16).filter(any)
links = st.builds(Link, traces, identifiers, attribute_sets)
events = st.builds(Event, texts, times, attribute_sets)
common = {
    "trace": traces,
    "span": identifiers,
    "parent": identifiers | st.just(b""),
    "name": texts | st.sampled_from([semconv.GENERATE, semconv.ENV_STEP, semconv.STEP]),
    "start": times,
    "end": times,
    "attributes": attribute_sets,
    "flags": st.integers(0, 7),
    "status": st.sampled_from([0, 1, 2]),
    "message": texts,
    "links": st.lists(links, max_size=2),
    "events": st.lists(events, max_size=2),
}
ends = st.builds(End, **common)
foreigners = st.builds(Foreign, **common, kind=st.integers(1, 5), scope=texts, scope_version=texts)
spans = ends | foreigners
#: For whole batches, where what matters is what goes where.
few = {"attributes": st.dictionaries(texts, scalars, max_size=2), "links": st.just([]), "events": st.just([])}
small = st.builds(End, **common | few) | st.builds(Foreign, **common | few, scope=texts, scope_version=texts)
batches = st.lists(small, max_size=4)
