"""What we encode, read back with the official protobuf classes and a strict JSON parser."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rl_otel import _record
from rl_otel._otlp import Unencodable, encode, encode_json, encode_protobuf, groups
from rl_otel._record import Event, Foreign, Link
from tests.otlp import from_json, values
from tests.spans import (
    LARGEST,
    PROTOCOLS,
    RESOURCE,
    SMALLEST,
    SPAN,
    TRACE,
    attribute_sets,
    batches,
    decoded,
    end,
    names,
    only,
    spans,
)  # fmt: skip

if TYPE_CHECKING:
    from rl_otel._otlp import Span
    from rl_otel._record import Attributes

# --- The oracle: what a receiver should understand, said once more and plainly. ---------------------------------------


def expected(given: Any) -> Any:
    if isinstance(given, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", given)
    if isinstance(given, int) and not isinstance(given, bool):
        return min(max(given, SMALLEST), LARGEST)
    if isinstance(given, (list, tuple)):
        return [expected(item) for item in given]
    if isinstance(given, dict):
        return {expected(str(key)): expected(item) for key, item in given.items()}
    return given


def clamped(time: int) -> int:
    return min(max(time, 0), LARGEST)


def as_told(span: Any) -> dict[str, Any]:
    """Return what a receiver should know about a record."""
    own = 3 if span.name == "generate" else 1
    return {
        "ids": (span.trace, span.span, span.parent),
        "name": expected(span.name),
        "kind": span.kind if isinstance(span, Foreign) else own,
        "times": (clamped(span.start), clamped(span.end)),
        "flags": 0x100 | (span.flags & 1),
        "attributes": expected(span.attributes),
        "status": (span.status, expected(span.message)),
        "events": [(expected(e.name), clamped(e.time), expected(e.attributes)) for e in span.events],
        "links": [(link.trace, link.span, expected(link.attributes)) for link in span.links],
    }


def as_read(proto: Any) -> dict[str, Any]:
    """Return what a receiver does know."""
    return {
        "ids": (proto.trace_id, proto.span_id, proto.parent_span_id),
        "name": proto.name,
        "kind": proto.kind,
        "times": (proto.start_time_unix_nano, proto.end_time_unix_nano),
        "flags": proto.flags,
        "attributes": values(proto.attributes),
        "status": (proto.status.code, proto.status.message),
        "events": [(e.name, e.time_unix_nano, values(e.attributes)) for e in proto.events],
        "links": [(link.trace_id, link.span_id, values(link.attributes)) for link in proto.links],
    }


# --- Unhappy spans ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "ids",
    [
        {"trace": b""}, {"trace": b"short"}, {"trace": bytes(16)},
        {"span": b""}, {"span": b"far too long"}, {"span": bytes(8)},
    ],
    ids=str,
)  # fmt: skip
def test_span_without_usable_ids_is_left_out_alone(protocol: str, ids: dict[str, bytes]) -> None:
    """A span that receivers would refuse is left out and reported; its neighbours go through."""
    poison = end("poison", **ids)
    encoded = encode([(RESOURCE, [end("a"), poison, end("b")])], protocol)
    assert names(decoded(encoded.body, protocol)) == ["a", "b"]
    assert [(span, type(error)) for span, error in encoded.left_out] == [(poison, Unencodable)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_value_that_cannot_even_be_printed_is_left_out_alone(protocol: str) -> None:
    """An attribute whose own code fails takes its span along, and no other."""

    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("never")

    encoded = encode([(RESOURCE, [end("a"), end("poison", {"x": Hostile()}), end("b")])], protocol)
    assert names(decoded(encoded.body, protocol)) == ["a", "b"]
    assert [str(error) for _, error in encoded.left_out] == ["never"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_half_an_emoji_anywhere_loses_no_span(protocol: str) -> None:
    """Text that UTF-8 cannot hold is repaired in names, keys, values, messages, events and the resource (C3)."""
    bad, good = "cut \ud83d", "cut \ufffd"
    odd = end(
        bad, {bad: bad, "list": [bad]}, message=bad, status=2, events=[Event(bad, 1, {bad: bad})],
        links=[Link(TRACE, SPAN, {bad: bad})],
    )  # fmt: skip
    batch = [({"service.name": bad}, [end() for _ in range(49)] + [odd] + [end() for _ in range(50)])]
    message = decoded(encode(batch, protocol).body, protocol)
    assert len(names(message)) == 100
    span = message.resource_spans[0].scope_spans[0].spans[49]
    assert as_read(span)["attributes"] == {good: good, "list": [good]}
    assert (span.name, span.status.message, span.events[0].name) == (good, good, good)
    assert values(span.links[0].attributes) == values(span.events[0].attributes) == {good: good}
    assert values(message.resource_spans[0].resource.attributes) == {"service.name": good}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parent_and_links_without_usable_ids_are_dropped(protocol: str) -> None:
    """A span keeps its place in the request when only what it refers to is broken; dropped links are counted."""
    proto = only(end(parent=b"odd", links=[Link(b"", SPAN, {}), Link(TRACE, SPAN, {})]), protocol)
    assert proto.parent_span_id == b""
    assert [link.span_id for link in proto.links] == [SPAN]
    assert proto.dropped_links_count == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("given", "sent"), [(-1, 0), (2**63, LARGEST), (2**200, LARGEST), (1.5, 1), (-0.5, 0), (5, 5)]
)  # fmt: skip
def test_times_are_brought_into_range(protocol: str, given: Any, sent: int) -> None:
    """A time from the wrong clock never costs the batch (C30)."""
    proto = only(end(start=given, end=given), protocol)
    assert (proto.start_time_unix_nano, proto.end_time_unix_nano) == (sent, sent)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_codes_that_otlp_does_not_know_become_the_default(protocol: str) -> None:
    """A status or kind outside the enumeration is unset or internal."""
    foreign = Foreign(TRACE, SPAN, b"", "x", 1, 2, {}, status=7, kind=42)
    proto = only(foreign, protocol)
    assert (proto.status.code, proto.kind) == (0, 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_nested_beyond_any_decoder_become_text(protocol: str) -> None:
    """A hundred lists inside one another are cut where decoders would give up."""
    deep: Any = "core"
    for _ in range(100):
        deep = [deep]
    read = values(only(end("x", {"deep": deep}), protocol).attributes)["deep"]
    while isinstance(read, list):
        (read,) = read
    assert read.startswith("[[")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_equal_values_of_different_types_stay_apart(protocol: str) -> None:
    """True, 1 and 1.0 are equal in Python and three different things in OTLP."""
    for told in (True, 1, 1.0, True, 0, False, 0.0, -0.0):
        assert repr(values(only(end("x", {"k": told}), protocol).attributes)) == repr({"k": told})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_subclasses_are_encoded_as_what_they_extend(protocol: str) -> None:
    """Enums and the number types of libraries arrive as str, int and float."""

    class Name(str):
        __slots__ = ()

    class Count(int):
        pass

    class Share(float):
        pass

    attributes = {Name("a"): Name("x"), "b": Count(3), "c": Share(0.5), "d": (1, 2)}
    assert repr(values(only(end("x", attributes), protocol).attributes)) == repr(
        {"a": "x", "b": 3, "c": 0.5, "d": [1, 2]}
    )


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf])
def test_json_writes_non_finite_numbers_as_the_mapping_says(given: float) -> None:
    """A strict parser reads NaN and the infinities as strings (C23)."""
    body = encode_json([(RESOURCE, [end("x", {"loss": given})])])
    assert re.findall(rb'"doubleValue":("[^"]*")', body) == [
        {"nan": b'"NaN"', "inf": b'"Infinity"', "-inf": b'"-Infinity"'}[str(given)]
    ]
    assert repr(values(only(end("x", {"loss": given}), "http/json").attributes)) == repr({"loss": given})


def test_json_writes_large_integers_as_strings() -> None:
    """A reader whose numbers are doubles loses no byte of 80 GiB (C24)."""
    body = encode_json([(RESOURCE, [end("x", {"bytes": 85899345920, "more": 2**63})])])
    assert b'"intValue":"85899345920"' in body
    assert b'"intValue":"9223372036854775807"' in body
    assert b'"startTimeUnixNano":"5"' in body


def test_json_is_one_line_with_ids_in_small_hex() -> None:
    """A request is one line whatever its text says, so that a file of them can be cut between any two."""
    body = encode_json([(RESOURCE, [end("a\nb", {"text": "\r\n\u2028"}, trace=b"\xab" * 16)])])
    assert b"\n" not in body
    assert b'"traceId":"' + b"ab" * 16 + b'"' in body


# --- Everything -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(st.data())
def test_whatever_is_encoded_decodes_to_the_same(protocol: str, data: st.DataObject) -> None:
    """Any span arrives with the values and types it was recorded with, within what OTLP can hold."""
    span = data.draw(spans)
    assert repr(as_read(only(span, protocol))) == repr(as_told(span))


@given(batches)
def test_what_came_through_a_journal_encodes_to_the_same_bytes(records: list[Span]) -> None:
    """A span is sent again from the journal byte for byte as it was sent at first."""
    plain = [record for record in records if _encodable_in_journal(record)]
    again: Any = [_record.decode(_record.encode(record)) for record in plain]
    assert encode_protobuf([(RESOURCE, again)]) == encode_protobuf([(RESOURCE, plain)])
    assert encode_json([(RESOURCE, again)]) == encode_json([(RESOURCE, plain)])


def _encodable_in_journal(record: Span) -> bool:
    try:
        return repr(_record.decode(_record.encode(record))) == repr(record)
    except Exception:
        return False


@given(batches, attribute_sets, st.booleans())
def test_protobuf_and_json_say_the_same(records: list[Span], resource: Attributes, one_service: bool) -> None:
    """Both encodings of a batch are the same message."""
    batch = groups(records, resource, one_service=one_service)
    assert repr(from_json(encode_json(batch))) == repr(ExportTraceServiceRequest.FromString(encode_protobuf(batch)))


def test_values_that_are_equal_and_not_the_same_keep_their_types() -> None:
    """One key with 1, True, 1.0 and the like in any order: what was encoded before changes nothing."""
    values: list[Any] = [1, True, 1.0, "1", ["1"], [1], 0, False, 0.0, -0.0, None, 2000, 2000.0, float("nan"), 0.5]
    for number, first in enumerate(values):
        for value in (first, *values, *values):
            span = end(attributes={f"mixed{number}": value})
            assert repr(as_read(only(span, "http/protobuf"))) == repr(as_told(span))


def test_caches_are_bounded() -> None:
    """Ever new names, keys and values do not accumulate, and what was forgotten is encoded the same again."""
    from rl_otel._otlp import protobuf_encoding

    first = encode_protobuf([(RESOURCE, [end("n", {"k": "v", "i": 1, "f": 0.5, "b": True})])])
    for number in range(20_000):
        same = {"s": f"{number}", "i": number % 1000, "l": [f"{number}"]}
        protobuf_encoding.encode_span(
            end(f"n{number}", {f"k{number}": f"v{number}", f"i{number}": number % 1000, **same})
        )
    caches = [cache for cache in vars(protobuf_encoding).values() if isinstance(cache, dict) and cache]
    inner = [values for _, values in protobuf_encoding._usual.values() if isinstance(values, dict)]
    singles = [values._singles for _, values in protobuf_encoding._usual.values() if hasattr(values, "_singles")]
    assert inner
    assert singles
    assert max(len(cache) for cache in (*caches, *inner, *singles) if "__name__" not in cache) <= 256
    assert encode_protobuf([(RESOURCE, [end("n", {"k": "v", "i": 1, "f": 0.5, "b": True})])]) == first
