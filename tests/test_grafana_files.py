"""The data sources and dashboards of Grafana, and the links from Jaeger to them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_otel import semconv_metrics
from stack import programs
from tests import needs

ROOT = Path(__file__).parent.parent
CONFIGS = ROOT / "collector"
DASHBOARDS = sorted((CONFIGS / "grafana" / "dashboards").glob("*.json"))


def load(name: str) -> Any:
    return yaml.safe_load((CONFIGS / name).read_text())


def test_grafana_knows_its_data_sources() -> None:
    """Exemplars lead to Tempo and Jaeger, traces to Prometheus, and a trace's rows show the trajectory."""
    sources = {source["uid"]: source for source in load("grafana/datasources.yaml")["datasources"]}
    exemplars = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert [(way["name"], way.get("datasourceUid"), way.get("url")) for way in exemplars] == [
        ("trace_id", "tempo", None),
        ("trace_id", None, "http://127.0.0.1:${JAEGER_PORT}/trace/$${__value.raw}"),
    ]
    for name in ("tempo", "jaeger"):
        settings = sources[name]["jsonData"]
        assert settings["spanBar"] == {"type": "Tag", "tag": "rl.trajectory.id"}
        assert settings["tracesToMetrics"]["datasourceUid"] in sources


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_say_what_to_conclude(path: Path) -> None:
    """At most twelve panels, each with a sentence; variables for run, role and instance; no two panels overlap."""
    dashboard = json.loads(path.read_text())
    assert dashboard["uid"] == f"rl-{path.stem}"
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["run", "role", "instance"]
    panels = dashboard["panels"]
    assert len(panels) <= 12
    assert all(panel["description"].endswith(".") for panel in panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))


def in_prometheus(metric: semconv_metrics.Metric) -> list[str]:
    """Return the names that Prometheus gives to a metric."""
    units = {"s": "_seconds", "By": "_bytes", "W": "_watts", "1": "_ratio"}
    ends = {semconv_metrics.HISTOGRAM: ("_bucket", "_sum", "_count"), semconv_metrics.COUNTER: ("_total",)}
    name, unit = metric.name.replace(".", "_"), units.get(metric.unit, "")
    return [name.removesuffix(unit) + unit + end for end in ends.get(metric.kind, ("",))]


def names_in_prometheus() -> set[str]:
    """Return the names that Prometheus gives to our metrics."""
    return set().union(*map(in_prometheus, semconv_metrics.METRICS))


def test_the_page_tells_names_in_prometheus() -> None:
    """The examples in docs/metrics.md are what the rule above them makes of our metrics."""
    rows = re.findall(r"^\| `([\w.]+)` \| (`(?:rl|hw)_.*`) \|$", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    ours = {metric.name: in_prometheus(metric) for metric in semconv_metrics.METRICS}
    assert len(rows) > 5
    assert {name: re.findall(r"`(\w+)`", names) for name, names in rows} == {name: ours[name] for name, _ in rows}


@pytest.mark.parametrize("path", [*DASHBOARDS, CONFIGS / "alerts.test.yaml"], ids=lambda path: path.stem)
def test_every_metric_is_one_of_ours(path: Path) -> None:
    """What dashboards ask for, and what alerts are tested with, are names under which Prometheus has our metrics."""
    asked = set(re.findall(r"\b((?:rl|hw)_\w+)\{", path.read_text()))
    assert asked
    assert asked <= names_in_prometheus()


def test_jaeger_leads_to_dashboards_that_exist() -> None:
    """Each link from a trace in Jaeger is a dashboard's."""
    links = [link["url"] for link in json.loads((CONFIGS / "jaeger-ui.json").read_text())["linkPatterns"]]
    uids = {json.loads(path.read_text())["uid"] for path in DASHBOARDS}
    assert links
    assert {re.search(r"/d/([\w-]+)", link)[1] for link in links} <= uids


@needs.stack
def test_every_query_is_one(tmp_path: Path) -> None:
    """Each panel's query is PromQL, by Prometheus's own parser."""
    queries = [
        target["expr"]
        for path in DASHBOARDS
        for panel in json.loads(path.read_text())["panels"]
        for target in panel["targets"]
    ]
    rules = [{"record": "rl:query", "expr": query.replace("$__rate_interval", "1m")} for query in queries]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    promtool = programs.find(programs.PROMTOOL)
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=none", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
