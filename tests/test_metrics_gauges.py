"""Gauges: what the run is doing at the moment of an export."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rl_otel
from rl_otel._timeline import MOST_NAMES
from rl_otel.testing import capture
from tests import metrics

recording = pytest.mark.usefixtures("recording")


def active(found: metrics.Metrics | None = None) -> str:
    """Return the one phase whose gauge is 1; all others are 0."""
    points = (found or metrics.now())["rl.phase.active"]
    assert sorted(point.value for point in points) == [0] * (len(points) - 1) + [1]
    assert all(point.attributes["rl.role"] == "driver" for point in points)
    (phase,) = [point.attributes["rl.phase"] for point in points if point.value]
    return str(phase)


def doing() -> dict[str, int]:
    found = metrics.now()["rl.trajectories.active"]
    return {point.attributes["rl.trajectories.state"]: point.value for point in found if point.value}


@recording
def test_exactly_one_phase_is_active() -> None:
    """Nested phases hide the one around them and give it back; between phases it is `other`, between steps `idle`."""
    seen = []
    with rl_otel.step(0):
        seen.append(active())
        with rl_otel.rollout():
            seen.append(active())
            with rl_otel.phase("grade"):
                seen.append(active())
            seen.append(active())
        seen.append(active())
        with pytest.raises(ZeroDivisionError), rl_otel.train(), rl_otel.optimizer():
            raise ZeroDivisionError
        seen.append(active())
    seen.append(active())
    with rl_otel.eval():
        seen.append(active())
    assert seen == ["other", "rollout", "grade", "rollout", "other", "other", "idle", "eval"]
    assert {point.attributes["rl.phase"] for point in metrics.now()["rl.phase.active"]} == {
        "rollout", "grade", "train", "optimizer", "eval", "other", "idle",
    }  # fmt: skip


@recording
async def test_a_cancelled_phase_gives_back_the_one_around_it() -> None:
    """Cancellation leaves the phases it passes through, whatever task they are in."""
    entered = asyncio.Event()

    async def work() -> None:
        with rl_otel.phase("grade"):
            entered.set()
            await asyncio.sleep(60)

    with rl_otel.step(0), rl_otel.rollout():
        task = asyncio.create_task(work())
        await entered.wait()
        during = await asyncio.to_thread(active)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (during, await asyncio.to_thread(active)) == ("grade", "rollout")


@given(st.lists(st.sampled_from(["open", "close", "fail"]), max_size=30))
def test_the_active_phase_is_the_innermost_open_one(moves: list[str]) -> None:
    """However phases are opened and left, one is 1: the innermost that is open."""
    from rl_otel import _runtime

    with capture() as _, rl_otel.step(0):
        assert _runtime.active is not None
        timeline, opened = _runtime.active.timelines.own, [rl_otel.phase("p0").start()]
        for number, move in enumerate(moves):
            if move == "open":
                opened.append(rl_otel.phase(f"p{number % 4}").start())
            elif len(opened) > 1:
                opened.pop().end(ValueError() if move == "fail" else None)
            assert timeline.phase == opened[-1].name
            assert timeline.phase in timeline.names
        while opened:
            opened.pop().end()
        assert timeline.phase == "other"


@recording
def test_phase_names_without_end_are_bounded() -> None:
    """Past so many names a phase counts as `other`, so that exactly one gauge is 1 and memory is bounded."""
    for number in range(MOST_NAMES + 10):
        with rl_otel.phase(f"phase {number}"):
            pass
    with rl_otel.phase("yet another"):
        found = metrics.now()
    assert active(found) == "other"
    assert len(found["rl.phase.active"]) == MOST_NAMES + 2


@recording
def test_the_age_of_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open phase has its age, nested or not, one that is over 0; so has the oldest trajectory in flight."""
    with rl_otel.train():
        pass
    with rl_otel.step(0), rl_otel.rollout() as rollout, rl_otel.trajectory() as trajectory:
        for span in (rollout, trajectory):
            span.began -= 3_600_000_000_000
        found = metrics.now()
    ages = {point.attributes["rl.phase"]: point.value for point in found["rl.phase.open.duration"]}
    assert ages["train"] == 0
    assert 3600 < ages["rollout"] < 3700
    assert 3600 < found["rl.trajectory.open.duration"][0].value < 3700
    assert metrics.now()["rl.trajectory.open.duration"][0].value == 0


@recording
def test_trajectories_in_flight_are_counted_by_what_they_do() -> None:
    """Each trajectory is counted once: in its call, its reward or wait, or in none of them."""
    openers = [rl_otel.generate, rl_otel.generate, rl_otel.env_step, rl_otel.env_reset, rl_otel.reward, rl_otel.wait]

    def begin(sample: int) -> list[Any]:
        return [rl_otel.trajectory(group="g", sample=sample).start(), openers[sample]().start()]

    with rl_otel.step(0), rl_otel.rollout():
        assert doing() == {}
        opened = [span for sample in range(6) for span in contextvars.copy_context().run(begin, sample)]
        found = doing()
        for span in reversed(opened):
            span.end()
        assert doing() == {}
    assert found == {"generate": 2, "env": 2, "reward": 1, "wait": 1}


@recording
def test_a_trajectory_that_does_two_things_generates() -> None:
    """As in its figures the model comes before the environment; a judge inside a reward is the reward's."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory():
        beside = [opener() for opener in (rl_otel.env_step, rl_otel.generate, rl_otel.wait)]
        for span in beside:
            contextvars.copy_context().run(span.start)
        assert doing() == {"generate": 1}
        for span in beside:
            span.end()
        env = rl_otel.env_step().start()
        with rl_otel.generate(purpose="user"):
            assert doing() == {"env": 1}
        env.end()
        with rl_otel.reward(), rl_otel.generate(purpose="judge"):
            assert doing() == {"reward": 1}
        assert doing() == {"other": 1}
