"""Requests: which span goes under which resource and scope, and how large it all becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from rl_otel import semconv
from rl_otel._otlp import json_encoding, protobuf_encoding
from rl_otel._otlp.clean import Span
from rl_otel._record import Attributes, End, Foreign

#: Spans under the resource of their process.
Batch: TypeAlias = Sequence[tuple[Attributes, Sequence[Span]]]

_Scope: TypeAlias = tuple[str, str]  # name, version
_Place: TypeAlias = tuple[str, _Scope]  # what the service's name ends in

#: Bytes at most in front of a span, or of the messages around it: tags and lengths.
_FRAME: Final = 10


class Encoding(Protocol):
    """One of the two ways to write OTLP."""

    @property
    def CONTENT_TYPE(self) -> str:  # noqa: N802
        """What the Content-Type header says."""

    def encode_span(self, span: Span) -> bytes:
        """Return one span."""

    def request(self, resources: Iterable[tuple[Attributes, Mapping[_Scope, list[bytes]]]]) -> bytes:
        """Return a request of encoded spans."""


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
    written: list[tuple[Attributes, dict[_Scope, list[bytes]]]] = []
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
        written.append((resource, scopes))
    return Encoded(encoding.request(written), left_out)


def groups(
    spans: Iterable[Span], resource: Attributes, *, one_service: bool = False
) -> list[tuple[Attributes, list[Span]]]:
    """Divide one process's spans among up to three services, so that back ends colour model and environment time."""
    divided: dict[str, list[Span]] = {}
    for span in spans:
        divided.setdefault("" if one_service else _suffix(span), []).append(span)
    return [(_renamed(resource, suffix), members) for suffix, members in divided.items()]


class Request:
    """One process's spans on their way into a request: add until `size` is enough, send `body()`.

    Args:
        encoding: How to write them, from `encoding_of`.
        resource: What the process says about itself.
        one_service: Whether all spans go under one service name.
    """

    __slots__ = ("_encoded", "_one_service", "_own", "_placed", "_places", "encoding", "resource", "size", "spans")

    def __init__(self, encoding: Encoding, resource: Attributes, *, one_service: bool = False) -> None:
        self.encoding = encoding
        self.resource = resource
        self.size = 0  # bytes; the body is never longer
        self.spans: list[Span] = []
        self._encoded: list[bytes] = []
        self._placed: list[_Place] = []  # where each goes
        self._one_service = one_service
        self._own = _own_scope(resource)
        self._places: set[_Place] = set()

    def add(self, span: Span) -> int:
        """Add a span and return by how many bytes the request grew.

        Raises:
            Exception: the span cannot be encoded; the request is as it was.
        """
        return self._take(span, self.encoding.encode_span(span))

    def body(self) -> bytes:
        """Return the request as it is sent."""
        divided: dict[str, dict[_Scope, list[bytes]]] = {}
        for (suffix, scope), encoded in zip(self._placed, self._encoded, strict=True):
            divided.setdefault(suffix, {}).setdefault(scope, []).append(encoded)
        return self.encoding.request((_renamed(self.resource, suffix), scopes) for suffix, scopes in divided.items())

    def split(self) -> tuple[Request, Request]:
        """Return two requests with half of the spans each, for a receiver that refuses them together."""
        middle = len(self.spans) // 2
        return self._part(slice(middle)), self._part(slice(middle, None))

    def _part(self, which: slice) -> Request:
        part = Request(self.encoding, self.resource, one_service=self._one_service)
        for span, encoded in zip(self.spans[which], self._encoded[which], strict=True):
            part._take(span, encoded)
        return part

    def _take(self, span: Span, encoded: bytes) -> int:
        before = self.size
        place = self._place(span)
        if place not in self._places:
            self._places.add(place)
            suffix, scope = place
            self.size += _FRAME + len(self.encoding.request([(_renamed(self.resource, suffix), {scope: []})]))
        self.size += _FRAME + len(encoded)
        self.spans.append(span)
        self._encoded.append(encoded)
        self._placed.append(place)
        return self.size - before

    def _place(self, span: Span) -> _Place:
        if type(span) is End:
            return "" if self._one_service else semconv.SERVICE_SUFFIX.get(span.name, ""), self._own
        return "", _scope(span, self._own)


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
