"""The side of our spans that OpenTelemetry's API sees, so that children, exemplars and links of others find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry import trace

from rl_otel import _record, _values, semconv
from rl_otel._clock import now
from rl_otel._deferred import Pending
from rl_otel._metrics.events import Seen
from rl_otel._safety import guarded, say, swallow, words_of

_EARLIEST = 1_000_000_000_000_000_000  # ns since the epoch: what is less counts seconds, or from another zero
_HOUR = 3_600_000_000_000  # ns


class Extra:
    """What few spans have: a status, events, links, values that come late."""

    __slots__ = ("deferred", "events", "links", "message", "status")

    def __init__(self) -> None:
        self.status = _record.UNSET
        self.message = ""
        self.events: list[_record.Event] = []
        self.links: list[_record.Link] = []
        self.deferred: dict[str, tuple[semconv.Word, Pending]] = {}  # by attribute

    def add_to(self, record: _record.End) -> list[tuple[semconv.Word, Pending]]:
        """Set what a span's record has of it, and return the values that it has to wait for."""
        record.status, record.message = self.status, self.message
        record.events, record.links = self.events, self.links
        awaited = self.due(record.attributes)
        if awaited:
            record.flags |= _record.AWAITED
        return awaited

    def due(self, attributes: _record.Attributes) -> list[tuple[semconv.Word, Pending]]:
        """Return the values to wait for: those that were not recorded anew since."""
        return [due for attribute, due in self.deferred.items() if attribute not in attributes]


class OtelSpan:
    """`opentelemetry.trace.Span`, for code that takes ours for one: it may add to the span, but never ends it."""

    _trace: bytes = b""
    _span: bytes = b""
    _parent: bytes = b""
    _attributes: dict[str, Any]
    _flags: int = 0
    _extra: Extra | None = None
    finished: int = 0
    _named = 0  # attributes under names that the host chose

    @property
    def extra(self) -> Extra:
        """What this span has of what few have."""
        made = Extra() if self._extra is None else self._extra
        # No call from here on: neither a thread nor a signal handler comes in between.
        if self._extra is None:
            self._extra = made
        return self._extra

    def _forget(self) -> None:
        """Drop all that a handle has known since it was made."""
        self.__dict__.clear()

    def _has_room(self, attribute: str) -> bool:
        """Whether an attribute under a name that the host chose is taken: the first ones are, the others counted."""
        if attribute in self._attributes:
            return True
        if self._named < _values.MAX_NAMED:
            self._named += 1
            return True
        self._attributes[semconv.ATTRIBUTES_DROPPED] = self._attributes.get(semconv.ATTRIBUTES_DROPPED, 0) + 1
        return False

    @property
    def recording(self) -> bool:
        """Whether the span is open and traced."""
        raise NotImplementedError

    @property
    def attributes(self) -> dict[str, Any]:
        """What has been recorded so far."""
        return self._attributes

    @property
    def trace_id(self) -> str:
        """The trace's id in hex, to keep beside a saved trajectory; empty when nothing is traced."""
        return self._trace.hex()

    @property
    def span_id(self) -> str:
        """The span's id in hex; empty when nothing is traced."""
        return self._span.hex()

    @property
    def is_root(self) -> bool:
        """Whether its trace begins with it."""
        return not self._parent

    @property
    def ids(self) -> tuple[bytes, bytes, bool]:
        """Its trace, its own id, and whether it is sampled."""
        return self._trace, self._span, bool(self._flags & _record.SAMPLED)

    @property
    def seen(self) -> Seen:
        """What an exemplar of a metric says of it."""
        return Seen(self._trace, self._span, self._flags & _record.SAMPLED)

    def get_span_context(self) -> trace.SpanContext:
        """Return the span's identity; an invalid one when nothing is traced."""
        if not self._span:
            return trace.INVALID_SPAN_CONTEXT
        flags = trace.TraceFlags(self._flags & _record.SAMPLED)
        return trace.SpanContext(int.from_bytes(self._trace, "big"), int.from_bytes(self._span, "big"), False, flags)

    def is_recording(self) -> bool:
        """Whether the span takes attributes now."""
        return self.recording

    @guarded
    def set_attribute(self, key: str, value: object) -> None:
        """Set an attribute under its own name; our words go through `record`."""
        self.set_attributes({key: value})

    @guarded
    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes under their own names."""
        if self.recording:
            for key, value in _plain(attributes).items():
                if self._has_room(key):
                    self._attributes[key] = value

    @guarded
    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        """Add something that happened at one moment, in nanoseconds since the epoch; by default now."""
        if self.recording:
            event = _record.Event(_values.text(str(name)), _moment(timestamp), _plain(attributes))
            self.extra.events.append(event)

    @guarded
    def add_link(self, context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Add a reference to a span of any trace."""
        if self.recording and context.is_valid:
            ids = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
            self.extra.links.append(_record.Link(*ids, _plain(attributes)))

    def link(self, links: Iterable[_record.Link]) -> None:
        """Add references of our own making."""
        self.extra.links.extend(links)

    def update_name(self, name: str) -> None:
        """Do nothing: names are constants here."""

    @guarded
    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        """Set the status that the span ends with."""
        if self.recording:
            code, text = (status, description) if isinstance(status, trace.StatusCode) else _parts(status)
            extra = self.extra
            extra.status, extra.message = code.value, _values.text(str(text or ""))

    @guarded
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

    def _fail(self, error: BaseException) -> None:
        # What is no Exception was asked for: a cancellation, Ctrl-C, a generator left early, sys.exit.
        if planned(error):
            self._attributes[semconv.ABORTED] = type(error).__qualname__
            return
        kind, message, extra = type(error).__qualname__, message_of(error), self.extra
        extra.status = _record.ERROR
        extra.message = f"{kind}: {message}" if message else kind
        self._attributes[semconv.ERROR_TYPE] = kind
        what = {semconv.EXCEPTION_TYPE: kind, semconv.EXCEPTION_MESSAGE: message}
        extra.events.append(_record.Event(semconv.EXCEPTION, self.finished, what))


trace.Span.register(OtelSpan)


def message_of(error: BaseException) -> str:
    """Return what an exception says, as an attribute."""
    return _values.text(words_of(error))


def planned(error: BaseException) -> bool:
    """Whether `error` is somebody's decision to stop, not a failure."""
    return not isinstance(error, Exception) or type(error).__name__ == "CancelledError"


def _moment(timestamp: Any) -> int:
    """Return nanoseconds since the epoch; now for what is no moment near this one."""
    if timestamp is None:
        return now()
    try:
        moment = _values.argument(timestamp, int)
    except _values.Unfit:
        moment = None
    if moment is not None and _EARLIEST <= moment <= now() + _HOUR:
        return int(moment)
    say(
        "timestamp",
        "rl_otel: the timestamp of an event must be nanoseconds since the epoch (time.time_ns()), not %s; "
        "the event is recorded at the time of the call",
        _values.shown(timestamp),
    )
    return now()


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {}
    for key, value in (attributes or {}).items():
        try:
            found[_values.text(str(key))] = _values.plain(value)
        except _values.Unreadable:
            continue
        except Exception as error:  # the attributes beside it are none the worse
            swallow("an attribute", error)
    return {key: value for key, value in found.items() if value is not None}


def _parts(status: trace.Status) -> tuple[trace.StatusCode, str | None]:
    return status.status_code, status.description
