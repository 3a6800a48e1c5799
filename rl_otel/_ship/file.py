"""OTLP JSON that `rl-otel export` or anybody else wrote, as requests of a size that receivers take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

_SIZE: Final = 1_000_000  # bytes of a request


class _Scope(msgspec.Struct, rename="camel"):
    spans: list[msgspec.Raw] = []
    scope: msgspec.Raw = msgspec.Raw(b"{}")
    schema_url: str = ""


class _Resource(msgspec.Struct, rename="camel"):
    scope_spans: list[_Scope] = []
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    schema_url: str = ""


class _Traces(msgspec.Struct, rename="camel"):
    resource_spans: list[_Resource]


class NotOtlp(Exception):
    """A file is not what it was taken for. The message says which, and why."""


class Part(msgspec.Struct):
    """One request."""

    body: bytes
    spans: int


def parts(path: Path) -> Iterator[Part]:
    """Yield the spans of a file in requests below 1 MiB, each span byte for byte as it is.

    Raises:
        OSError: the file cannot be read.
        NotOtlp: it is no OTLP JSON.
    """
    try:
        traces = msgspec.json.decode(path.read_bytes(), type=_Traces)
    except msgspec.MsgspecError as error:
        raise NotOtlp(f"{path} is no OTLP JSON as rl-otel export writes it: {error}") from None
    together: list[_Resource] = []
    size = count = 0
    for piece, length, spans in _pieces(traces):
        if together and size + length > _SIZE:
            yield Part(msgspec.json.encode(_Traces(together)), count)
            together, size, count = [], 0, 0
        together.append(piece)
        size += length
        count += spans
    if together:
        yield Part(msgspec.json.encode(_Traces(together)), count)


def _pieces(traces: _Traces) -> Iterator[tuple[_Resource, int, int]]:
    """Yield the spans of one scope each, so many that a request takes them, with their bytes and number."""
    for resource in traces.resource_spans:
        for scope in resource.scope_spans:
            around = len(resource.resource) + len(resource.schema_url) + len(scope.scope) + len(scope.schema_url) + 200
            for spans in _divided(scope.spans, _SIZE - around):
                piece = replace(resource, scope_spans=[replace(scope, spans=spans)])
                yield piece, around + sum(map(len, spans)) + len(spans), len(spans)


def _divided(spans: list[msgspec.Raw], most: int) -> Iterator[list[msgspec.Raw]]:
    part: list[msgspec.Raw] = []
    size = 0
    for span in spans:
        if part and size + len(span) > most:
            yield part
            part, size = [], 0
        part.append(span)
        size += len(span) + 1
    if part:
        yield part
