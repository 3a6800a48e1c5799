"""Figures, from the spans of a run to what is printed: computed again from the journal, with code of the test's own."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rl_otel
from rl_otel.testing import capture
from tests.clock import SECOND, play, running

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rl_otel.testing import Recorded, Traces

PARTS = {"generate": "generate", "env.step": "env", "env.reset": "env", "reward": "reward", "wait": "wait"}
PRECEDENCE = ["generate", "env", "reward", "wait"]
CALLS = [rl_otel.generate, rl_otel.env_step, rl_otel.env_reset, rl_otel.reward, rl_otel.wait]
PHASES = [rl_otel.rollout, rl_otel.train, rl_otel.optimizer, rl_otel.weight_sync, rl_otel.eval]
MICROSECOND = 1000

spans_in_time = st.tuples(st.integers(0, 900), st.integers(0, 400))  # start and duration, in microseconds


def swept(spans: Iterable[Recorded], around: Recorded) -> list[tuple[int, set[str]]]:
    """Return the time of `around` in pieces between which nothing changes: length, names of the spans open then."""
    spans = list(spans)
    bounds = {around.start, around.end, *(edge for span in spans for edge in (span.start, span.end))}
    inside = sorted(edge for edge in bounds if around.start <= edge <= around.end)
    return [
        (after - before, {span.name for span in spans if span.start <= before and after <= span.end})
        for before, after in pairwise(inside)
    ]


def covered(spans: Iterable[Recorded], around: Recorded) -> int:
    return sum(length for length, names in swept(spans, around) if names)


def close(seconds: float, nanoseconds: int) -> bool:
    """Whether two times are the same to a microsecond."""
    return abs(seconds * 1e9 - nanoseconds) <= MICROSECOND


# --- whatever overlaps ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(CALLS), spans_in_time), max_size=8))
def test_the_parts_of_a_trajectory_add_up_to_it(calls: list[tuple[Any, tuple[int, int]]]) -> None:
    """Each instant is one part's: generate before env, reward, wait, and else `other`; what is late gets none."""
    with running() as clock, capture() as traces, rl_otel.rollout():
        trajectory = (rl_otel.trajectory, 0, 900 * MICROSECOND)
        inside = [(call, start * MICROSECOND, (start + length) * MICROSECOND) for call, (start, length) in calls]
        _play_inside(clock, trajectory, inside)

    span = traces.one("trajectory")
    in_time = [child for child in span.children if child.end <= span.end]
    assert [child for child in span.children if "rl.late" not in child.attributes] == in_time
    expected = dict.fromkeys([PARTS[child.name] for child in in_time], 0) | {"other": 0}
    for length, names in swept(in_time, span):
        parts = {PARTS[name] for name in names}
        expected[next((part for part in PRECEDENCE if part in parts), "other")] += length
    found = {
        name.split(".")[2]: value
        for name, value in span.attributes.items()
        if name.startswith("rl.trajectory.") and name.endswith(".duration")
    }
    assert found.keys() == expected.keys()
    assert all(close(found[part], expected[part]) for part in expected)
    assert close(sum(found.values()), span.duration)
    assert all(0 <= value * 1e9 <= span.duration + MICROSECOND for value in found.values())


@given(st.lists(st.tuples(st.sampled_from(PHASES), spans_in_time), max_size=6))
def test_the_phases_of_a_step_and_other_add_up_to_it(phases: list[tuple[Any, tuple[int, int]]]) -> None:
    """The union of the top-level phases and `other` are the step; no phase has more than all of it."""
    with running() as clock, capture() as traces, rl_otel.step(0) as step:
        play(clock, [(phase, start * MICROSECOND, (start + length) * MICROSECOND) for phase, (start, length) in phases])
        clock.time += 100 * MICROSECOND

    root, summary = traces.one("step"), step.summary
    assert close(summary["timing/step"], root.duration)
    assert close(summary["timing/other"], root.duration - covered(root.children, root))
    for name in {child.name for child in root.children}:
        assert close(summary[f"timing/{name}"], covered(traces.all(name), root))
        assert summary[f"timing/{name}"] <= summary["timing/step"]


def _play_inside(clock: Any, around: tuple[Any, int, int], inside: list[tuple[Any, int, int]]) -> None:
    """Play `inside` as tasks within a span that may end before them."""
    opener, _, end = around
    handle = opener().start()
    ends = [(lambda: _Ends(handle), end, end)]
    play(clock, [*(each for each in inside if each[1] < end), *ends])


class _Ends:
    """Stands for a span where only an end of it is to be played."""

    def __init__(self, handle: Any) -> None:
        self.start = lambda: None
        self.end = handle.end


# --- model time and environment time ----------------------------------------------------------------------------------


def test_known_sleeps_are_found_in_their_parts(traces: Traces) -> None:
    """Real time in reset, generate, step, reward and between them goes to its part, and all of it to one."""
    with rl_otel.rollout(), rl_otel.trajectory():
        with rl_otel.env_reset():
            time.sleep(0.02)
        with rl_otel.generate():
            time.sleep(0.04)
        with rl_otel.env_step():
            time.sleep(0.01)
        with rl_otel.reward():
            time.sleep(0.03)
        time.sleep(0.05)

    span = traces.one("trajectory")
    least = {"env": 0.03, "generate": 0.04, "reward": 0.03, "other": 0.05}
    found = {part: span.attributes[f"rl.trajectory.{part}.duration"] for part in least}
    assert all(least[part] <= found[part] for part in least)
    assert close(sum(found.values()), span.duration)
    assert "rl.trajectory.wait.duration" not in span.attributes


def test_where_the_calls_are_not_known_there_is_no_split(traces: Traces) -> None:
    """A trajectory added afterwards has no parts, and its rollout no aggregate of them: no guess, and no 0."""
    with rl_otel.rollout():
        with rl_otel.trajectory("known"), rl_otel.generate():
            pass
        end = time.time_ns()
        rl_otel.add("trajectory", end - 1000, end, id="added")

    added = next(span for span in traces.spans if span.attributes.get("rl.trajectory.id") == "added")
    assert not [name for name in added.attributes if name.endswith(".duration")]
    rollout = traces.one("rollout").attributes
    assert rollout["rl.rollout.trajectories"] == 2
    assert "rl.rollout.trajectory.duration.max" in rollout
    parts = ("rl.rollout.generate", "rl.rollout.env", "rl.rollout.other")
    assert not [name for name in rollout if name.startswith(parts)]


# --- concurrency ------------------------------------------------------------------------------------------------------


def test_32_calls_at_once_take_the_time_of_one(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """32 calls of 6 s in a rollout of 6.5 s: the step took 6.5 s, each trajectory 6 s; nothing is above 100 %."""
    monkeypatch.setenv("RL_OTEL_PRINT", "1")
    with running() as clock, capture() as traces, rl_otel.step(0) as step, rl_otel.rollout():

        def sampled() -> Any:
            return _Both(rl_otel.trajectory(), rl_otel.generate())

        play(clock, [(sampled, i * SECOND // 64, i * SECOND // 64 + 6 * SECOND) for i in range(32)])
        clock.time += SECOND // 64

    rollout = traces.one("rollout").attributes
    assert step.summary["timing/rollout"] == step.summary["timing/step"] == 6.5
    assert step.summary["generate/trajectory_llm_time_mean"] == 6.0
    assert rollout["rl.rollout.generate.duration.mean"] * rollout["rl.rollout.trajectories"] == 192.0
    assert sum(span.duration for span in traces.all("generate")) == 192 * SECOND
    printed = capsys.readouterr().out
    assert re.search(r"rollout: +6\.50s\n", printed)
    assert re.search(r"total: +6\.50s\n", printed)
    assert max(map(float, re.findall(r"\( *([0-9.]+)%\)", printed))) <= 100.0


class _Both:
    """Two spans, one inside the other, opened and ended together."""

    def __init__(self, outer: Any, inner: Any) -> None:
        self._handles = outer, inner

    def start(self) -> None:
        for handle in self._handles:
            handle.start()

    def end(self) -> None:
        for handle in reversed(self._handles):
            handle.end()


def test_the_one_that_held_everyone_up_is_named(traces: Traces) -> None:
    """Of 64 trajectories one is 20 times slower: its id, the tail it causes, and links to it and the next four."""
    lengths = {i: SECOND + i * 1000 for i in range(64)} | {37: 20 * SECOND}
    with running() as clock, rl_otel.step(0), rl_otel.rollout():
        play(clock, [(lambda i=i: rl_otel.trajectory(group="task", sample=i), 0, lengths[i]) for i in range(64)])

    rollout = traces.one("rollout")
    by_id = {span.attributes["rl.trajectory.id"]: span for span in traces.all("trajectory")}
    slowest = sorted(by_id, key=lambda id_: -by_id[id_].duration)[:5]
    assert slowest[0] == "task/37"
    assert [link.attributes for link in rollout.links] == [
        {"rl.trajectory.id": id_, "rl.trajectory.duration": by_id[id_].duration / SECOND} for id_ in slowest
    ]
    assert [(link.trace.hex(), link.span.hex()) for link in rollout.links] == [
        (rollout.trace_id, by_id[id_].span_id) for id_ in slowest
    ]
    ends = sorted(span.end for span in by_id.values())
    assert close(rollout.attributes["rl.rollout.tail.duration"], ends[-1] - ends[57])  # the 58th of 64 is the p90
    assert rollout.attributes["rl.rollout.trajectory.duration.max"] == 20.0
    assert close(rollout.attributes["rl.rollout.trajectory.duration.p50"], sorted(lengths.values())[31])
    assert close(rollout.attributes["rl.rollout.trajectory.duration.p90"], sorted(lengths.values())[57])


# --- evaluation -------------------------------------------------------------------------------------------------------


def test_evaluation_is_in_no_training_figure(traces: Traces) -> None:
    """Trajectories, tokens, rewards and times of an eval have words of their own; the training's do not change."""
    summaries = []
    for evaluates in (False, True):
        with running() as clock, rl_otel.step(int(evaluates)) as step:
            with rl_otel.rollout() as rollout:
                _played(clock, generate=2.0, env=1.0, tokens=30)
                rollout.record(rewards=[1.0])
            if evaluates:
                with rl_otel.eval() as evaluation, rl_otel.train():
                    _played(clock, generate=7.0, env=9.0, tokens=500)
                    evaluation.record(rewards=[0.25])
        summaries.append(step.summary)

    trained, both = summaries
    extra = both.keys() - trained.keys()
    assert {key for key in extra if not key.startswith("eval/")} == {"timing/eval"}
    assert {**both, "timing/step": 3.0} == {**trained, **{key: both[key] for key in extra}}
    assert both["eval/generate/trajectory_llm_time_max"] == 7.0
    assert both["eval/generate/trajectory_env_time_max"] == 9.0
    assert both["eval/reward"] == 0.25
    assert both["eval/timing/train"] == both["timing/eval"] == 16.0
    assert traces.all("rollout")[1].attributes["rl.rollout.output_tokens"] == 30
    inside = [span for span in traces.spans if span.attributes.get("rl.mode") == "eval"]
    assert sorted(span.name for span in inside) == ["env.step", "eval", "generate", "train", "trajectory"]


def _played(clock: Any, *, generate: float, env: float, tokens: int) -> None:
    with rl_otel.trajectory():
        with rl_otel.generate() as generation:
            clock.pass_by(generate)
            generation.record(output_tokens=tokens)
        with rl_otel.env_step():
            clock.pass_by(env)


# --- one number everywhere --------------------------------------------------------------------------------------------


def test_table_summary_and_spans_say_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """What is printed, what `step.summary` returns and what the spans carry are the same numbers."""
    monkeypatch.setenv("RL_OTEL_PRINT", "1")
    with running() as clock, capture() as traces:
        clock.pass_by(5.0)
        with rl_otel.step(0) as step:
            with rl_otel.rollout():
                for k in range(10):
                    clock.pass_by(0.1)
                    _played(clock, generate=1.0 + k, env=0.5, tokens=100)
            for _ in range(3):
                with rl_otel.train():
                    clock.pass_by(2.0)
                    with rl_otel.logprobs():
                        clock.pass_by(0.25)
            clock.pass_by(0.5)
            step.record(loss=0.25, reward=0.5, samples=10)
        summary = step.summary

    expected = {
        "timing/rollout": 61.0,
        "timing/train": 6.75,
        "timing/logprobs": 0.75,
        "timing/other": 0.5,
        "timing/step": 68.25,
        "generate/trajectory_llm_time_mean": 5.5,
        "generate/trajectory_llm_time_p90": 9.0,
        "generate/trajectory_llm_time_max": 10.0,
        "generate/trajectory_env_time_mean": 0.5,
        "generate/trajectory_env_time_p90": 0.5,
        "generate/trajectory_env_time_max": 0.5,
        "generate/frac_time_in_env": 5 / 60,
    }
    assert summary == pytest.approx(expected, abs=1e-9)
    assert {type(value) for value in summary.values()} == {float}
    rollout = traces.one("rollout").attributes
    for part, word in (("generate", "llm"), ("env", "env")):
        for figure in ("mean", "p90", "max"):
            name = f"generate/trajectory_{word}_time_{figure}"
            assert rollout[f"rl.rollout.{part}.duration.{figure}"] == summary[name]
    assert rollout["rl.rollout.env_time.ratio"] == summary["generate/frac_time_in_env"]
    step_table, summary_table = capsys.readouterr().out.split("Training Summary")
    rows = {name: float(seconds) for name, seconds in re.findall(r"^ +(\w+)(?: x3)?: +([0-9.]+)s$", step_table, re.M)}
    summary["timing/total"] = summary["timing/step"]
    assert rows == {name: summary[f"timing/{name}"] for name in ("rollout", "train", "logprobs", "other", "total")}
    assert "10 trajectories: p50 5.5s  p90 9.5s  max 10s, env 8 %, tail 11s, slowest 9" in step_table
    shares = dict(re.findall(r"^ +(.+): +[0-9.]+s +\( *([0-9.]+)%\)", summary_table, re.M))
    assert sum(map(float, shares.values())) == pytest.approx(100.0, abs=0.3)
    assert shares["Cumul. rollout"] == f"{100 * 61.0 / 73.25:.1f}"
