"""`rl-otel ship FILE`: OTLP JSON, as `rl-otel export` writes it, on its way to a back end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_otel import _cli, semconv
from rl_otel._cli import ship as command
from tests.otlp import from_json
from tests.receiver import Answer, Receiver, dead_port, spans_of
from tests.shipping import arrived, ended, record, ship

#: What is said of options that mean a run folder.
IS_A_FILE = "run.json is a file: --trajectory, --slowest, --slowest-rank and --own-trace go with a run folder"


def exported(trajectories: int = 2, turns: int = 2) -> tuple[Path, Path]:
    """Record a run, and return its folder and a file with all of it."""
    run = record("runs", trajectories, turns)
    file = Path("run.json")
    assert _cli.main(["export", str(run), "--output", str(file)]) == 0
    return run, file


@pytest.mark.parametrize("text", ["", "{}", '{"resourceSpans": 3}', "[]", '{"resourceSpans": [{'])
def test_what_is_no_otlp_is_refused(receiver: Receiver, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line names the file, and nothing is sent."""
    Path("file.json").write_text(text)
    assert ship(Path("file.json"), receiver) == 2
    assert capsys.readouterr().err.startswith("rl-otel ship: file.json is no OTLP JSON as rl-otel export writes it: ")
    assert receiver.requests == []


def test_a_file_is_not_for_grpc(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the remedy."""
    _, file = exported()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert ship(file, receiver) == 2
    assert "give the endpoint for http" in capsys.readouterr().err


def test_a_dead_port_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What could not be sent is counted, and the exit code tells."""
    monkeypatch.setattr(command, "_TRIES", 1)
    _, file = exported()
    assert _cli.main(["ship", str(file), "--endpoint", f"http://127.0.0.1:{dead_port()}"]) == 1
    captured = capsys.readouterr()
    assert captured.out.endswith(", 24 not\n")
    assert "Connection refused" in captured.err


def test_what_is_refused_in_part_is_counted(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """Spans that the back end rejects are not sent."""
    _, file = exported()
    receiver.script(Answer(rejected=3))
    assert ship(file, receiver) == 1
    assert capsys.readouterr().out == f"21 spans sent to {receiver.http}/v1/traces, 3 not\n"


def test_a_file_arrives_as_it_is(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """Every span, under its resource and scope, as the file has it."""
    run, file = exported()
    assert ship(file, receiver) == 0
    assert set(arrived(receiver)) == ended(run)
    message = from_json(file.read_text())
    there = {
        span.span_id: (span, resource.resource, scope.scope)
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    for request in receiver.requests:
        assert request.protocol == "http/json"
        for resource in request.message.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    assert there[span.span_id] == (span, resource.resource, scope.scope)
    assert capsys.readouterr().out == f"24 spans sent to {receiver.http}/v1/traces\n"


def test_a_step_of_a_file(receiver: Receiver) -> None:
    """`--step` sends the trace of that step alone, with what in it does not name the step."""
    _, file = exported()
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "x", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    named = span | {"spanId": "3" * 16, "attributes": [{"key": "rl.step", "value": {"intValue": 1}}]}
    traces = json.loads(file.read_text())
    traces["resourceSpans"].append({"scopeSpans": [{"spans": [span, named, span | {"traceId": "4" * 32}]}]})
    file.write_text(json.dumps(traces))
    assert ship(file, receiver, "--step", "1") == 0
    assert len(arrived(receiver)) == 12 + 2
    ids = {span.proto.trace_id for span in receiver.spans if span.attributes.get(semconv.STEP_INDEX) == 1}
    assert {span.proto.trace_id for span in receiver.spans} == ids


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--step", "9"), "no step 9 in run.json"),
        (("--trajectory", "1/0"), IS_A_FILE),
        (("--slowest", "3"), IS_A_FILE),
    ],
)
def test_what_a_file_does_not_have_is_wrong_usage(
    receiver: Receiver, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    """No option is ignored: the line says what goes with a file, and nothing is sent."""
    _, file = exported()
    assert ship(file, receiver, *options) == 2
    assert capsys.readouterr().err == f"rl-otel ship: {said}\n"
    assert receiver.requests == []


def test_a_file_is_sent_each_time(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing notes what of a file was sent, and the help says so."""
    _, file = exported()
    assert (ship(file, receiver), ship(file, receiver)) == (0, 0)
    assert len(receiver.spans) == 2 * 24
    with pytest.raises(SystemExit):
        _cli.main(["ship", "--help"])
    assert "a file is sent anew each time" in capsys.readouterr().out


@pytest.mark.once
def test_a_large_file_goes_in_small_requests(receiver: Receiver) -> None:
    """No request is above 1 MiB, which every receiver takes."""
    _, file = exported(30, 20)
    assert file.stat().st_size > 1 << 20
    assert ship(file, receiver) == 0
    assert max(len(request.body) for request in receiver.requests) < 1 << 20
    assert len(spans_of(receiver.requests)) == 2 * (30 * 41 + 2)


def test_fields_that_nobody_knows_stay(receiver: Receiver) -> None:
    """What another exporter wrote into a span is passed on as well."""
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "x", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    scope = {"scope": {"name": "theirs", "version": "7"}, "schemaUrl": "https://s", "spans": [span | {"kind": 3}]}
    Path("file.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]}))
    assert ship(Path("file.json"), receiver) == 0
    (request,) = receiver.requests
    assert json.loads(request.body)["resourceSpans"][0]["scopeSpans"] == [scope]
