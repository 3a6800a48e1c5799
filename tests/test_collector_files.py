"""The configurations in `collector/`: accepted by their own programs, and such that nothing is lost."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack import programs
from tests import needs

CONFIGS = Path(__file__).parent.parent / "collector"

#: What a collector is started with, file by file.
STARTS = {
    "one machine": ["collector.yaml"],
    "one machine with Tempo": ["collector.yaml", "tempo-export.yaml"],
    "agent": ["agent.yaml"],
    "gateway": ["collector.yaml", "tempo-export.yaml", "gateway.yaml"],
}


def load(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CONFIGS / name).read_text()))


def merged(names: list[str]) -> dict[str, Any]:
    """Return configurations on top of each other, as the collector does it: maps are joined, lists replaced."""
    whole: dict[str, Any] = {}
    for name in names:
        _merge(whole, load(name))
    return whole


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def run(program: programs.Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = programs.find(program)
    assert found
    return subprocess.run([found, *arguments], cwd=CONFIGS, capture_output=True, text=True, check=False)


# --- By their own programs --------------------------------------------------------------------------------------------


@needs.stack
@pytest.mark.parametrize("files", STARTS.values(), ids=STARTS)
def test_the_collector_accepts_its_files(files: list[str]) -> None:
    """`otelcol validate` accepts each set of files."""
    done = run(programs.COLLECTOR, "validate", *(f"--config={name}" for name in files))
    assert (done.returncode, done.stderr) == (0, "")


@needs.stack
def test_the_collector_refuses_a_wrong_file(tmp_path: Path) -> None:
    """What it accepts means something: a processor that nobody defined is refused."""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("service: {pipelines: {traces: {processors: [batch]}}}")
    assert run(programs.COLLECTOR, "validate", "--config=collector.yaml", f"--config={wrong}").returncode != 0


@needs.stack
def test_jaeger_accepts_its_file() -> None:
    """`jaeger validate` accepts it."""
    assert run(programs.JAEGER, "validate", "--config=jaeger.yaml").returncode == 0


@needs.stack
def test_prometheus_accepts_its_file_and_the_alerts() -> None:
    """`promtool check config` accepts both."""
    done = run(programs.PROMTOOL, "check", "config", "prometheus.yaml")
    assert done.returncode == 0, done.stderr
    assert re.search(r"SUCCESS: \d+ rules found", done.stdout)


@needs.stack
def test_alerts_fire_when_they_should_and_only_then() -> None:
    """`promtool test rules` passes."""
    done = run(programs.PROMTOOL, "test", "rules", "alerts.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested_both_ways() -> None:
    """Each alert has a runbook, a moment at which it fires, and one at which it does not."""
    rules = {rule["alert"]: rule for group in load("alerts.yaml")["groups"] for rule in group["rules"]}
    assert all(rule["annotations"]["runbook"] for rule in rules.values())
    fires: dict[bool, set[str]] = {True: set(), False: set()}
    for test in load("alerts.test.yaml")["tests"]:
        for case in test["promql_expr_test"]:
            fires["exp_samples" in case].update(re.findall(r'alertname="(\w+)"', case["expr"]))
    assert fires[True] == fires[False] == rules.keys()


# --- What the pipelines promise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", STARTS.values(), ids=STARTS)
def test_an_acknowledged_span_is_on_disk(files: list[str]) -> None:
    """Memory is limited first, nothing waits in memory, and traces wait on disk for as long as it takes."""
    config = merged(files)
    for name, pipeline in config["service"]["pipelines"].items():
        assert pipeline["processors"][0] == "memory_limiter"
        assert not [part for part in pipeline["processors"] if part.startswith("batch")]
        if name == "traces":
            assert "transform/text" in pipeline["processors"]
            for exporter in pipeline["exporters"]:
                settings = config["exporters"][exporter]
                assert settings["sending_queue"]["storage"] == "file_storage"
                assert settings["retry_on_failure"]["max_elapsed_time"] == 0
                # The smallest limit that receivers of OTLP over grpc have by default is 4 MiB.
                assert settings["sending_queue"]["batch"]["sizer"] == "bytes"
                assert settings["sending_queue"]["batch"]["max_size"] < 4 * 1024 * 1024
    assert {"health_check", "file_storage"} <= set(config["service"]["extensions"])
    assert config["service"]["telemetry"]["metrics"]["readers"]


def test_several_gateways_lose_nothing_either() -> None:
    """Agents that share out traces do so by trace id, and keep them on disk while no gateway takes them."""
    config = merged(["agent.yaml", "several-gateways.yaml"])
    (exporter,) = config["service"]["pipelines"]["traces"]["exporters"]
    settings = config["exporters"][exporter]
    assert (exporter, settings["routing_key"]) == ("load_balancing", "traceID")
    assert settings["sending_queue"]["storage"] == "file_storage"
    assert settings["retry_on_failure"]["max_elapsed_time"] == 0
    assert settings["protocol"]["otlp"]["sending_queue"] == {"enabled": False}


def test_jaeger_stores_before_it_acknowledges() -> None:
    """No processor and no queue stands between its receiver and its store, which is on disk."""
    config = load("jaeger.yaml")
    assert config["service"]["pipelines"]["traces"]["processors"] == []
    assert config["exporters"]["jaeger_storage_exporter"]["queue"] == {"enabled": False}
    assert config["extensions"]["jaeger_storage"]["backends"]["main"]["badger"]["ephemeral"] is False


def test_span_metrics_stay_few_and_reach_two_hours() -> None:
    """Bounds from 10 ms or less to 2 h, an explicit unit and namespace, an end for old series and a limit of all."""
    metrics = load("collector.yaml")["connectors"]["span_metrics"]
    seconds = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    bounds = [
        float(number) * seconds[unit]
        for number, unit in (
            re.fullmatch(r"(\d+)(\w+)", bound).groups() for bound in metrics["histogram"]["explicit"]["buckets"]
        )
    ]
    assert bounds == sorted(bounds)
    assert bounds[0] <= 0.01
    assert bounds[-1] >= 7200
    assert (metrics["histogram"]["unit"], metrics["namespace"]) == ("ms", "traces.span.metrics")
    assert metrics["aggregation_cardinality_limit"] > 0
    assert metrics["metrics_expiration"]
    assert "exclude_dimensions" not in metrics  # collector.instance.id keeps the series of two collectors apart


def test_labels_are_chosen_one_by_one() -> None:
    """Of a resource the run, role, rank and host become labels; job and instance are there anyway."""
    otlp = load("prometheus.yaml")["otlp"]
    assert set(otlp["promote_resource_attributes"]) == {"rl.run.id", "rl.role", "rl.rank", "host.name"}
    assert "promote_all_resource_attributes" not in otlp


@pytest.mark.parametrize("files", STARTS.values(), ids=STARTS)
def test_no_file_samples_by_latency(files: list[str]) -> None:
    """A step's root ends last: what decides before it decides wrongly."""
    assert not [name for name in merged(files).get("processors", {}) if "sampling" in name]


def test_the_collector_is_one_release() -> None:
    """Each part that builder.yaml names is of the version that compose pins."""
    manifest = load("builder.yaml")
    version = manifest["dist"]["version"]
    kinds = ("receivers", "processors", "exporters", "connectors", "extensions")
    assert {part["gomod"].split()[1] for kind in kinds for part in manifest[kind]} == {f"v{version}"}
    compose = yaml.safe_load((CONFIGS.parent / "docker-compose.yml").read_text())
    assert compose["services"]["collector"]["image"].endswith(f":{version}")
