"""OTLP as protobuf.

A length-delimited message is its parts after one another, so a piece that recurs is encoded once and kept: what
precedes a float of a given key, a whole attribute with a short value, a name with its kind. Field numbers are those of
opentelemetry-proto's `trace.proto` and `common.proto`; a tag is `number << 3 | wire type`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rl_otel._otlp import clean
from rl_otel._otlp.clean import Span
from rl_otel._otlp.wire import double, fixed32, fixed64, sized, varint
from rl_otel._record import Attributes, Event, Foreign, Link

CONTENT_TYPE: Final = "application/x-protobuf"

#: The fields of a span that are of fixed length, each behind its tag: one call writes them.
_root: Final = struct.Struct("<2s16s2s8scQcQ").pack
_child: Final = struct.Struct("<2s16s2s8scQcQ2s8s").pack
_TRACE, _SPAN, _START, _END, _PARENT, _FLAGS = b"\x0a\x10", b"\x12\x08", b"\x39", b"\x41", b"\x22\x08", b"\x85\x01"

_LARGEST: Final = clean.LARGEST
_KEPT: Final = 8192  # entries of a cache; a full one is emptied, which costs less than keeping an order
_SHORT: Final = 64  # longer text is encoded each time
_SMALL: Final = 1024  # counters and indices; larger integers seldom come again

#: Whole attributes, by type since `True == 1 == 1.0`.
_texts: Final[dict[tuple[str, str], bytes]] = {}
_wholes: Final[dict[tuple[str, int], bytes]] = {}
_truths: Final[dict[tuple[str, bool], bytes]] = {}
_singles: Final[dict[tuple[str, str], bytes]] = {}  # lists of one text, as finish reasons are
#: What precedes a float of a key, and an integer of a key whose varint has so many bytes.
_float_fronts: Final[dict[str, bytes]] = {}
_whole_fronts: Final[dict[tuple[str, int], bytes]] = {}
#: Name, kind and flags.
_heads: Final[dict[tuple[str, int, int], bytes]] = {}


def encode_span(span: Span) -> bytes:
    """Return a `Span` message.

    Raises:
        Unencodable: it has no usable ids.
    """
    trace, own, parent, start, end = span.trace, span.span, span.parent, span.start, span.end
    if len(trace) != 16 or len(own) != 8 or not (any(trace) and any(own)):
        raise clean.Unencodable(span)
    if not (type(start) is type(end) is int and 0 <= start <= _LARGEST and 0 <= end <= _LARGEST):
        start, end = clean.moment(start), clean.moment(end)
    if len(parent) == 8:
        fixed = _child(_TRACE, trace, _SPAN, own, _START, start, _END, end, _PARENT, parent)
    else:
        fixed = _root(_TRACE, trace, _SPAN, own, _START, start, _END, end)
    kind = span.kind if type(span) is Foreign else 0
    pieces = [fixed + (_heads.get((span.name, kind, span.flags)) or _head(span, kind))]
    if span.attributes:
        _append(span.attributes, pieces)
    if span.status or span.message or span.links or span.events:
        return b"\x4a".join(pieces) + _rare(span)
    return b"\x4a".join(pieces)


def _head(span: Span, kind: int) -> bytes:
    name = b"\x2a" + sized(_utf8(span.name)) + b"\x30" + varint(clean.kind(span))
    return _keep(_heads, (span.name, kind, span.flags), name + _FLAGS + fixed32(clean.flags(span)))


def _append(attributes: Attributes, pieces: list[bytes]) -> None:
    """Append each attribute as a `KeyValue` with its length; the caller joins them with the tag of its field."""
    for key, value in attributes.items():
        kind = type(value)
        if kind is str:
            pieces.append(_texts.get((key, value)) or _text(key, value))
        elif kind is int:
            pieces.append(_wholes.get((key, value)) or _whole(key, value))
        elif kind is float:
            pieces.append((_float_fronts.get(key) or _float_front(key)) + double(value))
        elif kind is bool:
            pieces.append(_truths.get((key, value)) or _keep(_truths, (key, value), _pair(key, _any(value))))
        elif kind is list and len(value) == 1 and type(value[0]) is str:
            pieces.append(_singles.get((key, value[0])) or _single(key, value))
        else:
            pieces.append(_pair(key, _any(value)))


def _single(key: str, value: list[str]) -> bytes:
    encoded = _pair(key, _any(value))
    return _keep(_singles, (key, value[0]), encoded) if len(value[0]) <= _SHORT else encoded


def _text(key: str, value: str) -> bytes:
    encoded = _pair(key, _any(value))
    return _keep(_texts, (key, value), encoded) if len(value) <= _SHORT else encoded


def _whole(key: str, value: int) -> bytes:
    if 0 <= value < _SMALL:
        return _keep(_wholes, (key, value), _pair(key, _any(value)))
    if _SMALL <= value < 16384:  # two bytes: most token counts
        return (_whole_fronts.get((key, 2)) or _whole_front(key, 2)) + bytes((value & 127 | 128, value >> 7))
    number = varint(clean.whole(value) & 0xFFFF_FFFF_FFFF_FFFF)
    return (_whole_fronts.get((key, len(number))) or _whole_front(key, len(number))) + number


def _whole_front(key: str, length: int) -> bytes:
    return _keep(_whole_fronts, (key, length), _pair(key, b"\x18" + bytes(length))[:-length])


def _float_front(key: str) -> bytes:
    return _keep(_float_fronts, key, _pair(key, b"\x21" + bytes(8))[:-8])


def _pair(key: object, value: bytes) -> bytes:
    return sized(b"\x0a" + sized(_utf8(key)) + b"\x12" + sized(value))


def _any(value: Any, depth: int = 0) -> bytes:
    """Return an `AnyValue`; None is one without a value."""
    if isinstance(value, str):
        return b"\x0a" + sized(_utf8(value))
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + varint(clean.whole(value) & 0xFFFF_FFFF_FFFF_FFFF)
    if isinstance(value, float):
        return b"\x21" + double(value)
    if value is None:
        return b""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"\x3a" + sized(bytes(value))
    return _nested(value, depth)


def _nested(value: Any, depth: int) -> bytes:
    if depth < clean.DEEPEST and isinstance(value, (list, tuple)):
        return b"\x2a" + sized(b"".join(b"\x0a" + sized(_any(item, depth + 1)) for item in value))
    if depth < clean.DEEPEST and isinstance(value, dict):
        items = clean.pairs(value)
        return b"\x32" + sized(b"".join(b"\x0a" + _pair(key, _any(item, depth + 1)) for key, item in items))
    return b"\x0a" + sized(_utf8(value))


def _rare(span: Span) -> bytes:
    """Return what most spans have not: events, links, status."""
    written = [b"\x5a" + sized(_event(event)) for event in span.events]
    links = [link for link in span.links if clean.usable(link.trace, 16) and clean.usable(link.span, 8)]
    written += [b"\x6a" + sized(_link(link)) for link in links]
    if len(links) < len(span.links):
        written.append(b"\x70" + varint(len(span.links) - len(links)))  # dropped_links_count
    if span.status or span.message:
        message = b"\x12" + sized(_utf8(span.message)) if span.message else b""
        written.append(b"\x7a" + sized(message + b"\x18" + varint(clean.status(span))))
    return b"".join(written)


def _event(event: Event) -> bytes:
    pieces = [b"\x09" + fixed64(clean.moment(event.time)) + b"\x12" + sized(_utf8(event.name))]
    _append(event.attributes, pieces)
    return b"\x1a".join(pieces)


def _link(link: Link) -> bytes:
    pieces = [_TRACE + link.trace + _SPAN + link.span]
    _append(link.attributes, pieces)
    return b"\x22".join(pieces)


def request(resources: Iterable[tuple[Attributes, Mapping[tuple[str, str], list[bytes]]]]) -> bytes:
    """Return an `ExportTraceServiceRequest`: resources, each with the spans of its scopes (name, version)."""
    return b"".join(b"\x0a" + sized(_resource_spans(*each)) for each in resources)


def _resource_spans(resource: Attributes, scopes: Mapping[tuple[str, str], list[bytes]]) -> bytes:
    pieces = [b""]
    _append(resource, pieces)
    written = [b"\x0a" + sized(b"\x0a".join(pieces))]
    written += [b"\x12" + sized(_scope_spans(scope, spans)) for scope, spans in scopes.items()]
    return b"".join(written)


def _scope_spans(scope: tuple[str, str], spans: list[bytes]) -> bytes:
    name, version = scope
    described = b"\x0a" + sized(_utf8(name)) + (b"\x12" + sized(_utf8(version)) if version else b"")
    written = [b"\x0a" + sized(described)]
    for span in spans:
        written += (b"\x12", varint(len(span)), span)
    return b"".join(written)


def _utf8(value: object) -> bytes:
    try:
        return value.encode() if isinstance(value, str) else clean.text(value).encode()
    except UnicodeEncodeError:
        return clean.text(value).encode()


def _keep(cache: dict[Any, bytes], key: Any, encoded: bytes) -> bytes:
    if len(cache) >= _KEPT:
        cache.clear()
    cache[key] = encoded
    return encoded
