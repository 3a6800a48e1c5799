"""Where metrics go: over OTLP, into the run folder, by the host's provider, and in a forked child."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

import rl_otel
from rl_otel._metrics import file
from rl_otel._metrics.instruments import ADVISED
from rl_otel.testing import capture
from tests import metrics, process
from tests.receiver import Answer, black_hole, dead_port
from tests.sending import PROTOCOLS, endpoint

if TYPE_CHECKING:
    from tests.receiver import Receiver

CUMULATIVE, DELTA = 2, 1
SLACK = 3.0  # s; a busy machine takes that long now and then, a hanging export ten


def work(calls: int = 3) -> None:
    with rl_otel.step(), rl_otel.rollout(), rl_otel.trajectory():
        for _ in range(calls):
            with rl_otel.generate() as generation:
                generation.record(output_tokens=2)


# --- Over OTLP --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_metrics_arrive(receiver: Receiver, protocol: str) -> None:
    """Over each protocol the back end gets the same metrics, with the resource of the spans and ids in exemplars."""
    rl_otel.configure(endpoint=endpoint(receiver, protocol), protocol=protocol, headers={"x-key": "k"})
    work()
    assert rl_otel.shutdown()
    found = metrics.last(receiver.exports)
    assert {export.protocol for export in receiver.exports} == {protocol}
    assert {export.headers["x-key"] for export in receiver.exports} == {"k"}
    (point,) = found["rl.generate.duration"]
    assert (point.proto.count, point.temporality, point.kind, point.unit) == (3, CUMULATIVE, "histogram", "s")
    assert point.exemplars <= {(span.proto.trace_id.hex(), span.proto.span_id.hex()) for span in receiver.spans}
    assert bool(point.exemplars) == metrics.EXEMPLARS
    assert point.resource == receiver.spans[0].resource | {"service.name": "rl"}
    (loop,) = found["rl.loop.duration"]
    assert list(loop.proto.explicit_bounds) == list(point.proto.explicit_bounds)
    sent = metrics.one(found, "rl.telemetry.spans", {"rl.telemetry.state": "sent"})
    assert sent.value == len(receiver.spans) == 6


def test_metrics_have_an_endpoint_of_their_own(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable for metrics sends them elsewhere than the spans, as it is written."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{receiver.http}/prefix/v1/metrics")
    rl_otel.configure(run_dir="runs", run_id="r1")
    work()
    rl_otel.shutdown()
    assert {export.path for export in receiver.exports} == {"/prefix/v1/metrics"}
    assert (receiver.requests, list(Path("runs/r1").glob("*.metrics*"))) == ([], [])


def test_an_endpoint_for_spans_alone_is_told(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where only spans have an endpoint, one line says that metrics go nowhere and which variables change that."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.http}/v1/traces")
    rl_otel.configure()
    work()
    rl_otel.shutdown()
    (line,) = caplog.messages
    assert line.startswith("rl_otel: metrics go nowhere: ")
    names = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "RL_OTEL_RUN_DIR"}
    assert names <= set(re.findall(r"[A-Z_]{5,}", line))
    assert (len(receiver.spans) > 0, receiver.exports) == (True, [])


def test_an_endpoint_for_spans_alone_leaves_metrics_in_a_named_run_folder(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a folder was named that stays, metrics are in it, and nothing is said."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.http}/v1/traces")
    rl_otel.configure(run_dir="runs", run_id="r1")
    work()
    rl_otel.shutdown()
    (file,) = Path("runs/r1").glob("*.metrics.jsonl")
    assert "rl.loop.duration" in file.read_text()
    assert (caplog.messages, receiver.exports) == ([], [])


def test_an_endpoint_with_the_path_for_traces_holds_for_metrics_too(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever pastes the whole URL for traces gets both, and no line about a path."""
    rl_otel.configure(endpoint=f"{receiver.http}/v1/traces")
    work()
    assert rl_otel.shutdown()
    assert {export.path for export in receiver.exports} == {"/v1/metrics"}
    assert len(receiver.spans) == 6
    assert caplog.messages == []


def test_none_makes_no_metrics(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With OTEL_METRICS_EXPORTER=none there is no export, no file and no thread."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    done = process.run(
        """
        import sys, threading, rl_otel
        rl_otel.configure(endpoint=sys.argv[1], run_dir="runs")
        with rl_otel.step(0), rl_otel.generate():
            pass
        print(*sorted(thread.name for thread in threading.enumerate()), "opentelemetry.sdk.metrics" in sys.modules)
        """,
        receiver.http,
    )
    assert done.stdout.split() == ["MainThread", "rl_otel", "keeper", "rl_otel", "ship", "False"]
    assert (len(receiver.spans), receiver.exports) == (2, [])


def test_who_records_nothing_starts_nothing() -> None:
    """Importing loads no SDK for metrics; configured, a process that records nothing has no thread and no file."""
    done = process.run(
        """
        import sys, threading, rl_otel
        from pathlib import Path
        print("opentelemetry.sdk.metrics" in sys.modules)
        rl_otel.configure(run_dir="runs")
        rl_otel.flush()
        rl_otel.shutdown()
        print(threading.active_count(), Path("runs").exists())
        """
    )
    assert done.stdout.split() == ["False", "1", "False"]


def test_an_export_is_made_every_few_seconds(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to flush: each interval tells what there is by then."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    rl_otel.configure(endpoint=receiver.http)
    work()
    receiver.wait_for_metrics(lambda: "rl.loop.duration" in metrics.last(receiver.exports))


def test_deltas_add_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where deltas are wanted all metrics are such, ours too, and those that were refused for a time are not lost."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    rl_otel.configure(endpoint=receiver.http)
    work(1)
    rl_otel.flush()
    receiver.metrics_answer = Answer(503)
    work(2)
    rl_otel.flush()
    receiver.metrics_answer = Answer()
    work(4)
    rl_otel.shutdown()
    taken = [metrics.points(export.message) for export in receiver.exports if export.accepted]
    for name, total in (("rl.generate.duration", 7), ("rl.loop.duration", 3), ("rl.phase.duration", 3)):
        points = [point for export in taken for point in export.get(name, ())]
        assert {point.temporality for point in points} == {DELTA}
        assert sum(point.proto.count for point in points) == total
    tokens = [point.value for export in taken for point in export["rl.tokens"]]
    assert (sum(tokens), len(taken)) == (14, 3)
    starts = [export["rl.tokens"][0].proto.start_time_unix_nano for export in taken]
    ends = [export["rl.tokens"][0].proto.time_unix_nano for export in taken]
    assert starts[1:] == ends[:-1]


@pytest.mark.parametrize("answer", [Answer(404), Answer(page="<html>")], ids=["404", "page"])
def test_a_back_end_for_traces_alone_is_named_once(
    answer: Answer, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing takes metrics one line says what to set, and the spans are sent all the same."""
    receiver.metrics_answer = answer
    rl_otel.configure(endpoint=receiver.http)
    for _ in range(3):
        work()
        rl_otel.flush()
    assert rl_otel.shutdown().sent == 18
    (line,) = caplog.messages
    assert line.endswith("OTEL_METRICS_EXPORTER=none sends none")


@pytest.mark.parametrize("port", [dead_port, black_hole])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shutdown_ends_in_time(port: object, protocol: str) -> None:
    """Where nobody answers, spans and metrics together take the time that was given and no more."""
    assert callable(port)
    rl_otel.configure(endpoint=f"http://127.0.0.1:{port()}", protocol=protocol)
    work()
    before = time.monotonic()
    rl_otel.shutdown(1)
    assert time.monotonic() - before < 1 + SLACK


# --- In the run folder ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("recording")
def test_without_an_endpoint_they_are_in_the_run_folder() -> None:
    """Each export is a line of OTLP JSON in a private file; the last one is complete."""
    work()
    rl_otel.flush()
    work()
    rl_otel.shutdown()
    first, last = metrics.in_folder(Path("runs/r1"))
    assert [export["rl.generate.duration"][0].proto.count for export in (first, last)] == [3, 6]
    (path,) = Path("runs/r1").glob("*.metrics.jsonl")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("recording")
def test_the_file_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past its size a file becomes the earlier one: a long run leaves two files at most."""
    monkeypatch.setattr(file, "SIZE", 1)
    for _ in range(5):
        work(1)
        rl_otel.flush()
    names = sorted(path.name.partition(".")[2] for path in Path("runs/r1").glob("*.metrics*"))
    assert names == ["metrics.1.jsonl", "metrics.jsonl"]
    assert [len(path.read_text().splitlines()) for path in Path("runs/r1").glob("*.metrics*")] == [1, 1]


@pytest.mark.usefixtures("recording")
def test_a_folder_that_takes_nothing_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Metrics that cannot be written raise nothing into the run."""
    work()
    (journal,) = Path("runs/r1").glob("*.journal")
    base = journal.name.removesuffix(".00001.journal").removesuffix(".00000.journal")
    (journal.parent / f"{base}.metrics.jsonl").mkdir()
    rl_otel.flush()
    rl_otel.shutdown()
    (line,) = caplog.messages
    assert line.startswith("rl_otel: cannot write metrics to ")


def test_a_test_sends_no_metrics_by_accident(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that points to a real back end gets nothing from a captured test."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.http)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{receiver.http}/v1/metrics")
    with capture():
        work()
        rl_otel.flush()
    assert (receiver.requests, receiver.exports) == ([], [])


# --- By the host's provider -------------------------------------------------------------------------------------------


def test_a_provider_that_exists_is_joined(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """The host's provider stays and takes what the SDK measures; calls go our way; no name is sent by both."""
    reader = InMemoryMetricReader()
    host = MeterProvider([reader], resource=Resource({"service.name": "host"}), shutdown_on_exit=False)
    api.set_meter_provider(host)
    for _ in range(2):
        rl_otel.configure(endpoint=receiver.http)
        work()
        theirs = reader.get_metrics_data()  # read by the host, before we export
        rl_otel.shutdown()
    assert api.get_meter_provider() is host
    assert theirs is not None
    (resource,) = theirs.resource_metrics
    found = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    (loop,) = found["rl.loop.duration"].data.data_points
    assert (loop.count, loop.explicit_bounds[0]) == (2, 0.005 if ADVISED else 0.0)
    assert not metrics.EXEMPLARS or loop.exemplars
    ours = metrics.last(receiver.exports)
    assert ours.keys() == {"rl.generate.duration", "rl.tokens", "rl.telemetry.spans", "rl.telemetry.overhead"}
    assert ours.keys().isdisjoint(found)
    assert sum("MeterProvider is set already" in line for line in caplog.messages) == 1
    after = reader.get_metrics_data()
    assert after is not None
    names = {m.name for r in after.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert names.isdisjoint({"rl.phase.active", "rl.trajectories.active"})
    host.shutdown()


def test_a_provider_takes_metrics_that_have_no_way_of_their_own(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With an endpoint for spans alone the host's provider has most, and one line says which have no way."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.http}/v1/traces")
    reader = InMemoryMetricReader()
    host = MeterProvider([reader], shutdown_on_exit=False)
    api.set_meter_provider(host)
    rl_otel.configure()
    work()
    rl_otel.flush()
    found = reader.get_metrics_data()
    rl_otel.shutdown()
    assert found is not None
    names = {metric.name for each in found.resource_metrics for scope in each.scope_metrics for metric in scope.metrics}
    assert {"rl.loop.duration", "rl.phase.duration", "rl.phase.active"} <= names
    assert receiver.exports == []
    (line,) = [line for line in caplog.messages if "nowhere" in line]
    assert line.startswith("rl_otel: metrics of calls go nowhere: ")
    host.shutdown()


# --- After a fork -----------------------------------------------------------------------------------------------------

FORK = """
    import os, sys, rl_otel
    def work(calls):
        with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory():
            for _ in range(calls):
                with rl_otel.generate() as generation:
                    generation.record(output_tokens=1)
    rl_otel.configure(endpoint=sys.argv[1])
    work(3)
    pid = os.fork()
    if pid == 0:
        if sys.argv[2] == "works":
            work(4)
        rl_otel.shutdown()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    work(5)
    rl_otel.shutdown()
"""


@pytest.mark.parametrize(("child", "instances"), [("works", 2), ("rests", 1)])
def test_a_forked_child_starts_from_zero(receiver: Receiver, child: str, instances: int) -> None:
    """Parent and child add up exactly, told apart by their instance; a child that records nothing sends nothing."""
    process.run(FORK, receiver.http, child)
    last: dict[str, metrics.Metrics] = {}
    for export in receiver.exports:
        found = metrics.points(export.message)
        last[found["rl.telemetry.spans"][0].resource["service.instance.id"]] = found
    assert len(last) == instances
    calls = 12 if child == "works" else 8
    assert sum(found["rl.generate.duration"][0].proto.count for found in last.values()) == calls
    assert sum(found["rl.tokens"][0].value for found in last.values()) == calls
    assert sum(found["rl.trajectories"][0].value for found in last.values()) == instances + 1
    assert os.getpid() not in {found["rl.tokens"][0].resource["process.pid"] for found in last.values()}
