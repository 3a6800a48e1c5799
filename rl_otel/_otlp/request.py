"""Requests: which span goes under which resource and scope, and how large it all becomes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from rl_otel import semconv
from rl_otel._otlp import json_encoding, protobuf_encoding
from rl_otel._otlp.clean import Span
from rl_otel._record import Attributes, End, Foreign

#: Spans under the resource of their process.
Batch: TypeAlias = Sequence[tuple[Attributes, Sequence[Span]]]

_Scope: TypeAlias = tuple[str, str]  # name, version

#: Bytes at most in front of a span, or of the messages around it: tags and lengths.
_FRAME: Final = 10


class Encoding(Protocol):
    """One of the two ways to write OTLP."""

    @property
    def CONTENT_TYPE(self) -> str:  # noqa: N802
        """What the Content-Type header says."""

    def encode_span(self, span: Span) -> bytes:
        """Return one span."""

    def resource(self, attributes: Attributes) -> bytes:
        """Return what the spans of a resource begin with."""

    def request(self, resources: Iterable[tuple[bytes, Mapping[_Scope, list[bytes]]]]) -> bytes:
        """Return a request of resources, each with the spans of its scopes."""


class Encoded(NamedTuple):
    """A request, and the spans that could not be part of it, each with the reason."""

    body: bytes
    left_out: list[tuple[Span, Exception]]


def encoding_of(protocol: str) -> Encoding:
    """Return the encoding of an OTLP protocol, as `OTEL_EXPORTER_OTLP_PROTOCOL` spells it."""
    return json_encoding if protocol == "http/json" else protobuf_encoding


def encode_protobuf(batch: Batch) -> bytes:
    """Return a batch as a protobuf `ExportTraceServiceRequest`; a span that cannot be encoded is left out."""
    return encode(batch, "http/protobuf").body


def encode_json(batch: Batch) -> bytes:
    """Return a batch as one line of OTLP JSON; a span that cannot be encoded is left out."""
    return encode(batch, "http/json").body


def encode(batch: Batch, protocol: str) -> Encoded:
    """Return a batch as `protocol` wants it, with what had to be left out."""
    encoding = encoding_of(protocol)
    left_out: list[tuple[Span, Exception]] = []
    written: list[tuple[bytes, dict[_Scope, list[bytes]]]] = []
    for resource, spans in batch:
        scopes: dict[_Scope, list[bytes]] = {}
        own = _own_scope(resource)
        for span in spans:
            try:
                encoded = encoding.encode_span(span)
            except Exception as error:
                left_out.append((span, error))
            else:
                scope = own if type(span) is End else _scope(span, own)
                (scopes.get(scope) or scopes.setdefault(scope, [])).append(encoded)
        written.append((encoding.resource(resource), scopes))
    return Encoded(encoding.request(written), left_out)


def groups(
    spans: Iterable[Span], resource: Attributes, *, one_service: bool = False
) -> list[tuple[Attributes, list[Span]]]:
    """Divide one process's spans among up to three services, so that back ends colour model and environment time."""
    divided: dict[str, list[Span]] = {}
    for span in spans:
        divided.setdefault("" if one_service else _suffix(span), []).append(span)
    return [(_renamed(resource, suffix), members) for suffix, members in divided.items()]


class Place:
    """Where spans go in a request."""

    __slots__ = ("envelope", "frame", "resource", "scope")

    def __init__(self, encoding: Encoding, resource: bytes, scope: _Scope, *, own: bool) -> None:
        self.resource = resource
        self.scope = scope
        self.envelope = _FRAME + len(encoding.request([(resource, {scope: []})]))  # bytes
        # What a span takes besides its own bytes, with its scope if that is another library's, in UTF-8 at its longest.
        self.frame = _FRAME if own else 3 * _FRAME + 4 * sum(map(len, scope))


class Piece(msgspec.Struct, gc=False, frozen=True, eq=False):
    """A span as it is sent."""

    id: bytes
    segment: int  # of the journal
    place: Place
    data: bytes
    size: int  # bytes that it takes at most as protobuf, which is what back ends count


class Writer:
    """Writes the spans of one process.

    Args:
        encoding: How, from `encoding_of`.
        resource: What the process says about itself.
        one_service: Whether all spans go under one service name.
    """

    def __init__(self, encoding: Encoding, resource: Attributes, *, one_service: bool = False) -> None:
        self.encoding = encoding
        self.resource = resource
        self.one_service = one_service
        self._encode = encoding.encode_span
        self._is_protobuf = encoding is protobuf_encoding
        self._front = encoding.resource(resource)
        self._own = _own_scope(resource)
        self._foreign: dict[_Scope, Place] = {}  # as many as there are instrumentations
        self._rest = Place(encoding, self._front, self._own, own=True)
        services = {suffix: encoding.resource(_renamed(resource, suffix)) for suffix in semconv.SERVICE_SUFFIX.values()}
        places = {suffix: Place(encoding, service, self._own, own=True) for suffix, service in services.items()}
        divided = {} if one_service else semconv.SERVICE_SUFFIX
        self._place_of = {name: places[suffix] for name, suffix in divided.items()}.get

    def __call__(self, span: Span, segment: int = 0) -> Piece:
        """Write a span that is in that segment of its journal.

        Raises:
            Exception: It cannot be encoded.
        """
        data = self._encode(span)
        place = self._place_of(span.name, self._rest) if type(span) is End else self._place(span)
        size = place.frame + len(data if self._is_protobuf else protobuf_encoding.encode_span(span))
        return Piece(span.span, segment, place, data, size)

    def _place(self, span: Span) -> Place:
        scope = _scope(span, self._own)
        place = self._foreign.get(scope)
        if place is None:
            place = self._foreign[scope] = Place(self.encoding, self._front, scope, own=False)
        return place


class Request:
    """Spans of one process that are sent together.

    Args:
        encoding: How they are written.
        pieces: The spans.
    """

    __slots__ = ("encoding", "pieces")

    def __init__(self, encoding: Encoding, pieces: Sequence[Piece]) -> None:
        self.encoding = encoding
        self.pieces = pieces

    @property
    def size(self) -> int:
        """Bytes; the body is never longer."""
        envelopes = {piece.place: piece.place.envelope for piece in self.pieces}
        return sum(envelopes.values()) + sum(_FRAME + len(piece.data) for piece in self.pieces)

    def body(self) -> bytes:
        """Return the request as it is sent."""
        together: defaultdict[Place, list[bytes]] = defaultdict(list)
        for piece in self.pieces:
            together[piece.place].append(piece.data)
        divided: dict[bytes, dict[_Scope, list[bytes]]] = {}
        for place, spans in together.items():
            # Of two writers each has places of its own, which are the same to a receiver.
            divided.setdefault(place.resource, {}).setdefault(place.scope, []).extend(spans)
        return self.encoding.request(divided.items())

    def split(self) -> tuple[Request, Request]:
        """Return two requests with half of the spans each, for a receiver that refuses them together."""
        middle = len(self.pieces) // 2
        return Request(self.encoding, self.pieces[:middle]), Request(self.encoding, self.pieces[middle:])


def _suffix(span: Span) -> str:
    return semconv.SERVICE_SUFFIX.get(span.name, "") if isinstance(span, End) else ""


def _renamed(resource: Attributes, suffix: str) -> Attributes:
    if not suffix:
        return resource
    return {**resource, semconv.SERVICE_NAME: f"{resource.get(semconv.SERVICE_NAME, semconv.SCOPE)}{suffix}"}


def _scope(span: Span, own: _Scope) -> _Scope:
    return (span.scope, span.scope_version) if isinstance(span, Foreign) else own


def _own_scope(resource: Attributes) -> _Scope:
    # The version that recorded, not the one that sends: what is sent again later must be the same bytes.
    ours = resource.get(semconv.SDK_NAME) == semconv.SCOPE
    return semconv.SCOPE, str(resource.get(semconv.SDK_VERSION, "")) if ours else ""
