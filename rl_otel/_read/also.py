"""Spans of other services, from a file that a collector's file exporter wrote: OTLP JSON, one object a line.

It holds whatever went through the collector. Of use is what other libraries recorded in the traces of a run; our own
spans are in the journals, whole and with all that the budget kept back.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from rl_otel import semconv
from rl_otel._record import Attributes

_GZIP: Final = b"\x1f\x8b"
_BROKEN: Final = (OSError, EOFError, zlib.error)
_TORN, _OTHER = "lines that are torn or no OTLP JSON", "lines of metrics or logs"


class Theirs(NamedTuple):
    """A span that another service recorded, with those of its attributes that are figures."""

    span: bytes
    parent: bytes
    name: str
    attributes: Attributes


class _Value(msgspec.Struct, rename="camel"):
    double_value: float | int | str | None = None
    int_value: int | str | None = None


class _Attribute(msgspec.Struct):
    key: str = ""
    value: _Value | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    name: str = ""
    attributes: list[_Attribute] = []


class _Named(msgspec.Struct):
    name: str = ""


class _Scope(msgspec.Struct, rename="camel"):
    scope: _Named | None = None
    spans: list[_Span] = []


class _Resource(msgspec.Struct, rename="camel"):
    scope_spans: list[_Scope] = []


class _Line(msgspec.Struct, rename="camel"):
    resource_spans: list[_Resource] | None = None
    resource_metrics: list[msgspec.Raw] | None = None
    resource_logs: list[msgspec.Raw] | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode


class Also:
    """What such files hold of other services, by trace.

    Args:
        paths: the files; they may be compressed with gzip.
        problems: where to note what could not be read, a sentence each.
    """

    def __init__(self, paths: Iterable[Path], problems: list[str]) -> None:
        self._traces: dict[bytes, list[Theirs]] = {}
        self._claimed: set[bytes] = set()
        for path in paths:
            passed: Counter[str] = Counter()
            try:
                self._take(path, passed)
            except _BROKEN as error:
                problems.append(f"cannot read all of {path}: {getattr(error, 'strerror', None) or error}")
            if passed:
                told = " and ".join(f"{number} {what}" for what, number in passed.items())
                problems.append(f"{path}: passed over {told}")

    def of(self, trace: bytes) -> list[Theirs]:
        """Return the spans of a trace."""
        found = self._traces.get(trace, [])
        if found:
            self._claimed.add(trace)
        return found

    @property
    def strange(self) -> int:
        """How many spans are of traces that nobody has asked for."""
        return sum(len(spans) for trace, spans in self._traces.items() if trace not in self._claimed)

    def _take(self, path: Path, passed: Counter[str]) -> None:
        with path.open("rb") as file, _plain(file) as lines:
            for line in lines:
                try:
                    read = _decode(line) if line.strip() else _Line([])
                    if read.resource_spans is None:
                        known = read.resource_metrics is not None or read.resource_logs is not None
                        passed[_OTHER if known else _TORN] += 1
                    for trace, span in _theirs(read.resource_spans or []):
                        self._traces.setdefault(trace, []).append(span)
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    passed[_TORN] += 1


def _plain(file: BufferedReader) -> AbstractContextManager[Iterable[bytes]]:
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else nullcontext(file)


def _theirs(resources: Iterable[_Resource]) -> Iterator[tuple[bytes, Theirs]]:
    for scope in (scope for resource in resources for scope in resource.scope_spans):
        if scope.scope is None or scope.scope.name != semconv.SCOPE:
            for span in scope.spans:
                ids = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
                parent = bytes.fromhex(span.parent_span_id or "")
                yield ids[0], Theirs(ids[1], parent, span.name, _figures(span.attributes))


def _figures(attributes: Iterable[_Attribute]) -> Attributes:
    told: dict[str, Any] = {}
    for attribute in attributes:
        if attribute.key.startswith(semconv.LATENCY) and attribute.value is not None:
            value = attribute.value.double_value
            told[attribute.key] = float((attribute.value.int_value or 0) if value is None else value)
    return told
