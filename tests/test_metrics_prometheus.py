"""The metrics of a run in a real Prometheus: GPU use by phase from one query, and from a bucket to its trace."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _runtime
from rl_otel.testing import Traces
from tests import needs
from tests.stack.prometheus import prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack.prometheus import Prometheus

pytestmark = [needs.prometheus, pytest.mark.once]

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
MINUTE = 60_000_000_000
#: Seconds of each minute and utilization: one phase is shorter than the interval at which it is exported.
SCRIPT = {"rollout": (40.0, 0.3), "train": (15.0, 0.9), "weight_sync": (5.0, 0.1)}


class Gpus:
    """One device that does the same in each minute."""

    def __init__(self) -> None:
        self.minutes = 0

    def readings(self) -> list[Any]:
        return []

    def peaks(self) -> list[Any]:
        return []

    def times(self) -> list[tuple[str, str, str, float, float]]:
        done = self.minutes
        return [("GPU-a", name, "driver", s * done, s * done * busy) for name, (s, busy) in SCRIPT.items()]


@pytest.fixture(scope="module")
def server() -> Iterator[Prometheus]:
    with prometheus() as server:
        yield server


def exports(run: str, minutes: int) -> list[str]:
    """Record a run that exports each minute, as it was told, and return what it wrote."""
    rl_otel.configure("gpus", run_dir="runs", run_id=run)
    assert _runtime.active is not None
    gpus = Gpus()
    for name in ("readings", "times", "peaks"):
        setattr(_runtime.active.gpu, name, getattr(gpus, name))
    with rl_otel.step(0):
        for _ in range(minutes):
            rl_otel.flush()
            gpus.minutes += 1
    rl_otel.shutdown()
    (path,) = Path("runs", run).glob("*.metrics.jsonl")
    return path.read_text().splitlines()


def post(server: Prometheus, line: str, began: int, at: int) -> None:
    """Send a line of a run folder as it is, but for its times."""
    line = re.sub(r'"timeUnixNano":"\d+"', f'"timeUnixNano":"{at}"', line)
    line = re.sub(r'"startTimeUnixNano":"\d+"', f'"startTimeUnixNano":"{began}"', line)
    json.loads(line)
    request = urllib.request.Request(server.metrics, line.encode(), {"Content-Type": "application/json"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()


def test_gpu_use_by_phase_is_one_query(server: Prometheus) -> None:
    """At an export a minute, over a restart and for a phase of five seconds, the page's query is right to 2 %."""
    (query,) = re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    now = time.time_ns()
    first = now - 9 * MINUTE
    for run, begins, minutes in (("r1", first, 4), ("r2", first + 5 * MINUTE, 4)):
        for number, line in enumerate(exports(run, minutes)):
            post(server, line, begins, begins + number * MINUTE)
    server.wait("rl_gpu_time_seconds_total")
    found = {labels["rl_phase"]: value for labels, value in server.query(query, at=now / 1e9)}
    assert found == {name: pytest.approx(busy, rel=0.02) for name, (_, busy) in SCRIPT.items()}


def test_an_exemplar_leads_to_a_trace_that_exists(server: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of a call, and one of a step, name a trace and a span that the run has recorded."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", server.metrics)
    before = time.time()
    rl_otel.configure("exemplars", run_dir="runs", run_id="r1")
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory(), rl_otel.generate():
        pass
    rl_otel.shutdown()
    ids = {(span.trace_id, span.span_id) for span in Traces(Path("runs/r1")).spans}
    for name in ("rl_generate_duration_seconds_bucket", "rl_loop_duration_seconds_bucket"):
        series = f'{name}{{job="exemplars"}}'
        server.wait(series)
        (found,) = server.exemplars(series, before - 1, time.time() + 1)
        assert (found.labels["trace_id"], found.labels["span_id"]) in ids


def test_names_are_those_that_the_page_promises(server: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gauge that is no ratio has no `_ratio`, a counter `_total`, a duration `_seconds`."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", server.metrics)
    rl_otel.configure("names", run_dir="runs", run_id="r1")
    with rl_otel.step(0) as step:
        with rl_otel.rollout(), rl_otel.trajectory():
            with rl_otel.generate() as generation:
                generation.record(output_tokens=3)
            with rl_otel.env_step("swe"):
                pass
        step.record(loss=0.5, reward=1.0, samples=2)
    rl_otel.shutdown()
    for name in (
        "rl_loop_duration_seconds_count", "rl_phase_active", "rl_phase_open_duration_seconds", "rl_trajectories_active",
        "rl_rollout_env_time_ratio", "rl_tokens_total", "rl_samples_total", "rl_loss", "rl_reward_mean",
        "rl_trajectories_total", "rl_telemetry_spans_total", "rl_telemetry_overhead_seconds_total",
    ):  # fmt: skip
        server.wait(f'{name}{{job="names"}}')
