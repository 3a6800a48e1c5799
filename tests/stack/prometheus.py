"""A real Prometheus that takes metrics over OTLP and keeps exemplars, and what a test asks it.

    @needs.prometheus
    def test_...() -> None:
        with prometheus() as server:
            ...                                     # export to server.metrics, or configure with server.endpoint
            server.wait("rl_steps_total")           # until there is such a series
            assert server.query("sum(rl_steps_total)") == [({}, 3.0)]

Names are those of Prometheus: `rl.phase.duration` in s is `rl_phase_duration_seconds_bucket`. Samples are stored under
the times they were exported with, and may be half an hour older than the newest.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stack import programs
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Exemplar(NamedTuple):
    """One measurement, and the span it was made in."""

    series: dict[str, str]
    labels: dict[str, str]  # trace_id and span_id, in hex
    value: float
    at: float  # s since the epoch


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.endpoint = f"{self.url}/api/v1/otlp"  # what OTEL_EXPORTER_OTLP_ENDPOINT would be
        self.metrics = f"{self.endpoint}/v1/metrics"

    def query(self, expression: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of the series at a time in s since the epoch, by default now."""
        moment = {} if at is None else {"time": at}
        found = self._get("query", query=expression, **moment)["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Return labels of the series, and their times and values every `step` seconds."""
        found = self._get("query_range", query=expression, start=start, end=end, step=step)["result"]
        return [(series["metric"], [(at, float(value)) for at, value in series["values"]]) for series in found]

    def exemplars(self, expression: str, start: float, end: float) -> list[Exemplar]:
        """Return the exemplars of the series between two times."""
        return [
            Exemplar(series["seriesLabels"], each["labels"], float(each["value"]), each["timestamp"])
            for series in self._get("query_exemplars", query=expression, start=start, end=end)
            for each in series["exemplars"]
        ]

    def wait(self, expression: str) -> None:
        """Wait until an expression has a result."""
        until(lambda: self.query(expression))

    def ready(self) -> bool:
        """Whether it answers."""
        with contextlib.suppress(OSError), _opened(f"{self.url}/-/ready"):
            return True
        return False

    def _get(self, what: str, **parameters: object) -> Any:
        with _opened(f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)["data"]


@contextlib.contextmanager
def prometheus() -> Iterator[Prometheus]:
    """Run a server with nothing in it, on a port that is free."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+b") as log:  # noqa: PTH123
        command = [
            programs.obtain(programs.PROMETHEUS),
            f"--config.file={programs.CONFIGS / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder}/data",
            "--web.listen-address=127.0.0.1:0",
            "--web.enable-otlp-receiver",
            "--enable-feature=exemplar-storage",
        ]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                server = Prometheus(f"http://{_address(process, Path(log.name))}")
                until(server.ready)
                yield server
            finally:
                process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait for the line that says where it listens."""
    found: list[str] = []

    def said() -> bool:
        assert process.poll() is None, log.read_text()
        found.extend(re.findall(r'"Listening on" .*address=(\S+)', log.read_text()))
        return bool(found)

    until(said)
    return found[0]


def _opened(url: str) -> Any:
    # Past any proxy that the machine has.
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30)
