"""Spans of other libraries inside ours and around ours, and contexts that others attach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider

import rl_otel
from rl_otel.testing import capture
from tests import process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_otel.testing import Traces


@pytest.fixture
def tracer(traces: Traces) -> trace.Tracer:
    """What another library records with: it asks the global provider."""
    return trace.get_tracer("library", "1.0")


@pytest.fixture(autouse=True)
def _nothing_attached() -> Iterator[None]:
    token = context.attach(context.Context())
    yield
    context.detach(token)


def linked(span: Any) -> list[tuple[str, str]]:
    return [(link.trace.hex(), link.span.hex()) for link in span.links]


def test_their_span_inside_ours_is_a_child(traces: Traces, tracer: trace.Tracer) -> None:
    """A library's span is a child of ours, and ours inside it are its children: one trace, both ways."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory("t"), tracer.start_as_current_span("http") as http:
        http.set_attribute("port", 80)
        with rl_otel.generate(), tracer.start_as_current_span("socket"):
            pass
    assert traces.tree() == "step\n  rollout\n    trajectory\n      http\n        generate\n          socket"
    assert len({span.trace_id for span in traces.spans}) == 1
    assert traces.one("http").foreign
    assert traces.one("http").attributes == {"port": 80}
    assert traces.one("generate").attributes["rl.turn"] == 1


def test_a_span_of_theirs_around_a_step_becomes_a_link(traces: Traces, tracer: trace.Tracer) -> None:
    """A step is the root of its trace wherever it is opened, and links to what was current."""
    with tracer.start_as_current_span("job") as job, rl_otel.step(0):
        pass
    step, ids = traces.one("step"), job.get_span_context()
    assert step.parent_id == ""
    assert step.trace_id != traces.one("job").trace_id
    assert linked(step) == [(f"{ids.trace_id:032x}", f"{ids.span_id:016x}")]


@pytest.mark.parametrize("opener", [rl_otel.trajectory, rl_otel.eval, rl_otel.weight_sync, rl_otel.generate])
def test_a_span_of_theirs_around_another_root_becomes_a_link_too(
    traces: Traces, tracer: trace.Tracer, opener: Any
) -> None:
    """Outside a step, whatever begins a trace of its own links to the span around it."""
    with tracer.start_as_current_span("job"), opener():
        pass
    root, job = next(span for span in traces.spans if not span.foreign), traces.one("job")
    assert root.parent_id == ""
    assert linked(root) == [(job.trace_id, job.span_id)]


def test_a_remote_parent_becomes_a_link(traces: Traces) -> None:
    """What another process sent as its span is current like any other."""
    remote = trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(0))
    with trace.use_span(trace.NonRecordingSpan(remote)), rl_otel.step(0), rl_otel.train():
        pass
    assert linked(traces.one("step")) == [(f"{0xABC:032x}", f"{0xDEF:016x}")]
    assert linked(traces.one("train")) == []


def test_an_invalid_span_of_theirs_is_nothing(traces: Traces) -> None:
    """A span without ids, as a library that records nothing leaves it, neither links nor parents."""
    with rl_otel.step(0), trace.use_span(trace.INVALID_SPAN), rl_otel.train():
        pass
    assert traces.tree() == "step\n  train"
    assert linked(traces.one("train")) == []


def test_a_span_of_another_trace_between_ours_becomes_a_link(traces: Traces, tracer: trace.Tracer) -> None:
    """A library that begins a trace of its own inside ours does not take our children away."""
    with rl_otel.step(0), tracer.start_as_current_span("elsewhere", context=context.Context()), rl_otel.train():
        pass
    assert traces.one("train").parent_id == traces.one("step").span_id
    assert linked(traces.one("train")) == [(traces.one("elsewhere").trace_id, traces.one("elsewhere").span_id)]


def test_a_step_inside_a_step_links_to_what_is_between(traces: Traces, tracer: trace.Tracer) -> None:
    """Even out of place a step begins its own trace."""
    with rl_otel.step(0), tracer.start_as_current_span("job"), rl_otel.step(1):
        pass
    inner = traces.all("step")[1]
    assert (inner.parent_id, linked(inner)) == ("", [(traces.one("job").trace_id, traces.one("job").span_id)])


def test_a_detached_trajectory_is_no_child_of_theirs(traces: Traces, tracer: trace.Tracer) -> None:
    """`detached=True` begins a trace and links to the span of theirs that was current."""
    with (
        rl_otel.step(0),
        rl_otel.rollout(),
        tracer.start_as_current_span("job"),
        rl_otel.trajectory("t", detached=True),
    ):
        pass
    trajectory = traces.one("trajectory")
    assert trajectory.parent_id == ""
    assert linked(trajectory) == [(traces.one("job").trace_id, traces.one("job").span_id)]


def test_ours_is_what_the_api_calls_current(traces: Traces) -> None:
    """`opentelemetry.trace.get_current_span` gives our handle, which takes attributes, events, status and links."""
    with rl_otel.step(0) as step:
        span = trace.get_current_span()
        assert span is step  # type: ignore[comparison-overlap]
        assert isinstance(step, trace.Span)
        assert f"{span.get_span_context().span_id:016x}" == step.span_id
        assert span.is_recording()
        span.set_attribute("theirs", 1)
        span.add_event("began", {"n": 2})
        span.set_status(trace.StatusCode.ERROR, "bad")
        span.add_link(trace.SpanContext(1, 2, is_remote=False))
        span.record_exception(ValueError("no"))
        span.update_name("other")
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert not span.is_recording()
    recorded = traces.one("step")
    assert (recorded.status, recorded.message, recorded.attributes["theirs"]) == ("error", "bad", 1)
    assert [(event.name, event.attributes) for event in recorded.events] == [
        ("began", {"n": 2}),
        ("exception", {"exception.type": "ValueError", "exception.message": "no"}),
    ]
    assert linked(recorded) == [(f"{1:032x}", f"{2:016x}")]


def test_what_others_attach_stays_theirs(traces: Traces) -> None:
    """Baggage attached outside and inside our spans is seen inside, and is gone when its owner detaches it."""
    outer = context.attach(baggage.set_baggage("run", "a"))
    with rl_otel.step(0):
        assert baggage.get_baggage("run") == "a"
        inner = context.attach(baggage.set_baggage("step", "b"))
        with rl_otel.train():
            assert (baggage.get_baggage("run"), baggage.get_baggage("step")) == ("a", "b")
        assert baggage.get_baggage("step") == "b"
        context.detach(inner)
        assert baggage.get_baggage("step") is None
    context.detach(outer)
    assert context.get_current() == context.Context()
    assert traces.tree() == "step\n  train"


def test_a_call_is_recorded_alike_where_others_attach(traces: Traces) -> None:
    """With something of theirs between a call and its trajectory it is the same record, and counts the same."""

    def play() -> None:
        with rl_otel.generate(model="m") as generate:
            generate.record(input_tokens=3, output_tokens=[1, 2], finish_reason="stop")
        with rl_otel.env_step("swe", tool="bash") as env_step:
            env_step.record(reward=0.5, terminated=True)

    with rl_otel.step(0), rl_otel.eval():
        with rl_otel.trajectory("alone"):
            play()
        with rl_otel.trajectory("between"):
            token = context.attach(baggage.set_baggage("run", "a"))
            play()
            context.detach(token)
    alone, between = traces.all("trajectory")
    for ours, theirs in zip(alone.children, between.children, strict=True):
        assert (ours.name, ours.attributes, ours.links) == (theirs.name, theirs.attributes, theirs.links)
        assert (ours.trace_id, ours.status, ours.events) == (theirs.trace_id, theirs.status, theirs.events)
    told = [{key for key in each.attributes if not key.endswith(".other.duration")} for each in (alone, between)]
    assert told[0] == told[1] >= {"rl.trajectory.generate.duration", "rl.trajectory.env.duration"}
    counts = "rl.trajectory.turns", "rl.trajectory.input_tokens", "rl.trajectory.output_tokens", "rl.trajectory.outcome"
    assert (
        [alone.attributes[key] for key in counts]
        == [between.attributes[key] for key in counts]
        == [1, 3, 3, "completed"]
    )


OTHER_CONTEXT = """
    from opentelemetry import context, trace
    from opentelemetry.context.context import _RuntimeContext

    class Plain(_RuntimeContext):
        def __init__(self):
            self.now = context.Context()
        def attach(self, context):
            before, self.now = self.now, context
            return before
        def get_current(self):
            return self.now
        def detach(self, token):
            self.now = token

    context._RUNTIME_CONTEXT = Plain()

    import rl_otel
    from rl_otel.testing import capture

    with capture() as traces:
        with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory("t"), rl_otel.generate() as generate:
            print(trace.get_current_span() is generate)
        print(trace.get_current_span() is trace.INVALID_SPAN, traces.tree().split())
"""


def test_another_kind_of_context_is_told_as_well() -> None:
    """Where somebody has plugged in a context of their own for OpenTelemetry, our spans are current there."""
    done = process.run(OTHER_CONTEXT)
    assert (done.stdout, done.stderr) == ("True\nTrue ['step', 'rollout', 'trajectory', 'generate']\n", "")


def test_what_others_never_detach_does_not_keep_our_span_current(traces: Traces, tracer: trace.Tracer) -> None:
    """Baggage attached inside a span and forgotten there stays, the span does not: later spans are not its children."""
    with rl_otel.step(0):
        context.attach(baggage.set_baggage("forgotten", "yes"))
    assert baggage.get_baggage("forgotten") == "yes"
    assert not trace.get_current_span().get_span_context().is_valid
    with tracer.start_as_current_span("http"):
        pass
    assert traces.one("http").parent_id == ""


def test_their_spans_may_end_after_ours(traces: Traces, tracer: trace.Tracer) -> None:
    """A span of theirs that outlives ours around it is recorded in that trace, and ours after it are not."""
    step = rl_otel.step(0).start()
    http = tracer.start_as_current_span("http")
    http.__enter__()
    step.end()
    http.__exit__(None, None, None)
    with rl_otel.step(1), rl_otel.train():
        pass
    assert traces.tree() == "step\n  http\nstep\n  train"
    assert linked(traces.all("step")[1]) == []


def test_a_provider_that_was_there_first_stays(caplog: pytest.LogCaptureFixture) -> None:
    """It records its spans as before, they are children of ours in our journal, and one line says where ours go."""
    provider = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    with capture() as traces:
        assert trace.get_tracer_provider() is provider
        with rl_otel.step(0), trace.get_tracer("theirs").start_as_current_span("http"):
            pass
        assert traces.tree() == "step\n  http"
    lines = [record.getMessage() for record in caplog.records if record.name == "rl_otel"]
    assert len(lines) == 1
    assert lines[0].startswith("rl_otel: a TracerProvider is set already and stays")
