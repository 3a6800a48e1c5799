"""The metrics of a run in a real Prometheus: GPU use by phase from one query, and from a bucket to its trace."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel.testing import Traces
from tests import needs, nvml, process, system_clock
from tests.scripted_gpu import INTERVAL, SCRIPT
from tests.stack.prometheus import prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stack.prometheus import Prometheus

pytestmark = [needs.prometheus, pytest.mark.once]

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def server() -> Iterator[Prometheus]:
    with prometheus() as server:
        yield server


@pytest.fixture(scope="module")
def played(server: Prometheus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run on a scripted GPU that was restarted after four of nine minutes: its folder, and when it ended."""
    folder = tmp_path_factory.mktemp("gpus")
    script = nvml.Script(folder / "nvml")
    script.set(nvml.Device())
    settings = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": server.metrics,
        "OTEL_METRIC_EXPORT_INTERVAL": f"{INTERVAL}000",
        "RL_OTEL_GPU_ALL": "1",
        "RL_OTEL_RUN_DIR": str(folder),
        "RL_OTEL_RUN_ID": "scripted",
        **script.environment,
    }
    for restart, minutes_ago in enumerate((10, 5)):
        clock = system_clock.environment(folder / "clock", -60.0 * minutes_ago)
        env = {**os.environ, **settings, **clock, "RL_OTEL_RESTART": str(restart)}
        process.run(f"from tests.scripted_gpu import main; main(4, {server.url!r})", env=env, timeout=100)
    return folder / "scripted", time.time() - 60.0


@needs.gcc
@needs.pynvml
def test_gpu_use_by_phase_is_one_query(server: Prometheus, played: tuple[Path, float]) -> None:
    """At an export a minute, over a restart and for a phase of five seconds, the page's query is right to 2 %."""
    (query,) = re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    expected = {name: pytest.approx(busy / 100, rel=0.02) for name, (_, busy) in SCRIPT.items()}
    for before in (180, 90, 0):  # s: just after the restart, between, and at the end
        found = {labels["rl_phase"]: value for labels, value in server.query(query, at=played[1] - before)}
        assert found == expected


@needs.gcc
@needs.pynvml
def test_a_phase_on_the_gpu_leads_to_its_trace(server: Prometheus, played: tuple[Path, float]) -> None:
    """Beside how busy the GPU was, each phase's duration names a span of it that the run has recorded."""
    folder, end = played
    recorded = {(span.trace_id, span.span_id): span.name for span in Traces(folder).spans}
    for phase in SCRIPT:
        series = f'rl_phase_duration_seconds_bucket{{job="gpus",rl_phase="{phase}"}}'
        found = server.exemplars(series, end - 600, end + 60)
        assert {recorded[each.labels["trace_id"], each.labels["span_id"]] for each in found} == {phase}


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
