"""Beside other users of OpenTelemetry: whose spans go where, and who is whose child."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

import rl_otel
from rl_otel import Delivery, _record
from rl_otel.testing import Traces, capture

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = Path("runs/r1")


@pytest.fixture
def theirs() -> InMemorySpanExporter:
    """What the owner of another provider gets."""
    return InMemorySpanExporter()


@pytest.fixture
def present(theirs: InMemorySpanExporter) -> Iterator[TracerProvider]:
    """A global provider that is there before us."""
    provider = a_provider(theirs)
    trace.set_tracer_provider(provider)
    yield provider
    provider.shutdown()


def a_provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def names(exporter: InMemorySpanExporter) -> list[str]:
    return [span.name for span in exporter.get_finished_spans()]


def a_step_with_a_query() -> None:
    with rl_otel.step(0), rl_otel.train(), trace.get_tracer("lib").start_as_current_span("query"):
        pass


# --- A provider that is there before us -------------------------------------------------------------------------------


def test_a_present_provider_stays_and_is_said(
    present: TracerProvider, theirs: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """Each exporter gets what its owner expects, nothing is sent twice, and one line says where spans go."""
    ours = InMemorySpanExporter()
    rl_otel.configure(exporter=ours, run_dir="runs", run_id="r1")
    a_step_with_a_query()
    assert rl_otel.shutdown() == Delivery(sent=2)

    assert trace.get_tracer_provider() is present
    assert names(theirs) == ["query"]
    assert sorted(names(ours)) == ["step", "train"]
    assert [record.getMessage() for record in caplog.records] == [
        "rl_otel: a TracerProvider is set already and stays; spans of other libraries leave by it, those of rl_otel "
        "by their own way"
    ]


@pytest.mark.usefixtures("present")
def test_spans_of_a_present_provider_are_in_the_journal() -> None:
    """The journal has them as well, as children of ours and marked as sent by somebody else."""
    rl_otel.configure(run_dir="runs", run_id="r1")
    a_step_with_a_query()
    assert rl_otel.shutdown() == Delivery(kept=2)
    traces = Traces(RUN)
    assert traces.tree() == "step\n  train\n    query"
    (foreign,) = (record for record in traces.records if isinstance(record, _record.Foreign))
    assert foreign.flags == _record.SAMPLED | _record.LOCAL


@pytest.mark.usefixtures("present")
def test_a_present_provider_is_joined_once(theirs: InMemorySpanExporter) -> None:
    """Stopped and begun again, the journal gets each span of the provider once."""
    for run in ("first", "second"):
        rl_otel.configure(run_dir="runs", run_id=run)
        a_step_with_a_query()
        rl_otel.shutdown()
    assert [Traces(Path("runs") / run).tree() for run in ("first", "second")] == ["step\n  train\n    query"] * 2
    assert names(theirs) == ["query", "query"]


@pytest.mark.usefixtures("present")
def test_a_step_inside_a_foreign_span_links_to_it() -> None:
    """A step is the root of its trace wherever it is opened; the span around it is a link."""
    with capture() as traces:
        with trace.get_tracer("app").start_as_current_span("main") as outer, rl_otel.step(0):
            pass
        step = traces.one("step")
    assert step.parent_id == ""
    context = outer.get_span_context()
    (link,) = step.links
    assert (link.trace.hex(), link.span.hex()) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")


# --- A provider beside ours -------------------------------------------------------------------------------------------


def test_a_provider_of_its_own_still_nests_in_ours(theirs: InMemorySpanExporter) -> None:
    """A library that keeps a provider to itself after us exports alone, its spans are children of ours."""
    ours = InMemorySpanExporter()
    rl_otel.configure(exporter=ours)
    private = a_provider(theirs)
    with rl_otel.step(0) as step, private.get_tracer("lib").start_as_current_span("private"):
        pass
    assert rl_otel.shutdown() == Delivery(sent=1)
    (span,) = theirs.get_finished_spans()
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (step.trace_id, step.span_id)
    assert names(ours) == ["step"]
    private.shutdown()


def test_configured_twice_the_first_settings_stay(caplog: pytest.LogCaptureFixture) -> None:
    """The same settings again are silent; others get one line and change nothing."""
    rl_otel.configure("grpo", run_dir="runs", run_id="r1")
    rl_otel.configure("grpo", run_dir="runs", run_id="r1")
    assert caplog.records == []
    rl_otel.configure("ppo", run_dir="elsewhere", run_id="r2")
    a_step_with_a_query()
    rl_otel.shutdown()
    (record,) = caplog.records
    assert record.getMessage() == "rl_otel: configure() was called before; the first call's settings stay"
    assert [len(Traces(RUN).spans), Path("elsewhere").exists()] == [3, False]


# --- Ours -------------------------------------------------------------------------------------------------------------


def test_other_libraries_get_a_provider_from_us() -> None:
    """Where nobody has set a provider ours is global: its spans leave by our way, in our traces."""
    ours = InMemorySpanExporter()
    rl_otel.configure("grpo", exporter=ours)
    a_step_with_a_query()
    assert rl_otel.shutdown() == Delivery(sent=3)
    spans = {span.name: span for span in ours.get_finished_spans()}
    assert spans["query"].parent is not None
    assert spans["query"].parent.span_id == spans["train"].context.span_id
    assert spans["query"].resource.attributes["service.name"] == "grpo"
    assert spans["query"].instrumentation_scope is not None
    assert spans["query"].instrumentation_scope.name == "lib"


def test_a_foreign_span_is_recorded_whole() -> None:
    """Kind, links, events, status, scope and the types of attributes are in the journal."""
    linked = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1))
    with capture() as traces:
        tracer = trace.get_tracer("lib", "1.2")
        with rl_otel.step(0) as step:
            links = [Link(linked, {"why": "cause"})]
            with tracer.start_as_current_span("query", kind=SpanKind.PRODUCER, links=links) as span:
                span.set_attributes({"rows": 3, "share": 0.5, "ok": True, "names": ["a", "b"]})
                span.add_event("retry", {"n": 1}, timestamp=5)
                span.set_status(Status(StatusCode.ERROR, "no rows"))
        (record,) = (record for record in traces.records if isinstance(record, _record.Foreign))
    assert (record.trace.hex(), record.parent.hex(), record.name) == (step.trace_id, step.span_id, "query")
    assert record.attributes == {"rows": 3, "share": 0.5, "ok": True, "names": ["a", "b"]}
    assert [type(record.attributes[key]) for key in ("rows", "share", "ok")] == [int, float, bool]
    assert record.links == [_record.Link((7).to_bytes(16, "big"), (8).to_bytes(8, "big"), {"why": "cause"})]
    assert record.events == [_record.Event("retry", 5, {"n": 1})]
    assert (record.status, record.message, record.kind) == (_record.ERROR, "no rows", 4)
    assert (record.scope, record.scope_version, record.flags) == ("lib", "1.2", _record.SAMPLED)
    assert 0 < record.start <= record.end


def test_context_nests_both_ways() -> None:
    """Ours inside theirs inside ours is one trace of four generations."""
    with capture() as traces:
        tracer = trace.get_tracer("lib")
        theirs = tracer.start_as_current_span
        with rl_otel.step(0), rl_otel.rollout(), theirs("batch"), rl_otel.trajectory("t"), theirs("http"):
            pass
        assert traces.tree() == "step\n  rollout\n    batch\n      trajectory\n        http"


def test_ids_of_our_provider_do_not_come_from_random() -> None:
    """Seeded alike before each span, other libraries' spans still get ids of their own, and draw no number."""
    ids: list[Any] = []
    with capture():
        for _ in range(5):
            random.seed(42)
            with trace.get_tracer("lib").start_as_current_span("query") as span:
                ids.append(span.get_span_context())
            assert random.random() == pytest.approx(0.6394267984578837)
    assert len({context.trace_id for context in ids}) == len({context.span_id for context in ids}) == 5


def test_after_shutdown_spans_of_others_cost_nothing() -> None:
    """Our provider stays the global one, but records no more."""
    rl_otel.configure(run_dir="runs", run_id="r1")
    a_step_with_a_query()
    rl_otel.shutdown()
    with trace.get_tracer("lib").start_as_current_span("query") as span:
        assert not span.is_recording()
    assert len(Traces(RUN).spans) == 3


# --- What the environment says to OpenTelemetry's SDK -----------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_SPAN_EVENT_COUNT_LIMIT",
        "OTEL_SPAN_LINK_COUNT_LIMIT",
        "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    ],
)
@pytest.mark.parametrize("value", ["many", "-1"])
def test_a_limit_of_the_sdk_that_is_no_number(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line names the variable, and spans of ours and of other libraries are recorded all the same."""
    monkeypatch.setenv(name, value)
    rl_otel.configure(run_dir="runs", run_id="r1")
    a_step_with_a_query()
    assert Traces(RUN).tree() == "step\n  train\n    query"
    (record,) = caplog.records
    assert record.getMessage() == (
        f"rl_otel: {name}={value}: not a count; other libraries' spans get OpenTelemetry's default limits"
    )


def test_a_limit_of_the_sdk_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is a number holds for the spans of other libraries."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")
    rl_otel.configure(run_dir="runs", run_id="r1")
    with trace.get_tracer("lib").start_as_current_span("query", attributes={"a": 1, "b": 2, "c": 3}):
        pass
    assert Traces(RUN).one("query").attributes == {"b": 2, "c": 3}
