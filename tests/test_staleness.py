"""How old what a step trains on is, in policy versions, and which weights it came from."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel._analysis import Analysis
from rl_otel._figures import Staleness
from rl_otel._read import Run
from rl_otel._spans import consume
from rl_otel.testing import Traces
from tests import metrics, needs

if TYPE_CHECKING:
    from rl_otel.testing import Recorded

STALENESS = ("rl.staleness.min", "rl.staleness.mean", "rl.staleness.max", "rl.staleness.count")


def stale(span: Recorded) -> tuple[Any, ...]:
    return tuple(span.attributes.get(name) for name in STALENESS)


def sync(version: int) -> None:
    with rl_otel.weight_sync() as weights:
        weights.record(policy_version=version)


def play(name: str, **how: Any) -> None:
    with rl_otel.trajectory(name, detached=True, **how), rl_otel.generate():
        pass


def test_staleness_is_the_trainers_version_less_that_which_a_trajectory_began_with(traces: Traces) -> None:
    """An update in flight does not make it younger: begun at 3, ended at 5, trained on at 6 is three behind."""
    sync(3)
    with rl_otel.trajectory("long"):
        with rl_otel.generate():
            pass
        sync(5)
        with rl_otel.generate():
            pass
    play("fresh")
    sync(6)
    with rl_otel.step(0) as step, rl_otel.train() as train:
        step.consume(["long", "fresh"])
        train.record(tokens=1)
    long, fresh = traces.all("trajectory")
    assert [long.attributes[f"rl.policy.version.{end}"] for end in ("first", "last")] == [3, 5]
    assert [fresh.attributes[f"rl.policy.version.{end}"] for end in ("first", "last")] == [5, 5]
    trained = traces.one("train")
    assert stale(trained) == (1, 2.0, 3, 2)
    assert trained.attributes["rl.policy.version"] == 6
    assert [link.attributes for link in trained.links] == [
        {"rl.trajectory.id": "long", "rl.staleness": 3},
        {"rl.trajectory.id": "fresh", "rl.staleness": 1},
    ]
    figures = {key: value for key, value in step.summary.items() if key.startswith("async/")}
    assert figures == {"async/staleness_min": 1, "async/staleness_mean": 2.0, "async/staleness_max": 3}


def test_several_calls_and_spans_add_up(traces: Traces) -> None:
    """A span says it of all that it trains on, a step of all its spans; a trajectory counts once in a step."""
    for version in range(4):
        sync(version)
        play(f"t{version}")
    with rl_otel.step(0) as step:
        step.consume(["t0"])
        step.consume(["t3"])
        with rl_otel.train():
            step.consume(["t1", "t3", "t3"])
        with rl_otel.train():
            step.consume(["t0", "t3"])
        with rl_otel.train():
            step.consume(["t2"])
    first, second, third = traces.all("train")
    assert [stale(each) for each in (first, second, third)] == [(0, 5 / 3, 3, 3), (None,) * 4, (1, 1.0, 1, 1)]
    assert [len(each.links) for each in (first, second, third)] == [3, 0, 1]
    assert step.summary["async/staleness_mean"] == 1.5


def test_without_training_the_step_says_it(traces: Traces) -> None:
    """A step that opens no train span keeps links and staleness itself."""
    sync(1)
    play("a")
    sync(2)
    with rl_otel.step(0) as step:
        step.consume(["a"])
    assert stale(traces.one("step")) == (1, 1.0, 1, 1)
    assert step.summary["async/staleness_max"] == 1


@pytest.mark.parametrize("versions", [[3, None], {"far": 3}, {("far", 1, 1): 3}])
def test_versions_of_other_processes_come_with_their_ids(traces: Traces, versions: Any) -> None:
    """What ran elsewhere is as stale as the trainer says that it was begun."""
    sync(7)
    ids = [("far", 1, 1) if ("far", 1, 1) in versions else "far", "unknown"]
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(ids, policy_versions=versions)
    assert stale(traces.one("train")) == (4, 4.0, 4, 1)
    assert [link.attributes.get("rl.staleness") for link in traces.one("train").links] == [4, None]


@needs.numpy
def test_versions_may_be_an_array(traces: Traces) -> None:
    """A batch has them so, and such an array has no truth of its own."""
    import numpy

    sync(7)
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(["a", "b"], policy_versions=numpy.array([3, 5]))  # type: ignore[arg-type]
    assert stale(traces.one("train")) == (2, 3.0, 4, 2)


def test_a_version_that_is_none_is_said_and_left_out(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """The links are there all the same."""
    sync(2)
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(["a", "b"], policy_versions=["old", 1])
    assert [link.attributes.get("rl.staleness") for link in traces.one("train").links] == [None, 1]
    (record,) = caplog.records
    assert record.getMessage() == "rl_otel: step(policy_versions='old'): not a whole number, left out"


def test_what_is_not_known_is_absent(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """No version, no staleness; and none below 0, where the trainer never said that it has newer weights."""
    play("before")
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(["before", "elsewhere"])
    play("told", policy_version=9)
    sync(8)
    assert not caplog.records
    with rl_otel.step(1) as step, rl_otel.train():
        step.consume(["told"])
    assert [stale(train) for train in traces.all("train")] == [(None,) * 4] * 2
    assert not [key for key in step.summary if key.startswith("async/")]
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "rl_otel: trajectory told began with policy version 9 and the trainer is at 8:"
    )


def test_a_trajectory_that_was_continued_is_as_old_as_its_first_segment(traces: Traces) -> None:
    """Each segment has versions of its own; the last is trained on, with what the first began with."""
    sync(1)
    play("a")
    sync(2)
    play("a", segment=2)
    sync(3)
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume([("a", 1, 2)])
    assert [span.attributes["rl.policy.version.first"] for span in traces.all("trajectory")] == [1, 2]
    (link,) = traces.one("train").links
    assert (link.span.hex(), link.attributes["rl.staleness"]) == (traces.all("trajectory")[1].span_id, 2)


def test_a_repeated_id_inside_steps_is_as_old_as_its_last_trajectory(traces: Traces) -> None:
    """The same prompt in a later epoch is another trajectory, with another version."""
    for version in (1, 5):
        sync(version)
        with rl_otel.step(version), rl_otel.rollout(), rl_otel.trajectory(group="g", sample=0):
            pass
    with rl_otel.step(6) as step, rl_otel.train():
        step.consume(["g/0"])
    assert stale(traces.one("train")) == (0, 0.0, 0, 1)


def test_above_1024_trajectories_there_is_a_link_a_group(traces: Traces) -> None:
    """To its first, with how many it stands for; those of no group share one. Staleness is that of each."""
    sync(0)
    play("g0/0", group="g0")
    with rl_otel.trajectory("alone", detached=True):
        pass
    sync(2)
    ids = ["alone", *(f"g{number // 8}/{number % 8}" for number in range(consume.MOST_LINKS)), "nobody"]
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(ids)
    train = traces.one("train")
    assert [link.attributes for link in train.links] == [
        {"rl.trajectory.id": "alone", "rl.group.trajectories": 2},
        *(
            {"rl.trajectory.id": f"g{group}/0", "rl.group.id": f"g{group}", "rl.group.trajectories": 8}
            for group in range(consume.MOST_LINKS // 8)
        ),
    ]
    assert stale(train) == (2, 2.0, 2, 2)


@pytest.mark.usefixtures("recording")
def test_staleness_is_a_histogram() -> None:
    """One measurement a trajectory, in the buckets of whole versions, with the train span as exemplar."""
    sync(0)
    for name in ("a", "b"):
        play(name)
    sync(3)
    play("c")
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(["a", "b", "c"])
    (point,) = metrics.now()["rl.staleness"]
    assert (point.unit, point.proto.count, point.proto.sum, list(point.attributes)) == ("{version}", 3, 6.0, [])
    counts = dict(zip(point.proto.explicit_bounds, point.proto.bucket_counts, strict=False))
    assert {bound: count for bound, count in counts.items() if count} == {0.0: 1, 3.0: 2}


def test_a_trajectory_links_to_the_weight_sync_of_its_version(traces: Traces) -> None:
    """To the one that its own process ended, whatever step that was in; of no known version there is no link."""
    with rl_otel.step(0):
        sync(4)
    play("a")
    with rl_otel.step(1), rl_otel.rollout(), rl_otel.trajectory("b"):
        sync(5)
    play("elsewhere", policy_version=77)
    first, second = (each for each in traces.all("weight_sync"))
    linked = {
        span.attributes["rl.trajectory.id"]: [(link.span.hex(), link.attributes) for link in span.links]
        for span in traces.all("trajectory")
    }
    assert linked == {
        "a": [(first.span_id, {"rl.policy.version": 4})],
        "b": [(first.span_id, {"rl.policy.version": 4})],
        "elsewhere": [],
    }
    assert second.attributes["rl.policy.version"] == 5


def test_a_weight_sync_of_another_process_serves_where_there_is_none_here() -> None:
    """What a carrier brought is linked to, until this process has ended one of that version."""
    rl_otel.configure(run_dir="runs", run_id="trainer")
    with rl_otel.step(0):
        sync(3)
        carrier = rl_otel.context.inject()
    there = Traces(Path("runs/trainer")).one("weight_sync")
    rl_otel.shutdown()
    rl_otel.configure(run_dir="runs", run_id="generator")
    with rl_otel.context.use(carrier):
        play("a")
        sync(3)
        play("b")
    traces = Traces(Path("runs/generator"))
    (far,), (here,) = (span.links for span in traces.all("trajectory"))
    assert (far.trace.hex(), far.span.hex()) == (there.trace_id, there.span_id)
    assert here.span.hex() == traces.one("weight_sync").span_id


async def test_each_trained_trajectory_of_an_asynchronous_run_has_exactly_one_link(traces: Traces) -> None:
    """Twenty steps, up to three versions behind: traces stay small, and nothing is linked twice or not at all."""
    clock = random.Random(0)
    ready: asyncio.Queue[str] = asyncio.Queue(maxsize=12)

    async def generate(worker: int) -> None:
        for number in range(10_000):
            with rl_otel.trajectory(f"{worker}/{number}") as trajectory:
                for _ in range(clock.randint(1, 4)):
                    with rl_otel.generate():
                        await asyncio.sleep(0)
                    with rl_otel.env_step("maze"):
                        await asyncio.sleep(0)
            with rl_otel.wait("buffer_full"):
                await ready.put(trajectory.id)

    sync(0)
    with rl_otel.role("generator"):
        workers = [asyncio.create_task(generate(worker)) for worker in range(4)]
    trained: deque[str] = deque()
    for number in range(20):
        with rl_otel.step(number) as step:
            with rl_otel.wait("batch"):
                batch = [await ready.get() for _ in range(4)]
            step.consume(batch)
            trained += batch
            with rl_otel.train():
                await asyncio.sleep(0)
            sync(number + 1)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)

    ids = {span.attributes["rl.trajectory.id"]: (span.trace_id, span.span_id) for span in traces.all("trajectory")}
    links = [link for train in traces.all("train") for link in train.links]
    assert [link.attributes["rl.trajectory.id"] for link in links] == list(trained)
    assert [(link.trace.hex(), link.span.hex()) for link in links] == [ids[name] for name in trained]
    assert [train.attributes["rl.step"] for train in traces.all("train")] == list(range(20))
    behind = [link.attributes["rl.staleness"] for link in links]
    assert min(behind) >= 0
    assert 1 <= max(behind) <= 4
    assert max(Counter(span.trace_id for span in traces.spans).values()) <= 10
    versions = {span.attributes["rl.policy.version"]: span.span_id for span in traces.all("weight_sync")}
    for span in traces.all("trajectory"):
        (back,) = span.links
        assert back.span.hex() == versions[span.attributes["rl.policy.version.first"]]


def test_the_summary_of_a_run_says_it_too() -> None:
    """What is charted and what is on the span are one figure, also in the journal that a report reads."""
    rl_otel.configure(run_dir="runs", run_id="r1")
    sync(1)
    play("a")
    sync(3)
    with rl_otel.step(0) as step, rl_otel.train():
        step.consume(["a"])
    rl_otel.shutdown()
    (report,) = Analysis(Run(Path("runs/r1"))).steps()
    assert report.figures.staleness == Staleness(2, 2.0, 2, 1)
    assert step.summary["async/staleness_mean"] == 2.0
