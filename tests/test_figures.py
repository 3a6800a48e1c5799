"""Figures of trajectories, rollouts, steps and runs, against sums made by hand and by counting."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import semconv
from rl_otel._figures import (
    Direct,
    Memory,
    Phase,
    RunFigures,
    StepFigures,
    Trajectory,
    rollout,
    rollout_attributes,
    run,
    step,
    summary,
    trajectory_attributes,
    trajectory_of,
)
from rl_otel._timeline import MOST_NAMES

S = 1_000_000_000
ROOT = b"stepspan"


def phase(name: str, start: int, end: int, span: str = "", parent: bytes = ROOT, **attributes: Any) -> Phase:
    return Phase(name, (span or f"{name}{start}").encode(), parent, start, end, attributes)


def played(number: int, start: int, end: int, /, **fields: Any) -> Trajectory:
    fields.setdefault("parts", {"generate": (end - start) // 2, "other": end - start - (end - start) // 2})
    return Trajectory(f"0/{number}", bytes([number]), start, end, **fields)


def one_step(phases: list[Phase], end: int = 100, **attributes: Any) -> StepFigures:
    return step(0, 0, end, attributes, phases=phases, trajectories=[])


# --- unhappy paths ---


def test_unknown_children_leave_every_aggregate_out() -> None:
    """One closed trajectory whose children are not known makes the parts absent, not wrong; durations stay."""
    figures = rollout([played(1, 0, 10), played(2, 0, 20, parts=None)], 0, 20)
    assert figures.parts == {}
    assert figures.env_ratio is None
    assert (figures.duration.p50, figures.duration.max) == (10, 20)  # type: ignore[union-attr]


def test_nothing_known_is_nothing_said() -> None:
    """An empty rollout has no attributes at all: nothing unknown is written as 0."""
    figures = rollout([], 0, 10)
    assert not figures.known
    assert rollout_attributes(figures) == {}


def test_a_phase_that_sticks_out_of_its_step_is_clipped() -> None:
    """What a phase did before and after the step is no part of the step's time."""
    figures = one_step([phase("train", -50, 10), phase("eval", 90, 500)])
    assert [(row.name, row.time) for row in figures.rows] == [("train", 10), ("eval", 10)]
    assert figures.other == 80


def test_phases_that_name_each_other_as_parent_do_not_hang() -> None:
    """A journal with a cycle in it gives rows all the same."""
    knot = [phase("a", 0, 5, span="a", parent=b"b"), phase("b", 0, 5, span="b", parent=b"a")]
    assert one_step(knot).other == 100


def test_gpu_time_is_blank_until_all_of_it_is_known() -> None:
    """A sum of event times that lacks one of its terms is not shown as the whole."""
    resolved = {semconv.GPU_DURATION: 0.5}
    half = one_step([phase("train", 0, 5, **resolved), phase("train", 5, 9)])
    whole = one_step([phase("train", 0, 5, **resolved), phase("train", 5, 9, **resolved)])
    assert (half.rows[0].gpu, whole.rows[0].gpu) == (None, S)


# --- trajectories ---


def test_a_trajectory_survives_the_way_through_its_attributes() -> None:
    """The report reads back exactly what the training process knew, to the nanosecond."""
    parts = {"generate": 123_456_789_012_345, "env": 1, "other": 0}
    before = Trajectory(
        "17/3", b"t", 5, 5 + sum(parts.values()), parts, 3, 10, 20, -0.5, "truncated", "eval", top=False
    )
    attributes = {**trajectory_attributes(before), semconv.TRAJECTORY_ID: "17/3", semconv.MODE: "eval"}
    assert trajectory_of(b"t", before.start, before.end, attributes, parent_is_trajectory=True) == before
    assert attributes["rl.trajectory.env.duration"] == 1e-9
    assert attributes["rl.trajectory.turns"] == 3


def test_a_trajectory_without_parts_comes_back_without_parts() -> None:
    """Unknown children stay unknown."""
    before = Trajectory("t", b"t", 0, 5)
    assert trajectory_attributes(before) == {"rl.trajectory.outcome": "completed"}
    assert trajectory_of(b"t", 0, 5, {semconv.TRAJECTORY_ID: "t"}) == before


# --- rollouts ---


def test_a_part_that_only_some_have_counts_zero_for_the_others() -> None:
    """A closed trajectory without environment time is a zero among the others, and a part that none has is absent."""
    figures = rollout([played(1, 0, 10, parts={"env": 8, "other": 2}), played(2, 0, 10, parts={"other": 10})], 0, 10)
    assert (figures.parts["env"].mean, figures.parts["env"].p50, figures.parts["env"].max) == (4, 0, 8)
    assert set(figures.parts) == {"env", "other"}


def test_the_tail_is_the_excess_of_the_one_that_held_everyone_up() -> None:
    """Of 64 trajectories one runs 20 times as long: it is named first, and the tail is what it ran on alone."""
    trajectories = [played(k, 0, S) for k in range(63)] + [played(63, 0, 20 * S)]
    figures = rollout(trajectories, 0, 20 * S)
    assert figures.tail == 19 * S
    assert figures.slowest[0].id == "0/63"
    assert len(figures.slowest) == 5
    assert rollout_attributes(figures)["rl.rollout.tail.duration"] == 19.0


def test_a_trajectory_inside_another_counts_for_tokens_alone() -> None:
    """Percentiles and counts are over top-level trajectories; a nested agent's tokens are tokens of the rollout."""
    figures = rollout([played(1, 0, 10, output_tokens=5), played(2, 1, 2, top=False, output_tokens=7)], 0, 2 * S)
    assert (figures.count, figures.output_tokens, figures.output_rate) == (1, 12, 6.0)
    assert figures.input_tokens is None


def test_a_batched_rollout_is_known_from_its_direct_calls() -> None:
    """One generate call for the whole batch gives sequences, tokens and the environment's share; a judge gives none."""
    direct = Direct()
    direct.add("generate", 0, 3 * S, {semconv.SEQUENCES: 8, semconv.OUTPUT_TOKENS: [10] * 8})
    direct.add("generate", 3 * S, 4 * S, {semconv.PURPOSE: "judge", semconv.OUTPUT_TOKENS: 99})
    direct.add("env.step", 4 * S, 8 * S, {})
    figures = rollout([], 0, 8 * S, {semconv.REWARD_MEAN: 0.5}, direct)
    assert (figures.count, figures.sequences, figures.output_tokens, figures.output_rate) == (None, 8, 80, 10.0)
    assert (figures.env_ratio, figures.reward) == (0.5, 0.5)


def test_rollout_attributes_have_their_names_and_types() -> None:
    """What a rollout's span says: seconds as floats, counts as ints."""
    trajectories = [
        played(1, 0, 2 * S, parts={"generate": S, "env": S, "other": 0}, input_tokens=3, output_tokens=4),
        played(2, 0, 4 * S, parts={"generate": S, "env": S, "other": 2 * S}, outcome="error"),
    ]
    attributes = rollout_attributes(rollout(trajectories, 0, 4 * S))
    assert attributes == {
        "rl.rollout.trajectories": 2,
        "rl.rollout.input_tokens": 3,
        "rl.rollout.output_tokens": 4,
        "rl.rollout.output_tokens.rate": 1.0,
        "rl.rollout.env_time.ratio": 0.5,
        "rl.rollout.tail.duration": 0.0,
        "rl.rollout.outcome.completed": 1,
        "rl.rollout.outcome.error": 1,
        **_spread("rl.rollout.trajectory.duration", 3.0, 2.0, 4.0),
        **_spread("rl.rollout.generate.duration", 1.0, 1.0, 1.0),
        **_spread("rl.rollout.env.duration", 1.0, 1.0, 1.0),
        **_spread("rl.rollout.other.duration", 1.0, 0.0, 2.0),
    }
    assert type(attributes["rl.rollout.trajectories"]) is int
    assert type(attributes["rl.rollout.generate.duration.max"]) is float


def _spread(name: str, mean: float, p50: float, longest: float) -> dict[str, float]:
    return {f"{name}.mean": mean, f"{name}.p50": p50, f"{name}.p90": longest, f"{name}.max": longest}


def test_several_rollouts_of_a_step_are_one_over_the_union_of_their_walls() -> None:
    """Tokens per second of two rollouts that overlap are over the time in which either ran."""
    figures = step(
        3,
        0,
        10 * S,
        {},
        phases=[phase("rollout", 0, 3 * S), phase("rollout", 2 * S, 4 * S)],
        trajectories=[played(1, 0, 3 * S, output_tokens=40), played(2, 2 * S, 4 * S, output_tokens=40)],
    )
    assert figures.training is not None
    assert (figures.training.count, figures.training.output_rate) == (2, 20.0)
    assert [(row.count, row.time) for row in figures.rows] == [(2, 4 * S)]
    assert figures.overlap == 0


def test_what_a_rollout_dropped_is_told_by_reason() -> None:
    """Dropped trajectories are counted over all rollouts of the step."""
    name = semconv.TRAJECTORIES_DROPPED.format(reason="zero_variance")
    figures = rollout([], 0, 1, {name: 3, semconv.ROLLOUT_TRAJECTORIES: 8})
    assert (figures.count, figures.dropped) == (8, {"zero_variance": 3})


# --- steps ---

moments = st.integers(-10, 110)
names = st.sampled_from(["rollout", "train", "optimizer", "eval"])
forests = st.lists(st.tuples(names, moments, moments, st.integers(-1, 5)), max_size=7)


def forest(drawn: list[tuple[str, int, int, int]]) -> list[Phase]:
    spans = [str(number).encode() for number in range(len(drawn))]
    return [
        Phase(name, spans[k], spans[parent] if 0 <= parent < k else ROOT, min(a, b), max(a, b))
        for k, (name, a, b, parent) in enumerate(drawn)
    ]


@given(forests)
def test_rows_minus_overlap_plus_other_is_the_total(drawn: list[tuple[str, int, int, int]]) -> None:
    """Whatever nests, overlaps or sticks out, the table adds up and no row is longer than the step."""
    phases = forest(drawn)
    figures = one_step(phases)
    at_top = [row.time for row in figures.rows if row.depth == 0]
    assert sum(at_top) - figures.overlap + figures.other == figures.total == 100
    assert sum(row.count for row in figures.rows) == len(phases)
    assert all(0 <= row.time <= 100 for row in figures.rows)
    assert min(figures.overlap, figures.other) >= 0
    covered = {t for p in phases if p.parent == ROOT for t in range(max(p.start, 0), min(p.end, 100))}
    assert figures.other == 100 - len(covered)


def test_a_nested_phase_is_a_row_of_its_own_under_the_one_around_it() -> None:
    """Nested rows follow their parent's row, one for each place in the nesting, and are not added again."""
    phases = [
        phase("logprobs", 40, 45, parent=b"T2"),
        phase("train", 10, 30, "T1"),
        phase("train", 30, 60, "T2"),
        phase("logprobs", 12, 20, parent=b"T1"),
        phase("logprobs", 0, 10),
    ]
    rows = one_step(phases).rows
    assert [(row.name, row.depth, row.count, row.time) for row in rows] == [
        ("logprobs", 0, 1, 10),
        ("train", 0, 2, 50),
        ("logprobs", 1, 2, 13),
    ]
    assert one_step(phases).timing == {"logprobs": 23, "train": 50}


def test_memory_is_the_highest_peak_of_all_processes_and_time_is_the_steps_own() -> None:
    """Another rank's phases raise the peak and leave the rows alone; another role's are no part of the timeline."""
    figures = step(
        0,
        0,
        100,
        {},
        phases=[
            phase("train", 0, 50, **{semconv.GPU_PEAK: 5, semconv.GPU_PEAK_RATIO: 0.1}),
            phase("rollout", 0, 99, **{semconv.ROLE: "generator"}),
        ],
        trajectories=[],
        elsewhere=[phase("train", 0, 99, **{semconv.GPU_PEAK: 7, semconv.GPU_PEAK_RATIO: 0.2})],
    )
    assert [(row.name, row.time, row.memory) for row in figures.rows] == [("train", 50, Memory(7, 0.2))]
    assert figures.other == 50


def test_training_figures_never_contain_the_evaluation() -> None:
    """Trajectories and rollouts of an eval have figures of their own; the eval's time is a row like any other."""
    evaluating = {semconv.MODE: semconv.MODE_EVAL}
    figures = step(
        1,
        0,
        100 * S,
        {semconv.LOSS: 0.5},
        phases=[
            phase("rollout", 0, 10 * S),
            phase("eval", 20 * S, 60 * S, "E", **evaluating),
            phase("rollout", 20 * S, 50 * S, parent=b"E", **{**evaluating, semconv.GPU_PEAK: 1 << 30}),
        ],
        trajectories=[
            played(1, 0, 10 * S, reward=1.0),
            played(2, 20 * S, 50 * S, reward=3.0, mode="eval", parts={"generate": S, "env": 3 * S, "other": 26 * S}),
        ],
    )
    assert figures.training is not None
    assert figures.training.count == 1
    assert figures.reward == 1.0
    assert summary(figures) == {
        "timing/rollout": 10.0,
        "timing/eval": 40.0,
        "timing/step": 100.0,
        "timing/other": 50.0,
        "generate/trajectory_llm_time_mean": 5.0,
        "generate/trajectory_llm_time_p90": 5.0,
        "generate/trajectory_llm_time_max": 5.0,
        "eval/timing/rollout": 30.0,
        "eval/generate/trajectory_llm_time_mean": 1.0,
        "eval/generate/trajectory_llm_time_p90": 1.0,
        "eval/generate/trajectory_llm_time_max": 1.0,
        "eval/generate/trajectory_env_time_mean": 3.0,
        "eval/generate/trajectory_env_time_p90": 3.0,
        "eval/generate/trajectory_env_time_max": 3.0,
        "eval/generate/frac_time_in_env": 0.75,
        "eval/reward": 3.0,
    }


def test_the_summary_speaks_gib() -> None:
    """Peak memory leaves in GiB under the phase's name."""
    flat = summary(one_step([phase("train", 0, 9, **{semconv.GPU_PEAK: 3 << 29})]))
    assert flat["gpu/train/peak_memory_gib"] == 1.5


def test_the_summary_tells_how_busy_the_gpus_were() -> None:
    """Of several spans of a phase the mean over their time; a phase without samples has none."""
    busy = [
        phase("train", 0, 1, **{semconv.GPU_UTILIZATION: 0.25}),
        phase("train", 1, 4, **{semconv.GPU_UTILIZATION: 0.75}),
    ]
    flat = summary(one_step([*busy, phase("train", 4, 9), phase("data", 0, 1)]))
    assert flat["gpu/utilization/train"] == 0.625
    assert "gpu/utilization/data" not in flat


def test_the_trainers_own_reward_comes_before_ours() -> None:
    """What the step recorded is shown, not a mean of what its trajectories recorded."""
    recorded = {semconv.REWARD_MEAN: 0.25, semconv.SAMPLES: 8}
    figures = step(0, 0, 9, recorded, phases=[], trajectories=[played(1, 0, 9, reward=1.0)])
    assert (figures.reward, figures.samples, figures.loss) == (0.25, 8, None)


# --- runs ---

lengths = st.integers(0, 30)
segments = st.lists(st.tuples(st.booleans(), lengths, lengths, forests), max_size=6)


@given(segments)
def test_setup_phases_other_and_between_are_the_whole_run(drawn: list[tuple[bool, int, int, Any]]) -> None:
    """However steps and outside phases follow each other, the shares of the run add up to all of it."""
    figures, now = RunFigures(0), 0
    for is_step, gap, length, phases in drawn:
        begun, now = now + gap, now + gap + length
        if is_step:
            figures.add(step(0, begun, now, {}, phases=forest(phases), trajectories=[]))
        else:
            figures.add_outside(phase("eval", begun - 3, now, parent=b""))
    time = sum(each.time for each in figures.phases)
    assert figures.setup + time - figures.overlap + figures.other + figures.between == figures.wall
    assert min(figures.setup, figures.between, figures.overlap, figures.other) >= 0
    assert figures.wall == now - figures.began


def test_the_first_step_is_left_out_of_medians() -> None:
    """The first step warms up: it has a figure of its own, and medians and the slowest are of the others."""
    steps = [
        step(k, start, start + total, {}, phases=[phase("train", start, start + total - 1)], trajectories=[])
        for k, (start, total) in enumerate([(100, 90), (200, 10), (300, 30), (400, 20)])
    ]
    figures = run(
        steps,
        began=40,
        outside=[(phase("checkpoint", 60, 80, parent=b""), None), (phase("checkpoint", 430, 440, parent=b""), None)],
    )
    assert (figures.steps, figures.first, figures.median, figures.slowest) == (4, 90, 20, (30, 2))
    assert [(each.name, each.time, each.median) for each in figures.phases] == [
        ("checkpoint", 30, None),
        ("train", 146, 19),
    ]
    assert (figures.wall, figures.setup, figures.other, figures.between) == (400, 40, 4, 180)


@pytest.mark.once
def test_a_long_run_keeps_integers_not_steps() -> None:
    """A step costs the run a few dozen bytes: a hundred thousand of them are a few megabytes."""
    figures = RunFigures(0)
    tracemalloc.start()
    for k in range(3_000):
        figures.add(step(k, k * 10, k * 10 + 9, {}, phases=[phase("train", k * 10, k * 10 + 5)], trajectories=[]))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 3_000 * 100
    assert figures.wall == 29_999


def test_names_without_end_share_other() -> None:
    """A host that numbers its phases costs a run a bounded number of entries, and the shares still add up."""
    figures = RunFigures(0)
    for k in range(300):
        phases = [phase(f"phase {k}", k * 10, k * 10 + 4, **{semconv.GPU_PEAK: 1})]
        figures.add(step(k, k * 10, k * 10 + 10, {}, phases=phases, trajectories=[]))
        figures.add_outside(phase(f"outside {k}", k * 10, k * 10 + 4, parent=b""))
    assert len(figures.phases) == len(figures.memory) == MOST_NAMES
    time = sum(each.time for each in figures.phases)
    assert figures.setup + time - figures.overlap + figures.other + figures.between == figures.wall == 3_000


def test_evaluations_are_counted_wherever_they_ran() -> None:
    """An eval inside a step and one outside both count, with the first and the last reward."""
    inside = step(0, 0, 10, {}, phases=[phase("eval", 0, 5)], trajectories=[played(1, 0, 5, mode="eval", reward=0.25)])
    outside = rollout([played(1, 20, 25, mode="eval", reward=0.5)], 20, 25)
    figures = run([inside], 0, [(phase("eval", 20, 25, parent=b""), outside)])
    assert (figures.evaluations, figures.first_evaluation, figures.last_evaluation) == (2, 0.25, 0.5)
