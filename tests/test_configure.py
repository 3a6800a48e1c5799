"""`configure()`: what it refuses, what it understands, and what it survives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rl_otel
from rl_otel import Delivery, _runtime
from rl_otel.testing import Traces
from tests import needs, process
from tests.receiver import Receiver


def one_span() -> None:
    with rl_otel.train():
        pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("service_name", ""),
        ("endpoint", "http://"),
        ("endpoint", "ftp://collector"),
        ("endpoint", 4318),
        ("protocol", "udp"),
        ("headers", {"a": "b\nc: d"}),
        ("run_dir", 5),
        ("run_id", ""),
        ("resource", {"a": object()}),
        ("exporter", "console"),
        ("trace_budget", 0),
        ("text", "yes"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_begins(name: str, value: Any) -> None:
    """A mistake in the code is found at once, and leaves tracing off."""
    with pytest.raises(ValueError, match=name):
        rl_otel.configure(**{name: value})
    assert _runtime.active is None
    assert list(Path().iterdir()) == []


def test_an_argument_that_is_not_known_is_a_type_error() -> None:
    """A misspelt argument does not pass for nothing."""
    with pytest.raises(TypeError, match="servise_name"):
        rl_otel.configure(servise_name="grpo")  # type: ignore[call-arg]


def test_a_variable_that_is_none_of_ours_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A setting that is misspelt is not in force, and the line names the one that was probably meant."""
    monkeypatch.setenv("RL_OTEL_RUNDIR", "elsewhere")
    monkeypatch.setenv("RL_OTEL_SOMETHING", "1")
    monkeypatch.setenv("RL_OTEL_RUN_DIR", "runs")
    monkeypatch.setenv("OTEL_ANYTHING", "of others")
    for _ in range(2):
        rl_otel.configure()
        rl_otel.shutdown()
    assert sorted(caplog.messages) == [
        "rl_otel: RL_OTEL_RUNDIR is no setting, and is ignored; did you mean RL_OTEL_RUN_DIR?",
        "rl_otel: RL_OTEL_SOMETHING is no setting, and is ignored: docs/environment.md has them all",
    ]


def test_after_a_wrong_call_a_right_one_works() -> None:
    """A refused call leaves no half-configured process behind."""
    with pytest.raises(ValueError, match="protocol"):
        rl_otel.configure(protocol="udp")
    rl_otel.configure(run_dir="runs")
    one_span()
    assert rl_otel.shutdown() == Delivery(kept=1)


SPELLINGS = [
    "http://{host}:{port}",
    "http://{host}:{port}/v1/traces",
    "http://{host}:{port}/v1/traces/",
    "http://{host}:{port}/v1/traces/v1/traces",
    "http://{host}:{port}/v1",
    "http:/{host}:{port}",
    "{host}:{port}",
    "{host}:{port}/v1/traces",
    "HTTP://{host}:{port}",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("where", ["argument", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_every_spelling_of_an_endpoint_arrives(
    spelling: str, where: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same text, as argument or variable, leads to the same address."""
    endpoint = spelling.format(host="127.0.0.1", port=receiver.http.rpartition(":")[2])
    if where == "argument":
        rl_otel.configure(endpoint=endpoint)
    else:
        monkeypatch.setenv(where, endpoint)
        rl_otel.configure()
    one_span()
    assert rl_otel.shutdown() == Delivery(sent=1)
    assert [request.path for request in receiver.requests] == ["/v1/traces"]


@pytest.mark.parametrize("spelling", ["grpc://{there}", "http://{there}", "{there}"])
def test_every_spelling_of_a_grpc_endpoint_arrives(spelling: str, receiver: Receiver) -> None:
    """Scheme or none, grpc reaches its receiver."""
    rl_otel.configure(endpoint=spelling.format(there=receiver.grpc.removeprefix("http://")), protocol="grpc")
    one_span()
    assert rl_otel.shutdown() == Delivery(sent=1)


def test_headers_and_compression_reach_the_receiver(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says of a request holds for each."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    rl_otel.configure(endpoint=receiver.http, headers={"authorization": "Bearer t"})
    one_span()
    rl_otel.shutdown()
    (request,) = receiver.requests
    assert request.headers["authorization"] == "Bearer t"
    assert request.headers["content-encoding"] == "gzip"


def test_a_proxy_of_the_environment_is_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY takes the requests, as it takes those of other programs."""
    monkeypatch.setenv("http_proxy", receiver.http)
    monkeypatch.setenv("no_proxy", "")
    rl_otel.configure(endpoint="http://collector.invalid:4318")
    one_span()
    assert rl_otel.shutdown() == Delivery(sent=1)
    assert [request.path for request in receiver.requests] == ["http://collector.invalid:4318/v1/traces"]


@pytest.mark.parametrize("insecure", ["true", "false"])
def test_an_endpoint_without_scheme_follows_insecure(
    insecure: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """OTEL_EXPORTER_OTLP_INSECURE decides about TLS where the endpoint does not, and that is said."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", insecure)
    rl_otel.configure(endpoint="collector:4317", protocol="grpc")
    (record,) = caplog.records
    scheme = "http" if insecure == "true" else "https"
    assert record.getMessage() == f"rl_otel: endpoint collector:4317: without a scheme, {scheme}:// is used"


# --- What is broken ---------------------------------------------------------------------------------------------------

#: A part of OpenTelemetry whose versions do not fit raises TypeError when it is imported.
BROKEN = """
    import logging, sys, threading
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == sys.argv[1]:
                raise TypeError("Descriptors cannot be created directly.")
    sys.meta_path.insert(0, Broken())
    said = threading.Event()
    class Said(logging.StreamHandler):
        def emit(self, record):
            super().emit(record)
            said.set()
    logging.getLogger("rl_otel").addHandler(Said())
    import rl_otel
    rl_otel.configure(endpoint=sys.argv[2], protocol=sys.argv[3], run_dir="runs", run_id="r1")
    for i in range(2):
        with rl_otel.step(i):
            with rl_otel.train():
                pass
    if sys.argv[1] == "grpc":
        said.wait()
    report = rl_otel.shutdown(timeout=float(sys.argv[4]))
    print(report.sent, report.pending, report.kept, report.dropped)
"""


@needs.grpc
def test_a_broken_grpc_stops_the_sending_alone(receiver: Receiver) -> None:
    """The run goes on and is in the journal; one line says what cannot be imported."""
    done = process.run(BROKEN, "grpc", receiver.grpc, "grpc", "0.1", env={"OTEL_BSP_SCHEDULE_DELAY": "20"})
    assert done.stdout == "0 4 0 0\n"
    (line,) = done.stderr.splitlines()
    assert "grpc cannot be imported: Descriptors cannot be created directly." in line
    assert len(Traces(Path("runs/r1")).spans) == 4


def test_a_broken_sdk_costs_metrics_and_the_spans_of_others_alone(receiver: Receiver) -> None:
    """Without the SDK our spans are still recorded and sent; a line for each of the others says what is missing."""
    done = process.run(BROKEN, "opentelemetry.sdk", receiver.http, "http/protobuf", "30")
    assert done.stdout == "4 0 0 0\n"
    metrics, spans = done.stderr.splitlines()
    assert metrics.startswith("rl_otel: no metrics, OpenTelemetry cannot make them: ")
    assert all("Descriptors cannot be created directly." in line for line in (metrics, spans))


def test_a_broken_protobuf_costs_the_metrics_alone(receiver: Receiver) -> None:
    """Encoder and sender of spans are our own: where protobuf cannot be imported they are sent, and metrics are not."""
    done = process.run(BROKEN, "google.protobuf", receiver.http, "http/protobuf", "30")
    assert done.stdout == "4 0 0 0\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("rl_otel: no metrics, OpenTelemetry cannot make them: ")


EXPORTER = """
    import sys
    import rl_otel
    class Exporter:
        def export(self, spans): return None
        def shutdown(self): pass
    sys.modules["opentelemetry.sdk.trace"] = None
    rl_otel.configure(exporter=Exporter(), run_dir="runs", run_id="r1")
    with rl_otel.step(0):
        pass
    report = rl_otel.shutdown()
    print(report.sent, report.pending, report.kept, report.dropped)
"""


def test_an_exporter_without_its_sdk_keeps_the_spans() -> None:
    """Where the SDK that an exporter needs is broken, the spans stay in the run folder and nothing is raised."""
    done = process.run(EXPORTER)
    assert done.stdout == "0 0 1 0\n"
    first, *_ = done.stderr.splitlines()
    assert first.startswith("rl_otel: nothing is sent, spans stay in runs/r1: ")
