"""`rl-otel export`: what the official protobuf classes read in the file."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl_otel import _record, semconv
from rl_otel._cli import main
from rl_otel._terminal import command
from tests import otlp
from tests.journal_maker import BEGAN, Maker, S, one_step, span_of, trace_of
from tests.reporting import exported
from tests.test_report_processes import alone, consuming, process

RUN = Path("runs/r")
FILE = Path("step.json")


def one(spans: list[otlp.ReceivedSpan], name: str) -> otlp.ReceivedSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


# --- unhappy paths ---


def test_a_run_in_which_nothing_ended_writes_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a complete span there is no file, and a sentence says so."""
    Maker(RUN).begin_step(0, 0)
    assert main(["export", str(RUN), "--output", str(FILE)]) == 1
    assert not FILE.exists()
    assert capsys.readouterr().err == (
        "rl-otel export: no span has ended in runs/r, so there is nothing to export. What the run holds: "
        f"{command('report', RUN)}\n"
    )


def test_an_unknown_step_writes_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A step that the run does not have ends with 1 and leads to the report."""
    one_step(Maker(RUN), 0)
    assert main(["export", str(RUN), "--step", "9", "--output", str(FILE)]) == 1
    assert not FILE.exists()
    assert "no span of step 9 has ended in runs/r" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The path that failed is named."""
    one_step(Maker(RUN), 0)
    assert main(["export", str(RUN), "--output", "missing/step.json"]) == 2
    assert capsys.readouterr().err == "rl-otel export: cannot write missing/step.json: No such file or directory\n"


def test_only_whole_records_are_exported() -> None:
    """A torn tail and a span that has only begun are not in the file."""
    maker = Maker(RUN)
    one_step(maker, 0)
    maker.begin_step(1, 20)
    maker.end("train", 20, 21, "train", "step 1")
    maker.path.write_bytes(maker.path.read_bytes()[:-1])
    assert Counter(span.name for span in exported(RUN)) == {"step": 1, "rollout": 1, "trajectory": 2, "train": 2}


# --- what is written ---


def test_a_step_comes_out_with_its_exact_values() -> None:
    """Ids, times, parents, attributes and their types are those of the journal; the scope is ours."""
    one_step(Maker(RUN, **{semconv.SDK_NAME: "rl_otel", semconv.SDK_VERSION: "1.2"}), 3)
    spans = exported(RUN)
    step, train = one(spans, "step"), [span for span in spans if span.name == "train"]
    assert step.proto.trace_id == trace_of("step 3")
    assert (step.proto.span_id, step.proto.parent_span_id) == (span_of("step 3"), b"")
    assert (step.proto.start_time_unix_nano, step.proto.end_time_unix_nano) == (BEGAN, BEGAN + 10 * S)
    assert step.attributes == {"rl.step": 3, "rl.loss": 0.5}
    assert {span.proto.parent_span_id for span in train} == {span_of("step 3")}
    assert step.scope == ("rl_otel", "1.2")


def test_the_file_is_one_object_of_otlp_json() -> None:
    """One JSON object: ids in hex, integers of 64 bits as strings."""
    maker = Maker(RUN)
    maker.end("step", 0, 1, n=7)
    exported(RUN)
    (resource,) = json.loads(FILE.read_text())["resourceSpans"]
    (span,) = resource["scopeSpans"][0]["spans"]
    assert (span["traceId"], span["spanId"]) == (trace_of("trace").hex(), span_of("step").hex())
    assert span["startTimeUnixNano"] == str(BEGAN)
    assert span["attributes"] == [{"key": "n", "value": {"intValue": "7"}}]


def test_all_processes_of_a_run_are_in_it() -> None:
    """Each process's spans stand under its own resource."""
    Maker(RUN, "a-1-a", **{semconv.PROCESS_PID: 1}).end("step", 0, 1)
    Maker(RUN, "b-2-b", **{semconv.PROCESS_PID: 2}).end("train", 0, 1)
    assert {(span.name, span.resource["process.pid"]) for span in exported(RUN)} == {("step", 1), ("train", 2)}


def test_model_and_environment_time_have_services_of_their_own() -> None:
    """Three service names a run, so that Jaeger tells their colours apart."""
    maker = Maker(RUN)
    for name in ("step", "generate", "env.step", "env.reset"):
        maker.end(name, 0, 1)
    assert {span.name: span.resource["service.name"] for span in exported(RUN)} == {
        "step": "grpo",
        "generate": "grpo-generate",
        "env.step": "grpo-env",
        "env.reset": "grpo-env",
    }


def test_late_attributes_are_merged_into_their_span() -> None:
    """A value that followed is on its span; one that never came leaves the span as it was."""
    maker = Maker(RUN)
    for name in ("step", "train", "eval"):
        maker.end(name, 0, 1, flags=_record.SAMPLED | _record.AWAITED)
    maker.write(_record.Late(span_of("step"), {semconv.LOSS: 0.25}, last=False))
    maker.write(_record.Late(span_of("step"), {"rl.kl": 0.5}))
    maker.write(_record.Late(span_of("train"), {semconv.GPU_DURATION: 2.0}))
    maker.write(_record.Late(span_of("nowhere"), {"a": 1}))
    spans = exported(RUN)
    assert one(spans, "step").attributes == {"rl.loss": 0.25, "rl.kl": 0.5}
    assert one(spans, "train").attributes == {"rl.phase": "train", "rl.gpu.duration": 2.0}
    assert one(spans, "eval").attributes == {"rl.phase": "eval"}


def test_spans_of_others_are_in_it() -> None:
    """A foreign span keeps kind and scope, and one that another exporter sends is in the file all the same."""
    maker = Maker(RUN)
    maker.end("step", 0, 1, flags=_record.LOCAL)
    ids = trace_of("trace"), span_of("http"), span_of("step")
    maker.write(_record.Foreign(*ids, "GET", BEGAN, BEGAN + S, {}, kind=3, scope="requests", scope_version="2"))
    spans = exported(RUN)
    foreign = one(spans, "GET")
    assert (foreign.proto.kind, foreign.scope, foreign.resource["service.name"]) == (3, ("requests", "2"), "grpo")
    assert one(spans, "step").proto.flags & 1 == 0


def test_a_step_alone_is_its_whole_trace() -> None:
    """With --step only that step's trace is written: of all processes, also of a step that has not ended."""
    maker = Maker(RUN, "a-1-a")
    one_step(maker, 0)
    maker.begin_step(1, 20)
    maker.end("train", 20, 21, "train", "step 1")
    maker.write(_record.Foreign(trace_of("step 1"), span_of("f"), span_of("train"), "GET", BEGAN, BEGAN + S, {}))
    worker = Maker(RUN, "b-2-b")
    worker.step_index, worker.trace = 1, "step 1"
    worker.end("generate", 20, 21, "g", "rollout")
    assert sorted(span.name for span in exported(RUN, "--step", "1")) == ["GET", "generate", "train"]


def test_a_step_comes_with_what_it_trained_on() -> None:
    """With --step the traces that its train spans link to are written as well, whole, and of no other step."""
    consuming({0: ["a/0"], 1: ["b/0"], 2: []})
    generator = process("g", "generator", 2)
    for id_ in ("a/0", "b/0", "c/0"):
        alone(generator, id_, 5)
        generator.end("generate", 4, 5, f"{id_} 0", id_)
    traces = Counter((span.name, span.proto.trace_id) for span in exported(RUN, "--step", "1"))
    step, trajectory = trace_of("step 1"), trace_of("b/0")
    assert set(traces) == {("step", step), ("train", step), ("trajectory", trajectory), ("generate", trajectory)}
    assert {span.name for span in exported(RUN, "--step", "2")} == {"step", "train"}


def test_many_spans_are_written_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts it is written in, the file is one object with every span."""
    monkeypatch.setattr("rl_otel._cli.export._TOGETHER", 7)
    maker = Maker(RUN)
    for index in range(10):
        one_step(maker, index, index * 11)
    assert Counter(span.name for span in exported(RUN)) == {"step": 10, "rollout": 10, "trajectory": 20, "train": 20}


def test_the_file_is_private() -> None:
    """What may hold prompts can be read by its owner alone, as the journals."""
    one_step(Maker(RUN), 0)
    assert main(["export", str(RUN), "-o", str(FILE)]) == 0
    assert FILE.stat().st_mode & 0o777 == 0o600


def test_without_an_output_it_goes_to_standard_output(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rl-otel export RUN > step.json` writes the object and nothing else."""
    one_step(Maker(RUN), 0)
    with open(1, "wb", closefd=False) as stdout:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=stdout, flush=stdout.flush))
        assert main(["export", str(RUN)]) == 0
    out, error = capfdbinary.readouterr()
    assert len(otlp.from_json(out).resource_spans) == 1
    assert (out[-3:], error) == (b"]}\n", b"")
