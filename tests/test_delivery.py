"""From the host's spans to a real receiver: what arrives, and what `flush` and `shutdown` say of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Proto

import rl_otel
from rl_otel import Delivery, _record, _runtime
from rl_otel._clock import now
from rl_otel._journal import journals
from rl_otel._ship import route
from rl_otel._terminal import command
from tests.receiver import Answer, Receiver, black_hole, dead_port
from tests.shipping import held_back
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from tests.otlp import ReceivedSpan

PROTOCOLS = ("http/protobuf", "http/json", "grpc")


pytestmark = pytest.mark.usefixtures("look_often")


def configure(receiver: Receiver, protocol: str = "http/protobuf", **settings: Any) -> None:
    endpoint = receiver.grpc if protocol == "grpc" else receiver.http
    rl_otel.configure(service_name="grpo", endpoint=endpoint, protocol=protocol, **settings)


def one_step() -> None:
    """Record six spans."""
    with rl_otel.step(7) as step:
        with rl_otel.rollout(), rl_otel.trajectory(group=17, sample=3):
            with rl_otel.generate(model="qwen3-8b") as generation:
                generation.record(input_tokens=100, output_tokens=20, finish_reason="stop")
            with rl_otel.env_step("swe") as env_step:
                env_step.record(reward=0.5, terminated=True)
        with rl_otel.train():
            pass
        step.record(loss=0.25, samples=1)


def trains(count: int) -> None:
    """Record so many spans."""
    for _ in range(count):
        with rl_otel.train():
            pass


def by_name(receiver: Receiver) -> dict[str, ReceivedSpan]:
    return {span.name: span for span in receiver.spans}


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


# --- When it does not arrive ------------------------------------------------------------------------------------------


def test_a_dead_port_leaves_spans_pending_and_says_where(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Nothing is lost: the spans are in a folder that is kept and named, one line says what was tried."""
    port = dead_port()
    rl_otel.configure(endpoint=f"http://127.0.0.1:{port}", run_id="r1")
    trains(3)
    until(lambda: messages(caplog))
    assert rl_otel.shutdown(timeout=0.1) == Delivery(pending=3, timed_out=True)
    folder = tmp_path / "scratch" / f"rl-otel-{os.geteuid()}" / "r1"
    assert messages(caplog) == [
        f"rl_otel: http/protobuf to http://127.0.0.1:{port}/v1/traces: Connection refused; is a collector running "
        "there, and are host, port and http or https right?",
        f"rl_otel: {folder.relative_to(Path.cwd())} has what was not sent: 3 spans pending, 0 kept back, 0 dropped; "
        f"to send it: {command('ship', folder.relative_to(Path.cwd()))}",
    ]
    assert len(journals(folder)) == 1


def test_flush_of_a_black_hole_is_over_in_its_time() -> None:
    """`flush` keeps to its timeout, says that it ran out, and leaves all to be sent later."""
    rl_otel.configure(endpoint=f"http://127.0.0.1:{black_hole()}")
    trains(2)
    began = time.monotonic()
    assert rl_otel.flush(timeout=0.2) == Delivery(pending=2, timed_out=True)
    assert time.monotonic() - began < 5.0  # half of what one attempt may take
    rl_otel.shutdown(timeout=0.1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_recorded_while_the_receiver_was_away_arrives(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """An outage costs a delay: all spans arrive once, one line says that it began and one that it is over."""
    http, grpc = dead_port(), dead_port()
    rl_otel.configure(endpoint=f"http://127.0.0.1:{grpc if protocol == 'grpc' else http}", protocol=protocol)
    trains(20)
    until(lambda: messages(caplog))
    assert rl_otel.flush(timeout=0.1) == Delivery(pending=20, timed_out=True)
    with Receiver(http_port=http, grpc_port=grpc) as receiver:
        assert receiver.grpc
        until(lambda: rl_otel.flush(timeout=0.2) == Delivery(sent=20))
        trains(5)
        assert rl_otel.shutdown() == Delivery(sent=25)
        ids = [span.proto.span_id for span in receiver.spans]
    assert len(ids) == len(set(ids)) == 25
    said = messages(caplog)
    assert len(said) == 2
    assert said[1].endswith("answers again")


def test_refused_spans_are_counted_and_said(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """What the receiver will never take is dropped, with its own words; what comes after is sent."""
    receiver.script(then=Answer(400, text="no thanks"))
    configure(receiver)
    trains(2)
    assert rl_otel.flush() == Delivery(dropped=2)
    receiver.script()
    trains(3)
    assert rl_otel.shutdown() == Delivery(sent=3, dropped=2)
    refusal, left = messages(caplog)
    assert refusal == (
        f"rl_otel: http/protobuf to {receiver.http}/v1/traces: 400 Bad Request: no thanks; the receiver refuses what "
        "these spans say"
    )
    assert left.endswith("has what was not sent: 0 spans pending, 0 kept back, 2 dropped")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partial_success_drops_what_was_rejected(protocol: str, receiver: Receiver) -> None:
    """Of a request that is taken but for two spans, two are dropped."""
    receiver.script(Answer(rejected=2, text="too old"))
    configure(receiver, protocol)
    with held_back():
        trains(5)
    report = rl_otel.flush()
    assert report == Delivery(sent=3, dropped=2)
    assert not report


def test_a_wrong_path_is_said_and_costs_no_span(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An address that answers 404 gets one line with what would be right; the spans stay pending."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.http}/traces")
    rl_otel.configure(run_dir="runs")
    trains(2)
    until(lambda: messages(caplog))
    assert rl_otel.shutdown(timeout=0.1) == Delivery(pending=2, timed_out=True)
    assert messages(caplog) == [
        f"rl_otel: http/protobuf to {receiver.http}/traces: 404 Not Found: 404 page not found; OTLP receivers take "
        f"traces at /v1/traces: try endpoint='{receiver.http}'"
    ]


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_a_page_for_browsers_is_no_delivery(
    protocol: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The port of a back end's pages, which says 200 to everything, gets one line, and the spans stay pending."""
    receiver.script(then=Answer(page="<!doctype html>"))
    configure(receiver, protocol, run_dir="runs")
    trains(2)
    until(lambda: messages(caplog))
    assert rl_otel.shutdown(timeout=0.1) == Delivery(pending=2, timed_out=True)
    assert messages(caplog) == [
        f"rl_otel: {protocol} to {receiver.http}/v1/traces: 200 OK with text/html; no OTLP receiver answers so; most "
        "listen on 4318: try endpoint='http://127.0.0.1:4318'"
    ]


def test_json_that_is_not_otlps_is_believed_and_told_once(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """A server that says yes in words of its own gets each span once, and one line says that it may be no receiver."""
    receiver.script(then=Answer(page='{"status": "ok"}', headers={"content-type": "application/json"}))
    configure(receiver, run_dir="runs")
    for _ in range(2):
        trains(2)
        rl_otel.flush()
    assert rl_otel.shutdown() == Delivery(sent=4)
    assert messages(caplog) == [
        f"rl_otel: http/protobuf to {receiver.http}/v1/traces: 200 OK with JSON that is not OTLP's: "
        '{"status": "ok"}; no OTLP receiver answers so; most listen on 4318: try endpoint=\'http://127.0.0.1:4318\'. '
        "What it took counts as sent"
    ]


def test_the_grpc_port_for_http_is_said_and_costs_no_span(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Http to a port where grpc listens gets one line that names grpc; the spans stay pending."""
    rl_otel.configure(endpoint=receiver.grpc, protocol="http/protobuf", run_dir="runs")
    trains(2)
    until(lambda: messages(caplog))
    assert rl_otel.shutdown(timeout=0.1) == Delivery(pending=2, timed_out=True)
    (line,) = messages(caplog)
    assert line.startswith(f"rl_otel: http/protobuf to {receiver.grpc}/v1/traces: ")
    assert "set protocol='grpc'" in line


def test_an_endpoint_of_the_environment_that_is_none_keeps_the_spans(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A typing error on a cluster costs the sending and one line, not the run or its journal."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector")
    rl_otel.configure(run_dir="runs", run_id="r1")
    trains(2)
    assert rl_otel.shutdown() == Delivery(kept=2)
    assert messages(caplog) == [
        "rl_otel: nothing is sent, spans stay in runs/r1: endpoint 'ftp://collector': ftp:// is not known; write "
        "http:// or https://"
    ]


def test_retry_after_is_honoured_even_by_a_flush(receiver: Receiver) -> None:
    """A receiver that asks for a second gets it, though somebody is in a hurry."""
    receiver.script(Answer(429, retry_after=1))
    configure(receiver)
    trains(1)
    receiver.wait(requests=1)
    assert rl_otel.flush(timeout=PATIENCE) == Delivery(sent=1)
    first, second = receiver.requests
    assert second.at - first.at >= 1


# --- What arrives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_step_arrives_whole(protocol: str, receiver: Receiver) -> None:
    """Names, parents, kinds, attributes with their types and the three services come out as they were recorded."""
    configure(receiver, protocol, run_id="r1")
    one_step()
    assert rl_otel.shutdown() == Delivery(sent=6)

    spans = by_name(receiver)
    parents = {"rollout": "step", "trajectory": "rollout", "generate": "trajectory", "env.step": "trajectory"}
    parents["train"] = "step"
    assert {name: spans[parent].proto.span_id for name, parent in parents.items()} == {
        name: spans[name].proto.parent_span_id for name in parents
    }
    assert spans["step"].proto.parent_span_id == b""
    assert len({span.proto.trace_id for span in spans.values()}) == 1
    assert {span.proto.flags for span in spans.values()} == {0x101}
    assert all(span.proto.start_time_unix_nano <= span.proto.end_time_unix_nano for span in spans.values())
    assert {name: span.resource["service.name"] for name, span in spans.items()} == {
        **dict.fromkeys(("step", "rollout", "trajectory", "train"), "grpo"),
        "generate": "grpo-generate",
        "env.step": "grpo-env",
    }
    assert spans["generate"].proto.kind == Proto.SPAN_KIND_CLIENT
    assert spans["env.step"].proto.kind == Proto.SPAN_KIND_INTERNAL
    assert spans["step"].attributes == {"rl.step": 7, "rl.loss": 0.25, "rl.samples": 1, "rl.telemetry.overhead": ANY}
    assert spans["generate"].attributes == {
        "rl.step": 7,
        "rl.turn": 1,
        "rl.generate.purpose": "policy",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "qwen3-8b",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.response.finish_reasons": ["stop"],
    }
    exact = {"rl.env.reward": float, "rl.env.terminated": bool, "rl.turn": int, "rl.environment.name": str}
    assert {key: type(spans["env.step"].attributes[key]) for key in exact} == exact
    assert spans["step"].resource["rl.run.id"] == "r1"
    assert {span.scope for span in spans.values()} == {("rl_otel", rl_otel.__version__)}


def test_one_service_where_the_back_end_bills_by_service(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With RL_OTEL_SERVICES=one all spans go under the one name."""
    monkeypatch.setenv("RL_OTEL_SERVICES", "one")
    configure(receiver)
    one_step()
    rl_otel.shutdown()
    assert {span.resource["service.name"] for span in receiver.spans} == {"grpo"}


@pytest.mark.once
def test_a_burst_arrives_complete(receiver: Receiver) -> None:
    """Twenty thousand spans at once are all delivered, each once."""
    configure(receiver)
    trains(20_000)
    assert rl_otel.shutdown(timeout=60) == Delivery(sent=20_000)
    assert len({span.proto.span_id for span in receiver.spans}) == receiver.counts["spans"] == 20_000


def test_the_temporary_folder_goes_at_a_clean_end(receiver: Receiver, tmp_path: Path) -> None:
    """Where all was delivered nothing is left behind, and nothing said."""
    configure(receiver)
    trains(2)
    rl_otel.flush()
    (run,) = (tmp_path / "scratch" / f"rl-otel-{os.geteuid()}").iterdir()
    assert len(journals(run)) == 1
    rl_otel.shutdown()
    assert not run.exists()


def test_a_run_folder_that_was_asked_for_stays(receiver: Receiver) -> None:
    """With `run_dir` the journal is the user's, delivered or not."""
    configure(receiver, run_dir="runs", run_id="r1")
    trains(1)
    assert rl_otel.shutdown() == Delivery(sent=1)
    assert len(journals(Path("runs/r1"))) == 1


class Picky(Receiver):
    """Refuses requests in which a span has a word that it does not take."""

    def take(self, protocol: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if b"poison" in body:
            self.script(Answer(400))
        return super().take(protocol, path, headers, body)


def test_a_span_that_nobody_takes_is_isolated() -> None:
    """Its neighbours in the request are delivered, it alone is dropped."""
    with Picky() as receiver:
        configure(receiver, trace_budget=100_000)
        for number in range(300):
            with rl_otel.train() as train:
                train.record({"note": "poison" if number == 123 else "fine"})
        assert rl_otel.shutdown() == Delivery(sent=299, dropped=1)
        assert len(receiver.spans) == 299


def test_where_all_is_refused_it_is_not_divided_for_ever(receiver: Receiver) -> None:
    """A receiver that takes nothing is asked a few times, not once a span."""
    receiver.script(then=Answer(400))
    configure(receiver)
    with held_back():
        trains(300)
    assert rl_otel.shutdown() == Delivery(dropped=300)
    assert len(receiver.requests) <= 50


# --- Late values ------------------------------------------------------------------------------------------------------


def awaited(receiver: Receiver) -> _runtime.Runtime:
    """Record a span whose late values are on their way."""
    configure(receiver)
    runtime = _runtime.active
    assert runtime is not None
    flags = _record.SAMPLED | _record.AWAITED
    ended = now()
    runtime.journal.end(_record.End(b"t" * 16, b"s" * 8, b"", "step", ended, ended, {"rl.step": 0}, flags))
    return runtime


def test_a_span_waits_for_its_late_values(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span that says that values follow is sent once, with them; others do not wait for it."""
    monkeypatch.setattr(route, "PATIENCE", 10 * route.PATIENCE)
    runtime = awaited(receiver)
    trains(1)
    until(lambda: rl_otel.flush(timeout=0.1) == Delivery(sent=1, pending=1, timed_out=True))
    runtime.journal.append(_record.Late(b"s" * 8, {"rl.loss": 0.5}))
    assert rl_otel.flush() == Delivery(sent=2)
    assert [span.attributes for span in receiver.spans if span.name == "step"] == [{"rl.step": 0, "rl.loss": 0.5}]


def test_a_span_does_not_wait_for_ever(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the values do not come, the span is sent without them."""
    monkeypatch.setattr(route, "PATIENCE", 200_000_000)
    awaited(receiver)
    receiver.wait(spans=1)
    assert [span.attributes for span in receiver.spans] == [{"rl.step": 0}]
