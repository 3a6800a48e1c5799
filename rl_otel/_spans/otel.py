"""The side of our spans that OpenTelemetry's API sees, so that children, exemplars and links of others find them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import trace

from rl_otel import _record, _values, semconv
from rl_otel._clock import now


class OtelSpan:
    """`opentelemetry.trace.Span`, for code that takes ours for one: it may add to the span, but never ends it."""

    _trace: bytes = b""
    _span: bytes = b""
    _attributes: dict[str, Any]
    _flags: int = 0
    _status: int = _record.UNSET
    _message: str = ""
    _events: list[_record.Event] | None = None
    _links: list[_record.Link] | None = None

    @property
    def recording(self) -> bool:
        """Whether the span is open and traced."""
        raise NotImplementedError

    def get_span_context(self) -> trace.SpanContext:
        """Return the span's identity; an invalid one when nothing is traced."""
        if not self._span:
            return trace.INVALID_SPAN_CONTEXT
        flags = trace.TraceFlags(self._flags & _record.SAMPLED)
        return trace.SpanContext(int.from_bytes(self._trace, "big"), int.from_bytes(self._span, "big"), False, flags)

    def is_recording(self) -> bool:
        """Whether the span takes attributes now."""
        return self.recording

    def set_attribute(self, key: str, value: object) -> None:
        """Set an attribute under its own name; our words go through `record`."""
        self.set_attributes({key: value})

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes under their own names."""
        if self.recording:
            self._attributes.update(_plain(attributes))

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        """Add something that happened at one moment."""
        if self.recording:
            event = _record.Event(_values.text(str(name)), timestamp or now(), _plain(attributes))
            self._events = [*(self._events or ()), event]

    def add_link(self, context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Add a reference to a span of any trace."""
        if self.recording and context.is_valid:
            ids = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
            self._links = [*(self._links or ()), _record.Link(*ids, _plain(attributes))]

    def update_name(self, name: str) -> None:
        """Do nothing: names are constants here."""

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        """Set the status that the span ends with."""
        if self.recording:
            code, text = (status, description) if isinstance(status, trace.StatusCode) else _parts(status)
            self._status, self._message = code.value, _values.text(text or "")

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an exception as an event, by type and message."""
        what = {semconv.EXCEPTION_TYPE: type(exception).__qualname__, semconv.EXCEPTION_MESSAGE: message_of(exception)}
        self.add_event(semconv.EXCEPTION, {**what, **(attributes or {})}, timestamp)


trace.Span.register(OtelSpan)


def message_of(error: BaseException) -> str:
    """Return what an exception says; exceptions of the host may fail to say anything."""
    try:
        return _values.text(str(error))
    except Exception:
        return f"<{type(error).__qualname__} without a message>"


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {}
    for key, value in (attributes or {}).items():
        try:
            found[_values.text(str(key))] = _values.plain(value)
        except _values.Unreadable:
            continue
    return {key: value for key, value in found.items() if value is not None}


def _parts(status: trace.Status) -> tuple[trace.StatusCode, str | None]:
    return status.status_code, status.description
