"""What the metrics of a run say, by the front door."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import rl_otel
from rl_otel._journal import journals, read
from rl_otel._record import End
from tests import metrics

pytestmark = pytest.mark.usefixtures("recording")


def play(sample: int, environment: str | None = "swe", *, calls: int = 2) -> None:
    with rl_otel.trajectory(group="g", sample=sample) as trajectory:
        with rl_otel.env_reset(environment):
            pass
        for _ in range(calls):
            with rl_otel.generate() as generation:
                generation.record(input_tokens=10, output_tokens=[3, 4])
            with rl_otel.env_step(environment) as env_step:
                env_step.record(reward=1.0, terminated=True)
        trajectory.record(reward=1.0)


def spans(name: str) -> list[End]:
    """Return the ended spans of that name."""
    records = [record for path in journals(Path("runs/r1")) for record, _ in read(path)]
    return [record for record in records if isinstance(record, End) and record.name == name]


def seconds(name: str) -> float:
    return sum(span.end - span.start for span in spans(name)) / 1e9


def sums(found: metrics.Metrics, name: str) -> tuple[int, float]:
    """Return count and sum over all series of a histogram."""
    return sum(point.proto.count for point in found[name]), sum(point.proto.sum for point in found[name])


# --- One measurement, span and metric ---------------------------------------------------------------------------------


def test_a_histogram_adds_up_to_its_spans() -> None:
    """Span and histogram have the same measurement: counts agree, and the sums to the nanosecond."""
    for index in range(3):
        with rl_otel.step(index):
            with rl_otel.rollout():
                for sample in range(4):
                    play(sample)
            with rl_otel.train(), rl_otel.optimizer():
                pass
            with rl_otel.wait("policy"):
                pass
    found = metrics.now()
    for name, span in {
        "rl.loop.duration": "step",
        "rl.trajectory.duration": "trajectory",
        "rl.generate.duration": "generate",
        "rl.env.step.duration": "env.step",
        "rl.wait.duration": "wait",
    }.items():
        assert sums(found, name) == (len(spans(span)), pytest.approx(seconds(span), abs=1e-9))
    for phase in ("rollout", "train", "optimizer", "wait"):
        point = metrics.one(found, "rl.phase.duration", {"rl.phase": phase})
        assert (point.proto.count, point.proto.sum) == (3, pytest.approx(seconds(phase), abs=1e-9))
        assert point.attributes == {"rl.phase": phase, "rl.role": "driver", "rl.mode": "train"}
    for part in ("generate", "env"):
        told = [span.attributes[f"rl.trajectory.{part}.duration"] for span in spans("trajectory")]
        assert sums(found, f"rl.trajectory.{part}.duration") == (12, pytest.approx(sum(told), abs=1e-9))


def test_what_is_counted() -> None:
    """Tokens, samples, trajectories and turns are counted with the attributes of the table and no others."""
    with rl_otel.step(7) as step:
        with rl_otel.rollout() as rollout:
            for sample in range(3):
                play(sample)
            rollout.record(dropped={"stale": 2, "overlong": 1}, rewards=[0.0, 1.0])
        step.record(samples=16, loss=0.25)
    found = metrics.now()
    tokens = {each.attributes["gen_ai.token.type"]: (each.value, each.attributes) for each in found["rl.tokens"]}
    common = {"rl.generate.purpose": "policy", "rl.mode": "train"}
    assert tokens == {
        "input": (60, {"gen_ai.token.type": "input", **common}),
        "output": (42, {"gen_ai.token.type": "output", **common}),
    }
    played = {"rl.environment.name": "swe", "rl.mode": "train"}
    (trajectories,) = found["rl.trajectories"]
    assert (trajectories.value, trajectories.attributes) == (3, {"rl.trajectory.outcome": "completed", **played})
    dropped = {
        each.attributes["rl.trajectories.dropped.reason"]: each.value for each in found["rl.trajectories.dropped"]
    }
    assert dropped == {"stale": 2, "overlong": 1}
    (turns,) = found["rl.trajectory.turns"]
    assert (turns.proto.count, turns.proto.sum, turns.attributes) == (3, 6, played)
    assert [(each.value, each.attributes, each.unit) for each in found["rl.samples"]] == [(16, {}, "{sample}")]
    assert [(each.value, each.unit) for name in ("rl.loss", "rl.reward.mean") for each in found[name]] == [
        (0.25, ""),
        (0.5, ""),
    ]
    ratio = metrics.one(found, "rl.rollout.env_time.ratio", {"rl.mode": "train"})
    assert ratio.value == spans("rollout")[0].attributes["rl.rollout.env_time.ratio"]


def test_an_evaluation_has_series_of_its_own() -> None:
    """What happens in an eval is told apart by `rl.mode`, in calls, trajectories and phases."""
    with rl_otel.step(0):
        with rl_otel.rollout():
            play(0)
        with rl_otel.eval():
            play(1)
            play(2)
    found = metrics.now()
    for name in ("rl.generate.duration", "rl.env.step.duration"):
        counts = {each.attributes["rl.mode"]: each.proto.count for each in found[name]}
        assert counts == {"train": 2, "eval": 4}
    assert {each.attributes["rl.mode"]: each.value for each in found["rl.trajectories"]} == {"train": 1, "eval": 2}


def test_how_a_trajectory_ended_is_an_attribute() -> None:
    """Failed, timed out and cancelled trajectories are counted by their outcome."""
    for error in (ValueError(), TimeoutError(), asyncio.CancelledError()):
        with pytest.raises(type(error)), rl_otel.trajectory():
            raise error
    outcomes = {each.attributes["rl.trajectory.outcome"]: each.value for each in metrics.now()["rl.trajectories"]}
    assert outcomes == {"error": 1, "timeout": 1, "aborted": 1}


def test_what_is_not_known_is_left_out() -> None:
    """An environment without a name, or several in one rollout, is no attribute; nothing unknown is written as 0."""
    with rl_otel.step(0), rl_otel.rollout():
        play(0, None)
    found = metrics.now()
    assert [each.attributes for each in found["rl.env.step.duration"]] == [{"rl.mode": "train"}]
    with rl_otel.step(1), rl_otel.rollout():
        play(0, "a")
        play(1, "b")
    rl_otel.add("trajectory", *moments(), id="from elsewhere")
    found = metrics.now()
    assert [each.attributes for each in found["rl.rollout.env_time.ratio"]] == [{"rl.mode": "train"}]
    assert sums(found, "rl.trajectory.duration")[0] == 4
    assert sums(found, "rl.trajectory.turns")[0] == 3
    assert found.keys().isdisjoint({"rl.loss", "rl.samples", "hw.gpu.utilization", "rl.gpu.time", "rl.buffer.size"})


def moments() -> tuple[int, int]:
    """Return start and end of something that has just happened."""
    return time.time_ns() - 10_000_000, time.time_ns()


def test_a_loss_that_comes_late_is_in_the_gauge() -> None:
    """A value that is not there when its step ends is exported when it is."""

    class Scalar:
        ready = False

        def __float__(self) -> float:
            return 0.5

    with rl_otel.step(0) as step:
        step.record(loss=Scalar(), samples=4)
    found = metrics.now()
    assert (found["rl.loss"][0].value, found["rl.samples"][0].value) == (0.5, 4)


def test_what_the_host_makes_of_our_names_costs_nothing_else() -> None:
    """A loss that is no number, or an environment that is no text, leaves the metrics beside it alone."""
    with rl_otel.step(0) as step:
        with rl_otel.rollout(), rl_otel.trajectory(), rl_otel.env_step() as env_step:
            env_step.set_attribute("rl.environment.name", ["a", "b"])
        step.record(loss=float("nan"), reward=float("inf"), samples=2)
    found = metrics.now()
    assert [each.attributes for each in found["rl.env.step.duration"]] == [{"rl.mode": "train"}]
    assert [each.value for each in found["rl.samples"]] == [2]
    assert sums(found, "rl.trajectory.duration")[0] == 1
    assert found.keys().isdisjoint({"rl.loss", "rl.reward.mean"})


# --- Exemplars --------------------------------------------------------------------------------------------------------


@metrics.exemplars
def test_exemplars_lead_to_the_slowest_of_their_bucket() -> None:
    """A bucket of calls has the ids of the slowest call in it; steps, phases and trajectories have one that exists."""
    start = time.time_ns() - 1_000_000_000
    with rl_otel.step(0), rl_otel.rollout():
        with rl_otel.trajectory():
            pass
        for milliseconds in (1, 4, 2, 600, 700, 650):
            rl_otel.add("generate", start, start + milliseconds * 1_000_000)
    found = metrics.now()
    slowest = [span for span in spans("generate") if (span.end - span.start) in (4_000_000, 700_000_000)]
    (point,) = found["rl.generate.duration"]
    assert point.exemplars == {(span.trace.hex(), span.span.hex()) for span in slowest}
    for name, span in (("rl.loop.duration", "step"), ("rl.trajectory.duration", "trajectory")):
        ids = {(each.trace.hex(), each.span.hex()) for each in spans(span)}
        assert found[name][0].exemplars
        assert found[name][0].exemplars <= ids
    again = metrics.now()["rl.generate.duration"][0]
    assert (again.proto.count, again.exemplars) == (6, set())


@metrics.exemplars
@pytest.mark.parametrize(("sampler", "filtered", "shown"), [
    ("always_off", "trace_based", False), ("always_off", "always_on", True), ("always_on", "always_off", False),
])  # fmt: skip
def test_which_spans_are_exemplars(sampler: str, filtered: str, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is not sent is in the metrics without exemplars, unless the filter says otherwise."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", filtered)
    rl_otel.shutdown()
    rl_otel.configure(run_dir="runs", run_id="r2")
    with rl_otel.step(0), rl_otel.rollout():
        play(0)
    found = metrics.now(Path("runs/r2"))
    for name in ("rl.loop.duration", "rl.trajectory.duration", "rl.generate.duration"):
        assert bool(found[name][0].exemplars) == shown
        assert found[name][0].proto.count


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_ten_thousand_environments_end_in_an_overflow_series() -> None:
    """Names that never end cost no memory: what comes after the first 200 series shares one, and nothing is lost."""
    with rl_otel.step(0), rl_otel.rollout():
        for number in range(10_000):
            with rl_otel.env_step(f"env-{number}"):
                pass
        for number in range(300):
            play(number, f"env-{number}", calls=1)
    found = metrics.now()
    for name, count in (("rl.env.step.duration", 10_300), ("rl.trajectory.duration", 300)):
        assert len(found[name]) == 201
        assert sums(found, name)[0] == count
        overflow = metrics.one(found, name, {"otel.metric.overflow": True})
        assert overflow.attributes == {"otel.metric.overflow": True}


def test_threads_lose_no_call() -> None:
    """Calls that end on many threads at once, while others are counted, are all in the histogram."""
    from concurrent.futures import ThreadPoolExecutor

    def work(_: Any) -> None:
        for _ in range(500):
            with rl_otel.generate() as generation:
                generation.record(output_tokens=1)

    with ThreadPoolExecutor(8) as pool:
        done = pool.map(work, range(8))
        for _ in range(5):
            rl_otel.flush()
        list(done)
    found = metrics.now()
    assert sums(found, "rl.generate.duration")[0] == 4000
    assert [each.value for each in found["rl.tokens"]] == [4000]


def test_telemetry_counts_itself() -> None:
    """Spans are counted by what became of them, and what we cost is there in seconds."""
    with rl_otel.step(0), rl_otel.train():
        pass
    found = metrics.now()
    states = {each.attributes["rl.telemetry.state"]: each.value for each in found["rl.telemetry.spans"]}
    assert states == {"ended": 2, "sent": 0, "kept": 2, "dropped": 0}
    (spent,) = found["rl.telemetry.overhead"]
    assert 0 < spent.value < 60
