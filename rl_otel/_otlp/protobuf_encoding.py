"""OTLP as protobuf.

A length-delimited message is its parts after one another, so a piece that recurs is encoded once and kept: a whole
attribute with a short value, what precedes a float of a given key, a name with its kind. Field numbers are those of
opentelemetry-proto's `trace.proto` and `common.proto`; a tag is `number << 3 | wire type`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from rl_otel._otlp import clean
from rl_otel._otlp.clean import Span
from rl_otel._otlp.wire import double, fixed32, fixed64, sized, varint
from rl_otel._record import SAMPLED, Attributes, End, Event, Link

CONTENT_TYPE: Final = "application/x-protobuf"

#: The fields of a span that are of fixed length, each behind its tag: one call writes them.
_root: Final = struct.Struct("<cQcQ").pack
_child: Final = struct.Struct("<cQcQ2s8s").pack
_TRACE, _SPAN, _START, _END, _PARENT, _FLAGS = b"\x0a\x10", b"\x12\x08", b"\x39", b"\x41", b"\x22\x08", b"\x85\x01"

_LARGEST: Final = clean.LARGEST
_KEPT: Final = 256  # entries of a cache; a full one is emptied, which costs less than keeping an order
_SHORT: Final = 64  # longer text is encoded each time
_SMALL: Final = 1024  # counters and indices; larger integers seldom come again
_NO_SPAN: Final = bytes(8)

_Kept = TypeVar("_Kept")


def encode_span(span: Span) -> bytes:
    """Return a `Span` message.

    Raises:
        Unencodable: it has no usable ids.
    """
    own, parent, start, end = span.span, span.parent, span.start, span.end
    if len(own) != 8 or own == _NO_SPAN:
        raise clean.Unencodable(span)
    if not (type(start) is int and type(end) is int and 0 <= start <= end <= _LARGEST):
        start, end = clean.moment(start), clean.moment(end)
    times = _child(_START, start, _END, end, _PARENT, parent) if len(parent) == 8 else _root(_START, start, _END, end)
    plain = type(span) is End and span.flags == SAMPLED
    head = (plain and _heads.get(span.name)) or _head(span)
    pieces = [_fronts.get(span.trace) or _front(span), own, times, head]
    add, usual = pieces.append, _usual
    try:
        for key, value in span.attributes.items():
            kind, values = usual[key]
            add(values[value] if kind is type(value) else _other(key, value))
    except KeyError:  # one is new
        pieces[4:] = [_other(key, value) for key, value in span.attributes.items()]
    if span.status or span.message or span.links or span.events:
        add(_rare(span))
    return b"".join(pieces)


_fronts: Final[dict[bytes, bytes]] = {}  # by trace
_heads: Final[dict[str, bytes]] = {}  # name, kind and flags of our own, which are sampled


def _front(span: Span) -> bytes:
    if not clean.usable(span.trace, 16):
        raise clean.Unencodable(span)
    return _keep(_fronts, span.trace, _TRACE + span.trace + _SPAN)


def _head(span: Span) -> bytes:
    name = b"\x2a" + sized(_utf8(span.name)) + b"\x30" + varint(clean.kind(span))
    head = name + _FLAGS + fixed32(clean.flags(span))
    return _keep(_heads, span.name, head) if type(span) is End and span.flags == SAMPLED else head


# --- Attributes -------------------------------------------------------------------------------------------------------


class _Values(dict[Any, bytes]):
    """A span's attributes of one key whose values have one type, for `True == 1 == 1.0`: each whole, by its value."""

    __slots__ = ("_front", "_key", "_kind")

    def __init__(self, key: str, kind: type) -> None:
        self._kind = kind
        self._key = key
        front = {int: b"\x18\0\0", float: b"\x21" + bytes(8)}.get(kind, b"")
        self._front = _attribute(key, front)[: 1 - len(front)] if front else b""  # all but the value

    def __missing__(self, value: Any) -> bytes:
        kind = self._kind
        if kind is float:
            encoded = self._front + double(value)
            return _keep(self, value, encoded) if value in _USUAL else encoded
        if kind is int and _SMALL <= value < 16384:  # most token counts
            return self._front + bytes((value & 127 | 128, value >> 7))
        encoded = _attribute(self._key, _any(value))
        recurs = len(value) <= _SHORT if kind is str else 0 <= value < _SMALL
        return _keep(self, value, encoded) if recurs else encoded


class _Others:
    """The same of a type that is no key of a dict; of texts alone in a list, as finish reasons are, some are kept."""

    __slots__ = ("_key", "_singles")

    def __init__(self, key: str) -> None:
        self._key = key
        self._singles: dict[str, bytes] = {}

    def __getitem__(self, value: Any) -> bytes:
        if type(value) is list and len(value) == 1 and type(value[0]) is str and len(value[0]) <= _SHORT:
            text = value[0]
            return self._singles.get(text) or _keep(self._singles, text, _attribute(self._key, _any(value)))
        return _attribute(self._key, _any(value))


_USUAL: Final = frozenset(n / 100 for n in range(-100, 101) if n)  # rewards; not 0.0, which is equal to -0.0
_KINDS: Final = frozenset({str, bool, int, float})
_usual: Final[dict[str, tuple[type, _Values | _Others]]] = {}  # by key: the type that its values have as a rule
_unusual: Final[dict[tuple[str, type], _Values | _Others]] = {}  # and other types


def _other(key: str, value: Any) -> bytes:
    """Return an attribute of a key that is new, or has values of another type as a rule."""
    kind = type(value)
    usual, values = _usual.get(key), _unusual.get((key, kind))
    if usual is not None and usual[0] is kind:
        return usual[1][value]
    if values is None:
        values = _Values(key, kind) if kind in _KINDS else _Others(key)
        if usual is None:
            _keep(_usual, key, (kind, values))
        else:
            _keep(_unusual, (key, kind), values)
    return values[value]


def _attribute(key: object, value: bytes) -> bytes:
    return b"\x4a" + _pair(key, value)


def _attributes(tag: bytes, attributes: Attributes) -> bytes:
    """Return the attributes of anything but a span, each a `KeyValue` behind a tag."""
    return b"".join(tag + _pair(key, _any(value)) for key, value in attributes.items())


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
    moment = b"\x09" + fixed64(clean.moment(event.time))
    return moment + b"\x12" + sized(_utf8(event.name)) + _attributes(b"\x1a", event.attributes)


def _link(link: Link) -> bytes:
    return _TRACE + link.trace + _SPAN + link.span + _attributes(b"\x22", link.attributes)


def resource(attributes: Attributes) -> bytes:
    """Return what the spans of a resource begin with."""
    return b"\x0a" + sized(_attributes(b"\x0a", attributes))


def request(resources: Iterable[tuple[bytes, Mapping[tuple[str, str], list[bytes]]]]) -> bytes:
    """Return an `ExportTraceServiceRequest`: resources, each with the spans of its scopes (name, version)."""
    return b"".join(b"\x0a" + sized(_resource_spans(*each)) for each in resources)


def _resource_spans(front: bytes, scopes: Mapping[tuple[str, str], list[bytes]]) -> bytes:
    written = (b"\x12" + sized(_scope_spans(scope, spans)) for scope, spans in scopes.items())
    return b"".join((front, *written))


def _scope_spans(scope: tuple[str, str], spans: list[bytes]) -> bytes:
    name, version = scope
    described = b"\x0a" + sized(_utf8(name)) + (b"\x12" + sized(_utf8(version)) if version else b"")
    written = [part for span in spans for part in (_spans[len(span)], span)]
    return b"".join((b"\x0a", sized(described), *written))


class _Lengths(dict[int, bytes]):
    def __missing__(self, length: int) -> bytes:
        return _keep(self, length, b"\x12" + varint(length))


_spans: Final = _Lengths()  # what precedes a span of so many bytes


def _utf8(value: object) -> bytes:
    try:
        return value.encode() if isinstance(value, str) else clean.text(value).encode()
    except UnicodeEncodeError:
        return clean.text(value).encode()


def _keep(cache: dict[Any, _Kept], key: Any, encoded: _Kept) -> _Kept:
    if len(cache) >= _KEPT:
        cache.clear()
    cache[key] = encoded
    return encoded
