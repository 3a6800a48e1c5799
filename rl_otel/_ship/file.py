"""OTLP JSON that `rl-otel export` or anybody else wrote, as requests of a size that receivers take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from rl_otel import semconv

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


class _Value(msgspec.Struct, rename="camel", frozen=True):
    int_value: int | str | None = None  # JSON of protobuf has it as text


class _Attribute(msgspec.Struct):
    key: str = ""
    value: _Value = _Value()


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    attributes: list[_Attribute] = []


class NotOtlp(Exception):
    """A file is not what it was taken for. The message says which, and why."""


class NoStep(Exception):
    """The step that is asked for is not in a file."""


class Part(msgspec.Struct):
    """One request."""

    body: bytes
    spans: int


def parts(path: Path, step: int | None = None) -> Iterator[Part]:
    """Yield the spans of a file, or of one step in it, in requests below 1 MiB, each byte for byte as it is.

    Raises:
        OSError: the file cannot be read.
        NotOtlp: it is no OTLP JSON.
        NoStep: that step is not in it.
    """
    try:
        traces = msgspec.json.decode(path.read_bytes(), type=_Traces)
        if step is not None and not _narrowed(traces, step):
            raise NoStep(f"no step {step} in {path}")
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


def _narrowed(traces: _Traces, step: int) -> bool:
    """Leave the spans of the traces of one step alone; whether there are any."""
    scopes = [scope for resource in traces.resource_spans for scope in resource.scope_spans]
    read = [[msgspec.json.decode(span, type=_Span) for span in scope.spans] for scope in scopes]
    wanted = {span.trace_id for spans in read for span in spans if _is_of(span, step)}
    for scope, spans in zip(scopes, read, strict=True):
        scope.spans = [raw for raw, span in zip(scope.spans, spans, strict=True) if span.trace_id in wanted]
    return bool(wanted)


def _is_of(span: _Span, step: int) -> bool:
    return any(each.key == semconv.STEP_INDEX and str(each.value.int_value) == str(step) for each in span.attributes)


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
