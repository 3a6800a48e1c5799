"""`make test-backends`: the demo's traces in other back ends than Jaeger, as docs/backends.md says what they show.

Real servers, each in an environment of its own, which the Makefile makes: large, and so no part of CI.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from stack.running import Process, serves
from tests.process import ROOT
from tests.stack.running import by_id, free_ports, get
from tests.test_demo import SHORT, command, finish, python, start
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.otlp import ReceivedSpan

pytestmark = pytest.mark.timeout(900)

HOME = ROOT / ".cache" / "backends"
START = 600.0  # s until a server answers, on a loaded machine
SETTINGS = {"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_TIMEOUT": "60000"}


class Shown(NamedTuple):
    """A span as a back end gives it back."""

    trace: str
    parent: str
    name: str
    begins: int  # us since the epoch
    attributes: dict[str, Any]


class Phoenix:
    """Arize Phoenix."""

    name = "phoenix"
    headers = ""
    health = "/healthz"

    def __init__(self, folder: Path, port: int, grpc: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.command = [HOME / "phoenix" / "bin" / "phoenix", "serve"]
        self.environment = {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(grpc),
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }

    def spans(self) -> dict[str, Shown]:
        """Return what it has, by span id."""
        found: list[Any] = []
        query: dict[str, str] = {"limit": "1000"}
        while True:
            page = get(f"{self.url}/v1/projects/default/spans", query) or {"data": [], "next_cursor": None}
            found += page["data"]
            if not page["next_cursor"]:
                return {span["context"]["span_id"]: self._shown(span) for span in found}
            query["cursor"] = page["next_cursor"]

    @staticmethod
    def _shown(span: dict[str, Any]) -> Shown:
        begins = round(datetime.fromisoformat(span["start_time"]).timestamp() * 1e6)
        return Shown(span["context"]["trace_id"], span["parent_id"] or "", span["name"], begins, span["attributes"])


class Mlflow:
    """MLflow; it is asked by its own client, in its own environment."""

    name = "mlflow"
    headers = "x-mlflow-experiment-id=0"
    health = "/health"

    ASK = """
import base64, json, sys, warnings
warnings.simplefilter("ignore")
from mlflow import MlflowClient
hex_of = lambda text: base64.b64decode(text or "").hex()
for trace in MlflowClient(sys.argv[1]).search_traces(["0"]):
    for each in (span.to_dict() for span in trace.data.spans):
        attributes = {name: json.loads(value) for name, value in each["attributes"].items()}
        ids = [hex_of(each[name]) for name in ("span_id", "trace_id", "parent_span_id")]
        print(json.dumps([*ids, each["name"], each["start_time_unix_nano"] // 1000, attributes]))
"""

    def __init__(self, folder: Path, port: int, _: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.command = [
            HOME / "mlflow" / "bin" / "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port),
            "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder),
        ]  # fmt: skip
        self.environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

    def spans(self) -> dict[str, Shown]:
        """Return what it has, by span id."""
        asked = [HOME / "mlflow" / "bin" / "python", "-c", self.ASK, self.url]
        told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        return {span[0]: Shown(*span[1:]) for span in map(json.loads, told.splitlines())}


@contextlib.contextmanager
def running(kind: type[Phoenix | Mlflow], folder: Path) -> Iterator[Phoenix | Mlflow]:
    """Run a server on ports of its own, and end it."""
    back_end = kind(folder, *free_ports(2))
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **back_end.environment}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            back_end.command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        try:
            until(lambda: _answers(back_end, server, folder), seconds=START)
            yield back_end
        finally:
            os.killpg(server.pid, signal.SIGTERM)  # with the workers that it has started


def _answers(back_end: Phoenix | Mlflow, server: subprocess.Popen[bytes], folder: Path) -> bool:
    assert server.poll() is None, (folder / "log").read_text()
    return serves(Process(server.pid, "", back_end.url + back_end.health))


@pytest.mark.parametrize("kind", [Phoenix, Mlflow], ids=lambda kind: kind.name)
def test_the_demos_traces_come_back(kind: type[Phoenix | Mlflow], tmp_path: Path) -> None:
    """One trace a step with a root `step`; each span with its parent, its times and its attributes, of their types."""
    runs = tmp_path / "runs"
    with running(kind, tmp_path) as back_end:
        where = {"OTEL_EXPORTER_OTLP_ENDPOINT": back_end.url, "OTEL_EXPORTER_OTLP_HEADERS": back_end.headers}
        run = finish(start(runs, "--steps", "2", *SHORT, **SETTINGS, **where), runs)
        # A server that has just begun is slower than a short run may wait for at its end.
        shipped = python("-m", "rl_otel", "ship", run.folder, **SETTINGS, **where)
        told = shipped.communicate()
        assert shipped.returncode == 0, told
        expected = {span_id.hex(): span for span_id, span in by_id(command("export", run.folder)).items()}
        found: dict[str, Shown] = {}

        def complete() -> bool:
            found.update(back_end.spans())
            return len(found) >= len(expected)

        until(complete, seconds=120)
    assert found.keys() == expected.keys()
    for span_id, span in expected.items():
        assert_shown(found[span_id], span)
    steps = [span for span in found.values() if not span.parent and span.name == "step"]
    assert sorted(span.attributes["rl.step"] for span in steps) == [0, 1]
    assert {span.trace for span in found.values() if "rl.step" in span.attributes} == {span.trace for span in steps}


def assert_shown(found: Shown, span: ReceivedSpan) -> None:
    proto = span.proto
    assert found[:3] == (proto.trace_id.hex(), proto.parent_span_id.hex(), proto.name)
    assert abs(found.begins - proto.start_time_unix_nano // 1000) <= 1
    known = {name: found.attributes.get(name) for name in span.attributes}
    assert known == span.attributes
    assert {name: type(value) for name, value in known.items()} == {
        name: type(value) for name, value in span.attributes.items()
    }
