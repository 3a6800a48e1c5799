"""The asynchronous demo, run as a reader runs it: four processes that are one run."""

from __future__ import annotations

import re
from collections import Counter
from statistics import mean, variance
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import needs
from tests.receiver import remote
from tests.stack.running import by_id
from tests.test_demo import Run, command, finish, python, said

if TYPE_CHECKING:
    from tests.otlp import ReceivedSpan

pytestmark = [needs.torch, needs.gymnasium, pytest.mark.once, pytest.mark.timeout(600)]


class Asynchronous(NamedTuple):
    """A run that has ended: what it printed, what it recorded, and what a back end got of that."""

    run: Run
    spans: dict[bytes, ReceivedSpan]
    received: set[bytes]
    shipped: str  # what `rl-otel ship` found to be sent afterwards

    def named(self, *names: str) -> list[ReceivedSpan]:
        return [span for span in self.spans.values() if span.name in names]

    def printed(self, pattern: str) -> list[float]:
        """Return a figure of each step's line."""
        return [float(figure) for figure in re.findall(rf"^Step .*{pattern}", self.run.out, re.MULTILINE)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Asynchronous:
    folder = tmp_path_factory.mktemp("asynchronous")
    with remote() as back_end:
        process = python(
            *("examples/async_grpo.py", "--run-dir", folder),
            RL_OTEL_PRINT="0",
            RL_OTEL_TRACE_BUDGET="1000000",
            OTEL_EXPORTER_OTLP_ENDPOINT=back_end.http,
        )
        run = finish(process, folder)
        shipped = command("ship", run.folder, "--endpoint", back_end.http)
        received = {span.proto.span_id for span in back_end.spans}
    return Asynchronous(run, by_id(command("export", run.folder)), received, shipped)


def test_learns(demo: Asynchronous) -> None:
    """The last ten steps' mean reward is above the first five's by three standard errors, and nobody complains."""
    rewards = demo.printed(r"reward (\d\.\d+)")
    first, last = rewards[:5], rewards[-10:]
    assert len(rewards) == 36
    assert mean(last) - mean(first) > 3 * (variance(first) / 5 + variance(last) / 10) ** 0.5, rewards
    assert demo.run.errors == ""


def test_each_trained_trajectory_has_one_link(demo: Asynchronous) -> None:
    """Every trajectory that is trained on was recorded, and a train span links to it, once in the whole run."""
    links = [(link, span) for span in demo.spans.values() for link in span.proto.links if span.name != "trajectory"]
    assert {span.name for _, span in links} == {"train"}
    counts = Counter(link.span_id for link, _ in links)
    assert set(counts.values()) == {1}
    assert {demo.spans[linked].name for linked in counts} == {"trajectory"}
    assert len(counts) == sum(step.attributes["rl.samples"] for step in demo.named("step"))


def test_a_trajectory_is_a_trace_of_the_processes_it_ran_in(demo: Asynchronous) -> None:
    """Each call of an environment is in its trajectory's trace: the generator's, and inside it the server's."""
    trajectories = {span.proto.trace_id: span for span in demo.named("trajectory")}
    assert len(trajectories) == len(demo.named("trajectory"))
    calls = demo.named("env.step", "env.reset")
    (server,) = {span.resource["process.pid"] for span in calls if span.attributes["rl.role"] == "env"}
    for call in calls:
        parent = demo.spans[call.proto.parent_span_id]
        assert call.proto.trace_id == parent.proto.trace_id
        if call.resource["process.pid"] == server:
            assert parent.name == call.name
        else:
            assert parent is trajectories[call.proto.trace_id]
    places = Counter(call.resource["process.pid"] == server for call in calls)
    assert places[True] == places[False] > 0


def test_a_trajectory_links_to_the_weights_it_was_played_with(demo: Asynchronous) -> None:
    """Its link leads to its own generator's load of the version that it carries."""
    for trajectory in demo.named("trajectory"):
        (link,) = trajectory.proto.links
        load = demo.spans[link.span_id]
        assert load.name == "weight_sync"
        assert load.resource["process.pid"] == trajectory.resource["process.pid"]
        assert load.attributes["rl.policy.version"] == trajectory.attributes["rl.policy.version.first"]


def test_nothing_is_too_stale(demo: Asynchronous) -> None:
    """Staleness is known of all that is trained on, at most 3, not always 0, and printed as it is recorded."""
    trained = [span for span in demo.named("train") if span.proto.links]
    assert all(span.attributes["rl.staleness.count"] == len(span.proto.links) for span in trained)
    assert max(span.attributes["rl.staleness.max"] for span in trained) in (1, 2, 3)
    assert sum(demo.printed(r"too stale (\d+)")) == sum(
        step.attributes["rl.trajectories.dropped.stale"] for step in demo.named("step")
    )


def test_waits_have_their_reasons(demo: Asynchronous) -> None:
    """The trainer waits for its batch in each step, each generator for a place in the buffer after each group."""
    waits = Counter((span.attributes["rl.role"], span.attributes["rl.wait.reason"]) for span in demo.named("wait"))
    assert set(waits) == {("trainer", "batch"), ("generator", "buffer_full")}
    assert waits["trainer", "batch"] == 36
    assert waits["generator", "buffer_full"] * 8 == len(demo.named("trajectory"))
    batches = [span.attributes for span in demo.named("wait") if span.attributes["rl.wait.reason"] == "batch"]
    assert all(0 <= wait["rl.buffer.size"] <= wait["rl.buffer.capacity"] == 8 for wait in batches)


def test_nothing_is_lost(demo: Asynchronous) -> None:
    """The back end got all that was recorded, but for waits past 64 a minute; what is kept back is counted."""
    kept = set(demo.spans) - demo.received
    assert not demo.received - set(demo.spans)
    assert {demo.spans[span].name for span in kept} <= {"wait"}
    assert "0 spans sent to" in demo.shipped
    assert f"{len(demo.received):,} were sent before" in demo.shipped
    assert not kept or f"{len(kept)} kept back" in demo.shipped


def test_all_processes_are_in_the_report(demo: Asynchronous) -> None:
    """The report of a step tells of the generators' waits; the run's counts all trajectories that they played."""
    report = command("report", demo.run.folder)
    assert "waited" in report
    assert "generator waited: buffer_full" in report
    assert "meanwhile generator (2 processes)" in report
    assert f"{len(demo.named('trajectory'))} trajectories outside any step" in report
    step = said(demo.run, "The one that waited longest").split()[-1]
    assert command("report", demo.run.folder, "--step", step).strip() in demo.run.out
