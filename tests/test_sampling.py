"""Which steps are sent, and ways out other than an endpoint: none at all, or an exporter of the SDK."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rl_otel
from rl_otel import Delivery
from rl_otel.testing import Traces
from tests import process
from tests.receiver import Receiver
from tests.shipping import arrived, held_back, ship

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan


def record_steps(count: int) -> dict[int, str]:
    """Record steps of two spans and one of another library, and return the traceparent that each handed out."""
    handed_out = {}
    for i in range(count):
        with rl_otel.step(i), rl_otel.train():
            with trace.get_tracer("lib").start_as_current_span("query"):
                pass
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            handed_out[i] = carrier["traceparent"]
    return handed_out


def sample(monkeypatch: pytest.MonkeyPatch, name: str, ratio: str = "") -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)


# --- Sampling ---------------------------------------------------------------------------------------------------------


def test_a_step_left_out_is_recorded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole steps are sent or kept, foreign spans with them; the journal has all, and flags on the way out tell."""
    sample(monkeypatch, "traceidratio", "0.5")
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_dir="runs", run_id="sampled")
        handed_out = record_steps(20)
        report = rl_otel.shutdown()
        sent = {span.proto.trace_id.hex() for span in receiver.spans}
        names = sorted(span.name for span in receiver.spans)

    assert 0 < len(sent) < 20
    assert report == Delivery(sent=3 * len(sent), kept=60 - 3 * len(sent))
    assert names == sorted(["query", "step", "train"] * len(sent))
    assert len(Traces(Path("runs/sampled")).spans) == 60
    flags = {parent.split("-")[1]: parent.split("-")[3] for parent in handed_out.values()}
    assert flags == {trace_id: "01" if trace_id in sent else "00" for trace_id in flags}


SAMPLED_STEPS = """
    import rl_otel
    rl_otel.configure(run_dir="runs")
    for i in range(20):
        with rl_otel.step(i) as step:
            print(step.get_span_context().trace_flags.sampled)
"""


def test_all_processes_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision follows from the run and the step's number, so every rank makes the same."""
    sample(monkeypatch, "parentbased_traceidratio", "0.5")
    ranks = [{"RL_OTEL_RUN_ID": "shared", "RANK": rank, "WORLD_SIZE": "2"} for rank in ("0", "1")]
    first, second = (process.run(SAMPLED_STEPS, env=rank).stdout.split() for rank in ranks)
    assert first == second
    assert set(first) == {"True", "False"}


def test_always_off_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither steps nor the spans of other libraries outside any leave the journal."""
    sample(monkeypatch, "always_off")
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_dir="runs")
        record_steps(2)
        with trace.get_tracer("lib").start_as_current_span("alone"):
            pass
        assert rl_otel.shutdown() == Delivery(kept=7)
        assert receiver.requests == []


def test_what_was_not_sampled_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rl-otel ship` leaves it where it is, unless somebody asks for what there is of the step."""
    sample(monkeypatch, "always_off")
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_dir="runs", run_id="r1")
        record_steps(3)
        assert rl_otel.shutdown() == Delivery(kept=9)
        for options, sent in (((), 0), (("--step", "1"), 0), (("--step", "1", "--all"), 3), (("--all",), 9)):
            assert ship(Path("runs/r1"), receiver, *options) == 0
            assert len(arrived(receiver)) == sent


def test_no_exporter_keeps_all_in_the_run_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_TRACES_EXPORTER=none turns an endpoint off; the journal is where one without an endpoint is."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_id="r1")
        record_steps(1)
        report = rl_otel.shutdown()
        assert receiver.requests == []
    assert report == Delivery(kept=3)
    assert report
    assert len(Traces(Path("rl-otel-runs/r1")).spans) == 3


# --- An exporter of the SDK -------------------------------------------------------------------------------------------


class Failing(SpanExporter):
    """Fails in one of two ways, and notes that it was shut down."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.stopped = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.error is not None:
            raise self.error
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.stopped += 1


@pytest.mark.parametrize(
    ("error", "said"), [(None, "refused 3 spans"), (OSError("disk on fire"), "raised OSError: disk on fire")]
)
def test_a_failing_exporter_is_counted_and_said(
    error: Exception | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What an exporter fails to take is dropped, in one line; the exporter is shut down in the end."""
    exporter = Failing(error)
    rl_otel.configure(exporter=exporter)
    with held_back():
        record_steps(1)
    assert rl_otel.shutdown() == Delivery(dropped=3)
    assert exporter.stopped == 1
    line, _ = (record.getMessage() for record in caplog.records)
    assert said in line


def test_an_exporter_gets_spans_of_the_sdk() -> None:
    """Any exporter sees ours as the SDK's own: identity, kind, status, events, links, resource, scope."""
    exporter = InMemorySpanExporter()
    rl_otel.configure("grpo", exporter=exporter, run_id="r1")
    with contextlib.suppress(ValueError), rl_otel.step(3), rl_otel.rollout(), rl_otel.trajectory("t"):
        with rl_otel.generate(model="m"):
            pass
        with rl_otel.env_step("swe"):
            raise ValueError("lost")
    assert rl_otel.flush() == Delivery(sent=5)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    step, rollout, env_step = spans["step"], spans["rollout"], spans["env.step"]
    assert step.parent is None
    assert rollout.parent is not None
    assert rollout.parent.span_id == step.context.span_id
    assert [link.context.span_id for link in rollout.links] == [spans["trajectory"].context.span_id]
    assert (env_step.status.status_code, env_step.status.description) == (trace.StatusCode.ERROR, "ValueError: lost")
    (event,) = env_step.events
    assert (event.name, dict(event.attributes or {})) == (
        "exception",
        {"exception.type": "ValueError", "exception.message": "lost"},
    )
    assert {name: (span.kind.name, span.resource.attributes["service.name"]) for name, span in spans.items()} == {
        "step": ("INTERNAL", "grpo"),
        "rollout": ("INTERNAL", "grpo"),
        "trajectory": ("INTERNAL", "grpo"),
        "generate": ("CLIENT", "grpo-generate"),
        "env.step": ("INTERNAL", "grpo-env"),
    }
    assert step.instrumentation_scope is not None
    assert (step.instrumentation_scope.name, step.instrumentation_scope.version) == ("rl_otel", rl_otel.__version__)
    assert step.start_time is not None
    assert step.end_time is not None
    assert step.start_time <= step.end_time


def test_the_console_exporter_prints_ours() -> None:
    """What the SDK's exporters do with a span, as writing it as JSON, works with ours."""
    out = io.StringIO()
    rl_otel.configure(exporter=ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n"))
    with rl_otel.step(4), rl_otel.train() as train:
        train.record({"sizes": [1, 2]}, tokens=7)
    assert rl_otel.shutdown() == Delivery(sent=2)
    train_span, step_span = (json.loads(line) for line in out.getvalue().splitlines())
    assert train_span["parent_id"] == step_span["context"]["span_id"]
    assert train_span["attributes"] == {
        "rl.step": 4,
        "rl.phase": "train",
        "rl.custom.sizes": [1, 2],
        "rl.train.tokens": 7,
    }


def test_what_an_exporter_calls_is_not_traced() -> None:
    """An exporter whose own requests are instrumented does not feed itself."""

    class Instrumented(InMemorySpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            from opentelemetry.context import get_value

            suppressed.append(get_value("suppress_instrumentation"))
            return super().export(spans)

    suppressed: list[Any] = []
    rl_otel.configure(exporter=Instrumented())
    record_steps(1)
    assert rl_otel.shutdown() == Delivery(sent=3)
    assert set(suppressed) == {True}
