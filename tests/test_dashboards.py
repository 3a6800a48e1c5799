"""Metrics of the demo in the real Prometheus: they equal its spans, lead to them, and fill the dashboards."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml

from stack.programs import CONFIGS
from tests import needs
from tests.stack.running import Stack, by_id
from tests.test_demo import SHORT, command, finish, python
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.otlp import ReceivedSpan

pytestmark = [
    needs.stack, needs.torch, needs.gymnasium, needs.gcc, needs.pynvml, pytest.mark.once, pytest.mark.timeout(600)
]  # fmt: skip

DASHBOARDS = CONFIGS / "grafana" / "dashboards"
#: With so small a buffer and no staleness, groups are dropped and the buffer is full and empty by turns.
ASYNCHRONOUS = ["examples/async_grpo.py", "--steps", "10000", "--stalest", "0", "--capacity", "2"]
DROPPED = 'rate(rl_trajectories_dropped_total{rl_trajectories_dropped_reason="stale"}[1m])'
#: Panels that stay empty, and one curve of a panel.
EMPTY = {
    "telemetry Collector: sent and failed: {{job}} {{exporter}} failed": "nothing has failed",
}


class Sent(NamedTuple):
    """The demo over the tests' GPU, with what it sent."""

    stack: Stack
    spans: list[ReceivedSpan]
    began: float

    def over_time(self, query: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Return labels of the series of a query, and their times and values each second so far."""
        return self.stack.prometheus.query_range(query, self.began, time.time(), 1.0)


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    folder, began = tmp_path_factory.mktemp("sent"), time.time()
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": stack.endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
        demo = ["-m", "tests.demo_gpu", "--run-dir", folder, "--steps", "9", *SHORT]
        run = finish(python(*demo, **environment), folder)
        sent = Sent(stack, list(by_id(command("export", run.folder)).values()), began)
        asynchronous = python(*ASYNCHRONOUS, "--run-dir", folder / "asynchronous", RL_OTEL_PRINT="0", **environment)
        try:
            until(lambda: all(map(sent.over_time, [*conditions(), DROPPED])), seconds=240.0)
        finally:
            asynchronous.send_signal(signal.SIGINT)  # it has seen enough, and is left as a reader leaves it
            asynchronous.communicate()
        yield sent


def seconds(spans: list[ReceivedSpan]) -> float:
    return sum(span.proto.end_time_unix_nano - span.proto.start_time_unix_nano for span in spans) / 1e9


def total(stack: Stack, series: str) -> float:
    """Return the sum of series over the demo; 0 where there is none yet."""
    found = stack.prometheus.query(f"sum by (job) ({series})")
    return next((value for labels, value in found if labels["job"] == "grpo-demo"), 0.0)


def test_metrics_equal_the_spans(sent: Sent) -> None:
    """Counts are exactly those of the run folder, sums of durations within 1 %."""
    named = {name: [span for span in sent.spans if span.name == name] for name in {span.name for span in sent.spans}}
    counts = {
        "rl_loop_duration_seconds_count": len(named["step"]),
        "rl_trajectories_total": len(named["trajectory"]),
        "rl_trajectory_duration_seconds_count": len(named["trajectory"]),
        "rl_generate_duration_seconds_count": len(named["generate"]),
        "rl_env_step_duration_seconds_count": len(named["env.step"]),
        'rl_tokens_total{gen_ai_token_type="output"}': sum(
            span.attributes["gen_ai.usage.output_tokens"] for span in named["generate"]
        ),
        'rl_phase_duration_seconds_count{rl_phase="train"}': len(named["train"]),
        'rl_telemetry_spans_total{rl_telemetry_state="ended"}': len(sent.spans),
    }
    until(lambda: total(sent.stack, "rl_loop_duration_seconds_count") == len(named["step"]))
    assert {series: total(sent.stack, series) for series in counts} == counts
    for metric, name in {"loop": "step", "trajectory": "trajectory", "generate": "generate"}.items():
        duration = total(sent.stack, f"rl_{metric}_duration_seconds_sum")
        assert duration == pytest.approx(seconds(named[name]), rel=0.01)


def test_an_exemplar_opens_in_jaeger(sent: Sent) -> None:
    """The exemplars of trajectory durations name trajectories that Jaeger has."""
    found = sent.stack.prometheus.exemplars("rl_trajectory_duration_seconds_bucket", sent.began, time.time() + 10)
    assert found
    labels = found[0].labels
    assert sent.stack.trace(labels["trace_id"])[bytes.fromhex(labels["span_id"])].name == "trajectory"


def conditions() -> list[str]:
    """Return when the alerts on buffers fire, if it lasts."""
    (group,) = yaml.safe_load((CONFIGS / "alerts.yaml").read_text())["groups"]
    found = [rule["expr"] for rule in group["rules"] if rule["alert"].startswith("Buffer")]
    assert len(found) == 2
    return found


def test_a_buffer_is_starved_while_its_trainer_waits_and_full_while_it_learns(sent: Sent) -> None:
    """The alerts' conditions hold in the asynchronous demo by turns, never both, and only for its buffer."""
    times = []
    for condition in conditions():
        series = sent.over_time(condition)
        assert {labels["rl_buffer_name"] for labels, _ in series} == {"groups"}
        times.append({at for _, values in series for at, _ in values})
    assert not times[0] & times[1]


def curves() -> list[tuple[str, str]]:
    """Return each curve of the dashboards that the demo fills: its name and its query."""
    found = []
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            name = f"{path.stem} {panel['title']}"
            if name not in EMPTY:
                found += [(f"{name}: {target['legendFormat']}", target["expr"]) for target in panel["targets"]]
    return [(name, query) for name, query in found if name not in EMPTY]


@pytest.mark.parametrize("query", [pytest.param(query, id=name) for name, query in curves()])
def test_each_curve_has_data(sent: Sent, query: str) -> None:
    """Each query of a dashboard returns data, but for those that are known to need another run."""
    for variable in ("$run", "$role", "$instance"):
        query = query.replace(variable, ".*")
    query = query.replace("$__rate_interval", "1m")
    until(lambda: sent.over_time(query), seconds=60.0)
