"""OpenTelemetry's SDK beside us: other libraries' spans come to our journal, ours can leave by an SDK exporter.

Our own spans never pass through the SDK. `join` makes a provider whose spans are written to the journal, global where
there is none; a provider that exists is never replaced, but its spans are journalled too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any
from weakref import WeakSet

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from rl_otel import _ids, _record, _runtime, _values, semconv
from rl_otel._config import variable
from rl_otel._otlp import Span, groups
from rl_otel._safety import say, swallow
from rl_otel._send import untraced
from rl_otel._ship import Due, Ready, Verdict
from rl_otel._version import __version__

_KINDS = tuple(trace.SpanKind)
#: What `SpanLimits` reads from the environment, and raises for.
_LIMITS = (
    "OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
)  # fmt: skip
_joined: WeakSet[Any] = WeakSet()  # providers that write to our journal already


class OwnIds(IdGenerator):
    """Ids from the operating system's entropy, not from `random`."""

    def generate_span_id(self) -> int:
        """Return a span id."""
        return int.from_bytes(_ids.span_id(), "big")

    def generate_trace_id(self) -> int:
        """Return a trace id."""
        return int.from_bytes(_ids.trace_id(), "big")


class WholeTraces(Sampler):
    """Decides as the span around did, of a root by its trace id; what is not sent is recorded all the same."""

    def should_sample(  # noqa: PLR0917 - the SDK's signature
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: trace.SpanKind | None = None,
        attributes: Any = None,
        links: Sequence[trace.Link] | None = None,
        trace_state: trace.TraceState | None = None,
    ) -> SamplingResult:
        """Return whether a span that begins is sent."""
        runtime, parent = _runtime.active, trace.get_current_span(parent_context).get_span_context()
        if runtime is None:
            return SamplingResult(Decision.DROP)
        if parent.is_valid and parent.trace_id == trace_id:
            sampled, trace_state = parent.trace_flags.sampled, parent.trace_state
        else:
            sampled = runtime.samples(trace_id.to_bytes(16, "big"))
        return SamplingResult(
            Decision.RECORD_AND_SAMPLE if sampled else Decision.RECORD_ONLY, attributes, trace_state or None
        )

    def get_description(self) -> str:
        """Return its name."""
        return type(self).__name__


class JournalProcessor(SpanProcessor):
    """Writes each span that the SDK ends to the journal of the process.

    Args:
        local: whether another exporter sends them.
    """

    def __init__(self, *, local: bool) -> None:
        self._local = local

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that has ended."""
        runtime = _runtime.active  # looked up late: a forked child has its own
        if runtime is None:
            return
        try:
            if self._local:
                runtime.journal.append(foreign(span, _record.LOCAL))
            else:
                runtime.journal.end(foreign(span))
        except Exception as error:
            swallow("a span of another library", error)


def join(runtime: _runtime.Runtime) -> None:
    """Give other libraries a provider whose spans are children of ours and go where ours go."""
    present = trace.get_tracer_provider()
    if present in _joined:
        return
    if isinstance(present, trace.ProxyTracerProvider):
        provider = TracerProvider(
            sampler=WholeTraces(),
            resource=Resource(runtime.resource),
            id_generator=OwnIds(),
            shutdown_on_exit=False,
            span_limits=_limits(),
        )
        _joined.add(provider)
        provider.add_span_processor(JournalProcessor(local=False))
        trace.set_tracer_provider(provider)
    elif hasattr(present, "add_span_processor"):
        _joined.add(present)
        _join_present(present, runtime)


def _limits() -> SpanLimits:
    """Return the limits that the environment sets; the SDK's defaults where it sets one to what is no number."""
    try:
        return SpanLimits()
    except ValueError:
        given = ((name, variable(name)) for name in _LIMITS)
        wrong = ", ".join(f"{name}={value}" for name, value in given if value and not value.isdecimal())
        say("limits", "rl_otel: %s: not a count; other libraries' spans get OpenTelemetry's default limits", wrong)
        unlimited = SpanLimits.UNSET
        return SpanLimits(128, 128, 128, 128, 128, 128, unlimited, unlimited)


def _join_present(present: Any, runtime: _runtime.Runtime) -> None:
    present.add_span_processor(JournalProcessor(local=True))
    say(
        "joined",
        "rl_otel: a TracerProvider is set already and stays; spans of other libraries leave by it, those of rl_otel %s",
        "by their own way" if runtime.config.sends else "stay in the run folder",
    )


def foreign(span: ReadableSpan, flags: int = 0) -> _record.Foreign:
    """Return a span of the SDK as a record, with `flags` besides its own."""
    context, parent = span.context, span.parent
    scope = span.instrumentation_scope
    return _record.Foreign(
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        parent.span_id.to_bytes(8, "big") if parent is not None else b"",
        span.name,
        span.start_time or 0,
        span.end_time or 0,
        _bounded(span.attributes),
        flags | (_record.SAMPLED if context.trace_flags.sampled else 0),
        span.status.status_code.value,
        span.status.description or "",
        [_link(link) for link in span.links],
        [_record.Event(event.name, event.timestamp, _plain(event.attributes)) for event in span.events],
        _KINDS.index(span.kind) + 1,
        scope.name if scope is not None else "",
        (scope.version or "") if scope is not None else "",
    )


def _link(link: trace.Link) -> _record.Link:
    context = link.context
    return _record.Link(
        context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), _plain(link.attributes)
    )


def _bounded(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the first attributes of a span, and how many there are besides: the SDK's own bound can be lifted."""
    given = attributes or {}
    taken = _plain(dict(islice(given.items(), _values.MAX_NAMED)))
    more = len(given) - _values.MAX_NAMED
    return {**taken, semconv.ATTRIBUTES_DROPPED: more} if more > 0 else taken


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    plain = {key: _values.plain(value) for key, value in (attributes or {}).items()}
    return {key: value for key, value in plain.items() if value is not None}


class SdkOutlet:
    """Delivers by any `SpanExporter` of the SDK."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def writer(self, resource: _record.Attributes, *, one_service: bool) -> None:
        """Return nothing that writes spans: the exporter gets them as they are."""

    def deliver(self, due: Sequence[Due], resource: _record.Attributes, *, one_service: bool) -> Verdict:
        """Hand spans to the exporter; what it reports as failed is dropped, for it has its own retries."""
        spans = [each.span for each in due if isinstance(each, Ready)]
        try:
            with untraced():
                services = groups(spans, resource, one_service=one_service)
                result = self._exporter.export(_readables(services))
        except BaseException as error:  # a SystemExit would end our thread, and nobody would know
            say("exporter", "rl_otel: the exporter %s raised %s: %s", self._exporter, type(error).__name__, error)
            return Verdict(dropped=len(spans))
        if result is SpanExportResult.SUCCESS:
            return Verdict(sent=len(spans))
        say("exporter", "rl_otel: the exporter %s refused %d spans", self._exporter, len(spans))
        return Verdict(dropped=len(spans))

    def rest(self) -> None:
        """Leave the exporter as it is: what a fork does to it is its own business."""

    def close(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()


def _readables(services: list[tuple[_record.Attributes, list[Span]]]) -> list[ReadableSpan]:
    return [readable(span, Resource(resource)) for resource, members in services for span in members]


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return a record as a span of the SDK."""
    own = isinstance(span, _record.End)
    scope = (semconv.SCOPE, __version__) if isinstance(span, _record.End) else (span.scope, span.scope_version)
    kind = trace.SpanKind.INTERNAL if own else _KINDS[min(max(getattr(span, "kind", 1) - 1, 0), 4)]
    if own and span.name == semconv.GENERATE:
        kind = trace.SpanKind.CLIENT
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.span),
        parent=_context(span.trace, span.parent) if span.parent else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(event.name, event.attributes, event.time) for event in span.events],
        links=[trace.Link(_context(link.trace, link.span), link.attributes) for link in span.links],
        kind=kind,
        status=trace.Status(trace.StatusCode(span.status), span.message or None if span.status == 2 else None),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=InstrumentationScope(*scope),
    )


def _context(trace_id: bytes, span_id: bytes) -> trace.SpanContext:
    ids = int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big")
    return trace.SpanContext(*ids, is_remote=False, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))
