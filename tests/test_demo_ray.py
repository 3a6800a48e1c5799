"""The asynchronous demo on Ray, run as a reader runs it: a driver and three actors that are one run."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter

import pytest

from tests import needs
from tests.stack.running import by_id
from tests.test_demo import command, finish, python
from tests.test_demo_async import Asynchronous
from tests.test_ray import RAY

pytestmark = [needs.ray, needs.torch, needs.gymnasium, pytest.mark.once, pytest.mark.timeout(400)]

STEPS = 8
NICE = {"RAY_worker_niceness": "0"}  # else whatever a busy machine does goes before Ray's workers


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Asynchronous:
    folder = tmp_path_factory.mktemp("ray-demo")
    sockets = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # their paths have to be short
    try:
        process = python(
            *("examples/async_grpo_ray.py", "--steps", str(STEPS), "--run-dir", folder),
            **{**RAY, **NICE, "RAY_TMPDIR": sockets, "RL_OTEL_PRINT": "0"},
        )
        run = finish(process, folder)
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    return Asynchronous(run, by_id(command("export", run.folder)), set(), "")


def test_each_trained_trajectory_has_one_link(demo: Asynchronous) -> None:
    """Every trajectory that is trained on was recorded, has one link in the whole run, and its staleness is known."""
    links = [link for span in demo.spans.values() for link in span.proto.links if span.name != "trajectory"]
    counts = Counter(link.span_id for link in links)
    assert set(counts.values()) == {1}
    assert {demo.spans[linked].name for linked in counts} == {"trajectory"}
    assert len(counts) == sum(step.attributes["rl.samples"] for step in demo.named("step"))
    trained = [span for span in demo.named("train") if span.proto.links]
    assert all(span.attributes["rl.staleness.count"] == len(span.proto.links) for span in trained)
    assert max(span.attributes["rl.staleness.max"] for span in trained) <= 3


def test_the_calls_of_the_environments_actor_are_in_their_trajectory_s_trace(demo: Asynchronous) -> None:
    """Each is a child of the generator's span of the same call, which is a child of its trajectory."""
    calls = demo.named("env.step", "env.reset")
    parents = [demo.spans[call.proto.parent_span_id] for call in calls]
    inside = [(call, parent) for call, parent in zip(calls, parents, strict=True) if parent.name != "trajectory"]
    assert len(inside) * 2 == len(calls)
    assert len({call.resource["process.pid"] for call, _ in inside}) == 1
    for call, parent in inside:
        trajectory = demo.spans[parent.proto.parent_span_id]
        assert (parent.name, trajectory.name) == (call.name, "trajectory")
        assert call.resource["process.pid"] != parent.resource["process.pid"] == trajectory.resource["process.pid"]
        assert call.proto.trace_id == parent.proto.trace_id == trajectory.proto.trace_id


def test_all_processes_are_in_the_report(demo: Asynchronous) -> None:
    """Driver, two generators and environments have a journal each; the report joins them, and nobody complains."""
    processes = {(span.resource["process.pid"], span.resource["service.name"]) for span in demo.spans.values()}
    assert {name.removesuffix("-env").removesuffix("-generate") for _, name in processes} == {"async-grpo-ray"}
    journals = {path.name.partition(".")[0] for path in demo.run.folder.glob("*.journal")}
    assert len({process for process, _ in processes}) == len(journals) == 4
    waits = Counter((span.attributes["rl.role"], span.attributes["rl.wait.reason"]) for span in demo.named("wait"))
    assert set(waits) == {("trainer", "batch"), ("generator", "buffer_full")}
    report = command("report", demo.run.folder)
    assert f"Training Summary ({STEPS} steps)" in report
    assert "meanwhile generator (2 processes)" in report
    assert f"{len(demo.named('trajectory'))} trajectories outside any step" in report
    assert "rl_otel" not in demo.run.errors
    assert [line for line in demo.run.out.splitlines() if line.startswith(f"Step {STEPS - 1:2}: reward ")]
