"""`rl-otel report --also`: what inference servers recorded, from a file that a collector wrote."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rl_otel import semconv
from tests.journal_maker import Maker, span_of, trace_of
from tests.reporting import reported

RUN = Path("runs/r")
FILE = Path("traces.jsonl")


def generating(steps: int = 1) -> None:
    """Write steps of two trajectories with two generate calls each, of 2 s and 4 s, and an evaluation with one."""
    maker = Maker(RUN)
    for index in range(steps):
        at = index * 20
        maker.begin_step(index, at)
        root, rollout = f"step {index}", f"rollout {index}"
        maker.start("rollout", at, rollout, root)
        for sample in range(2):
            id_ = f"{index}/{sample}"
            maker.start("trajectory", at, id_, rollout, **{semconv.TRAJECTORY_ID: id_})
            maker.end("generate", at, at + 2, f"{id_} a", id_, **{semconv.TURN: 0})
            maker.end("generate", at + 2, at + 6 + sample, f"{id_} b", id_, **{semconv.TURN: 1})
            maker.trajectory(id_, at, at + 6 + sample, rollout)
        maker.end("rollout", at, at + 8, rollout, root)
        maker.start("eval", at + 8, f"eval {index}", root)
        maker.end("generate", at + 8, at + 9, f"e {index}", f"eval {index}")
        maker.end("eval", at + 8, at + 10, f"eval {index}", root)
        maker.end("step", at, at + 10, root)


def request(
    span: str, parent: str, trace: str = "step 0", name: str = "llm_request", **latency: float
) -> dict[str, Any]:
    """Return a span as a collector writes it."""
    attributes = [{"key": f"gen_ai.latency.{key}", "value": {"doubleValue": value}} for key, value in latency.items()]
    return {
        "traceId": trace_of(trace).hex(),
        "spanId": span_of(span).hex(),
        "parentSpanId": span_of(parent).hex(),
        "name": name,
        "kind": 2,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000001000000000",
        "attributes": [{"key": "gen_ai.request.model", "value": {"stringValue": "m"}}, *attributes],
        "status": {},
    }


def line(*spans: dict[str, Any], scope: str = "vllm") -> str:
    """Return the spans of one export."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]}
    return json.dumps(
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": scope}, "spans": spans}]}]}
    )


def vllm(queue: float, prefill: float, decode: float) -> dict[str, float]:
    return {
        "time_in_queue": queue,
        "time_in_model_prefill": prefill,
        "time_in_model_decode": decode,
        "time_to_first_token": queue + prefill,
    }


def test_what_cannot_be_used_is_passed_over_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Torn lines, metrics, logs, other traces and our own spans cost nothing but a line; the rest is shown."""
    generating()
    known = line(request("r", "0/0 a", **vllm(0.5, 0.25, 1)))
    others = line(request("x", "y", trace="elsewhere", **vllm(9, 9, 9)))
    ours = line(request("r2", "0/0 b", **vllm(9, 9, 9)), scope="rl_otel")
    wrong = line(request("r3", "0/1 a", time_in_queue=-1, time_in_model_decode=float("1e300")))
    texts = [
        known,
        others,
        ours,
        wrong,
        "",
        known[:-9],
        "[1]",
        "null",
        '{"resourceMetrics": []}',
        '{"resourceLogs": []}',
    ]
    FILE.write_text("\n".join(texts))
    code, lines, error = reported(capsys, str(RUN), "--also", str(FILE), "--also", "nowhere.jsonl")
    assert code == 0
    shown = [line for line in lines if "inference" in line]
    assert shown == ["  inference servers, 1 request: median queue 0.5s, prefill 0.25s, decode 1.0s,"]
    assert error.splitlines() == [
        f"rl-otel report: {FILE}: passed over 3 lines that are torn or no OTLP JSON and 2 lines of metrics or logs",
        "rl-otel report: cannot read all of nowhere.jsonl: No such file or directory",
        "rl-otel report: 1 spans of other traces than those of this run's steps are left out",
    ]


def test_a_trace_of_the_file_alone_is_no_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Only journals have steps, whatever a span in the file is called."""
    generating()
    FILE.write_text(line(request("s", "", trace="other", name="step", **vllm(1, 1, 1)), scope="theirs"))
    without = reported(capsys, str(RUN))[1]
    assert reported(capsys, str(RUN), "--also", str(FILE))[1] == without


def test_a_file_that_ends_in_the_middle_is_read_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a compressed file that was cut off what can be read counts, and the line says that it is not all."""
    generating()
    many = "\n".join(line(request(f"r{number}", "0/0 a", **vllm(1, 1, 1))) for number in range(2000))
    FILE.write_bytes(gzip.compress(many.encode())[:-2000])
    _, lines, error = reported(capsys, str(RUN), "--also", str(FILE))
    assert any(line.startswith("  inference servers, ") for line in lines)
    assert f"cannot read all of {FILE}: " in error


@pytest.mark.parametrize("compressed", [False, True])
def test_the_medians_of_a_step_are_of_its_requests(compressed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Directly beneath a generate or beneath a server's own span, sent once or twice; evaluation is left out."""
    generating(steps=2)
    first = line(
        request("http", "0/0 a", name="POST /v1/completions"),
        request("r1", "http", **vllm(0.1, 0.2, 1)),
        request("r2", "0/0 b", **vllm(0.3, 0.4, 2)),
        request("r3", "0/1 a", time_in_model_prefill=0.6, time_in_model_decode=3.0, time_to_first_token=0.7),
        request("e", "e 0", **vllm(7, 7, 7)),
    )
    second = line(request("s1", "1/0 a", trace="step 1", **vllm(0.5, 0.25, 1)))
    text = f"{first}\n{second}\n{first}".encode()
    FILE.write_bytes(gzip.compress(text) if compressed else text)
    code, lines, error = reported(capsys, str(RUN), "--also", str(FILE))
    assert (code, error) == (0, "")
    text = " ".join(line.strip() for line in lines)
    assert "inference servers, 3 requests: median queue 0.1s, prefill 0.4s, decode 2.0s, first token 0.7s" in text
    assert "inference servers, 1 request: median queue 0.5s, prefill 0.25s, decode 1.0s, first token 0.75s" in text


def test_the_slowest_trajectories_show_where_generate_time_went(capsys: pytest.CaptureFixture[str]) -> None:
    """Queue, prefill and decode of its calls, and what is outside the server where all calls are known."""
    generating()
    requests = [
        request("r1", "0/1 a", **vllm(0.5, 0.25, 1)),
        request("r2", "0/1 b", **vllm(1.5, 0.25, 3)),
        request("r3", "0/0 a", time_in_model_prefill=0.5, time_in_model_decode=1.0),
    ]
    FILE.write_text(line(*requests))
    lines = reported(capsys, str(RUN), "--step", "0", "--also", str(FILE))[1]
    slowest = [line for line in lines if line.startswith("      in the server")]
    assert slowest == [
        "      in the server: queue 2.0s, prefill 0.5s, decode 4.0s, outside it 0.5s",
        "      in the server (1 of 2 calls): prefill 0.5s, decode 1.0s",
    ]
