"""Which span goes under which resource and scope, and how large a request becomes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rl_otel import semconv
from rl_otel._otlp import Request, Unencodable, Writer, encode, encode_protobuf, encoding_of, groups
from rl_otel._record import Foreign
from tests.otlp import values
from tests.spans import PROTOCOLS, RESOURCE, SPAN, TRACE, batches, decoded, end, names


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.data())
def test_request_is_what_encode_makes_and_never_larger_than_its_size(protocol: str, data: st.DataObject) -> None:
    """A request made span by span says the same as one made at once, its size is a bound, its halves are all of it."""
    records, one_service = data.draw(batches), data.draw(st.booleans())
    write = Writer(encoding_of(protocol), RESOURCE, one_service=one_service)
    pieces = [write(record) for record in records]
    request = Request(write.encoding, pieces)
    assert request.body() == encode(groups(records, RESOURCE, one_service=one_service), protocol).body
    assert len(request.body()) <= request.size or not records
    halves = request.split()
    assert [*halves[0].pieces, *halves[1].pieces] == pieces
    assert len(halves[0].pieces) == len(records) // 2
    together = [name for half in halves for name in names(decoded(half.body(), protocol))]
    assert sorted(together) == sorted(names(decoded(request.body(), protocol)))


def test_a_span_that_cannot_be_encoded_is_named() -> None:
    """A poison span is refused before it is part of any request."""
    write = Writer(encoding_of("grpc"), RESOURCE)
    for ids in ({"trace": b""}, {"trace": bytes(16)}, {"span": bytes(8)}, {"span": b"short"}):
        with pytest.raises(Unencodable, match="span 'poison' has no usable ids"):
            write(end("poison", **ids))


# --- Resources and scopes ---------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Placed:
    service: Any
    scope: tuple[str, str]
    names: list[str]


def placed(body: bytes) -> list[_Placed]:
    return [
        _Placed(
            values(r.resource.attributes)["service.name"], (s.scope.name, s.scope.version), [x.name for x in s.spans]
        )
        for r in ExportTraceServiceRequest.FromString(body).resource_spans
        for s in r.scope_spans
    ]


RECORDS = [
    end("step"), end("generate"), end("env.step"), end("env.reset"), end("reward"), end("generate"),
    Foreign(TRACE, SPAN, b"", "generate", 1, 2, {}, scope="vllm", scope_version="9"),
]  # fmt: skip


def test_generate_and_env_spans_have_services_of_their_own() -> None:
    """Back ends colour by service: model time and environment time get one each, other libraries' spans do not."""
    assert placed(encode_protobuf(groups(RECORDS, RESOURCE))) == [
        _Placed("grpo", ("rl_otel", "1.2.3"), ["step", "reward"]),
        _Placed("grpo", ("vllm", "9"), ["generate"]),
        _Placed("grpo-generate", ("rl_otel", "1.2.3"), ["generate", "generate"]),
        _Placed("grpo-env", ("rl_otel", "1.2.3"), ["env.step", "env.reset"]),
    ]


def test_one_service_keeps_all_spans_together() -> None:
    """Where a back end bills by service, all spans go under the one that was configured."""
    assert placed(encode_protobuf(groups(RECORDS, RESOURCE, one_service=True))) == [
        _Placed("grpo", ("rl_otel", "1.2.3"), ["step", "generate", "env.step", "env.reset", "reward", "generate"]),
        _Placed("grpo", ("vllm", "9"), ["generate"]),
    ]


def test_resource_without_our_version_names_no_version() -> None:
    """The scope's version is that of the library that recorded, never that of the one that sends."""
    body = encode_protobuf([({"service.name": "x", semconv.SDK_VERSION: "1.45"}, [end()])])
    assert placed(body) == [_Placed("x", ("rl_otel", ""), ["step"])]


def test_resource_keeps_every_attribute_and_type() -> None:
    """The resource arrives as it was recorded, under each of the three services."""
    resource = {"service.name": "g", "process.pid": 7, "rl.run.id": "r", "rl.share": 0.5, "rl.owner": True, "l": ["a"]}
    message = ExportTraceServiceRequest.FromString(encode_protobuf(groups(RECORDS, resource)))
    for each, service in zip(message.resource_spans, ("g", "g-generate", "g-env"), strict=True):
        assert values(each.resource.attributes) == {**resource, "service.name": service}
