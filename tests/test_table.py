"""The printed table and summary, as exact text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import semconv
from rl_otel._figures import Phase, StepFigures, Trajectory, run, step
from rl_otel._table import WIDTH, exact, run_lines, scaled, short, step_lines, wrapped

S = 1_000_000_000
GIB = 1 << 30


def phase(name: str, start: float, end: float, span: str = "", parent: str = "", **attributes: Any) -> Phase:
    return Phase(name, (span or f"{name}{start}").encode(), parent.encode(), int(start * S), int(end * S), attributes)


def memory(gib: float, ratio: float) -> dict[str, Any]:
    return {semconv.GPU_PEAK: int(gib * GIB), semconv.GPU_PEAK_RATIO: ratio}


def played(number: int, end: float, **fields: Any) -> Trajectory:
    whole = int(end * S)
    parts = {"generate": whole * 22 // 25, "env": whole * 3 // 25}
    return Trajectory(
        f"17/{number}", b"%d" % number, 0, whole, {**parts, "other": whole - sum(parts.values())}, **fields
    )


def text(lines: list[str]) -> str:
    return "\n".join(lines)


def one_step(phases: list[Phase], trajectories: list[Trajectory], end: float, **attributes: Any) -> StepFigures:
    return step(0, 0, int(end * S), attributes, phases=phases, trajectories=trajectories)


def test_a_step_that_knows_nothing_prints_no_zeros() -> None:
    """Without loss, reward, phases or trajectories there is the step's time and nothing else."""
    assert text(step_lines(one_step([], [], 1.5))) == (
        "Step   0\n"
        "  Phase                Time\n"
        "  --------------------------\n"
        "  other:              1.50s\n"
        "  total:              1.50s"
    )


def test_a_step_with_memory_reads_as_in_the_manual() -> None:
    """The whole table: rows, nested and repeated phases, memory in GiB and per cent, and one sentence in two lines."""
    phases = [
        phase("rollout", 0, 6.35, **memory(14, 0.147)),
        *(phase("train", 6.35 + k, 7.35 + k, f"T{k}", **memory(51.7, 0.544)) for k in range(16)),
        phase("logprobs", 7, 8, parent="T0"),
        phase("optimizer", 22, 24),
    ]
    outcomes = {3: "error", 4: "timeout", 5: "aborted", 6: "truncated", 7: "truncated"}
    trajectories = [played(k, 4 + k / 20, output_tokens=200, outcome=outcomes.get(k, "completed")) for k in range(46)]
    attributes = {semconv.LOSS: -0.0036, semconv.REWARD_MEAN: 0.075, semconv.SAMPLES: 160}
    assert text(step_lines(one_step(phases, trajectories, 24.01, **attributes))) == (
        "Step   0 | Loss: -0.0036 | Reward: +0.075 | Samples: 160\n"
        "  Phase                Time    Peak Mem\n"
        "  --------------------------------------\n"
        "  rollout:            6.35s,  14.00 GiB  (14.7%)\n"
        "  train x16:         16.00s,  51.70 GiB  (54.4%)\n"
        "    logprobs:         1.00s\n"
        "  optimizer:          2.00s\n"
        "  overlap:            0.35s\n"
        "  other:              0.01s\n"
        "  total:             24.01s\n"
        "  46 trajectories: p50 5.1s  p90 6.0s  max 6.2s, env 12 %, tail 0.2s,\n"
        "    slowest 17/45; 2 failed, 1 aborted, 4 % truncated; 9.2k tok out, 1.4k tok/s"
    )


def test_gpu_time_has_a_column_only_where_it_is_known() -> None:
    """Event time stands beside wall time, and a blank cell takes no comma."""
    phases = [
        phase("data", 0, 1, **memory(2, 0.02)),
        phase("train", 1, 3, **{semconv.GPU_DURATION: 1.5}, **memory(60, 0.75)),
    ]
    assert text(step_lines(one_step(phases, [], 3))) == (
        "Step   0\n"
        "  Phase                Time      GPU    Peak Mem\n"
        "  -----------------------------------------------\n"
        "  data:               1.00s             2.00 GiB  (2.0%)\n"
        "  train:              2.00s,   1.50s,  60.00 GiB  (75.0%)\n"
        "  other:              0.00s\n"
        "  total:              3.00s"
    )


def test_device_memory_stands_beside_torchs_where_it_is_well_above() -> None:
    """An engine that sleeps, or another process, shows in a column of its own; a gibibyte more or less does not."""
    reserved, used = semconv.GPU_RESERVED_PEAK, semconv.GPU_DEVICE_USED
    phases = [
        phase("rollout", 0, 1, **{used: 90 * GIB}),
        phase("train", 1, 3, **memory(60, 0.75), **{reserved: 62 * GIB, used: 70 * GIB}),
        phase("optimizer", 3, 4, **memory(60, 0.8), **{reserved: 62 * GIB, used: 63 * GIB - 1}),
    ]
    figures = one_step(phases, [], 4)
    assert text(step_lines(figures)) == (
        "Step   0\n"
        "  Phase                Time    Peak Mem               Device\n"
        "  -----------------------------------------------------------\n"
        "  rollout:            1.00s                        90.00 GiB\n"
        "  train:              2.00s,  60.00 GiB  (75.0%),  70.00 GiB\n"
        "  optimizer:          1.00s,  60.00 GiB  (80.0%)\n"
        "  other:              0.00s\n"
        "  total:              4.00s"
    )
    assert [line for line in run_lines(run([figures], 0)) if "mem" in line] == [
        "  Device mem (rollout):           90.00 GiB",
        "  Peak mem (train):               60.00 GiB",
        "  Device mem (train):             70.00 GiB",
        "  Peak mem (optimizer):           60.00 GiB",
    ]


def test_a_peak_that_may_have_been_higher_says_so() -> None:
    """What was only observed is a lower bound, in the table and in the summary."""
    figures = one_step([phase("train", 0, 1, **memory(60, 0.75), **{semconv.GPU_LOWER_BOUND: True})], [], 1)
    assert "  train:              1.00s, >=60.00 GiB  (75.0%)" in step_lines(figures)
    assert "  Peak mem (train):             >=60.00 GiB" in run_lines(run([figures], 0))


def test_what_was_dropped_waited_for_and_evaluated_is_told() -> None:
    """Kept trajectories, waiting time and the evaluation have their places in the sentences."""
    dropped = {semconv.TRAJECTORIES_DROPPED.format(reason="stale"): 1}
    phases = [phase("rollout", 0, 4, **dropped), phase("wait", 4, 16), phase("eval", 16, 20)]
    trajectories = [played(1, 4), played(2, 3), played(3, 2, mode="eval", reward=0.5)]
    figures = step(7, 0, 20 * S, {semconv.STEP_LEFT: True}, phases=phases, trajectories=trajectories)
    lines = step_lines(figures)
    assert lines[0] == "Step   7 | left"
    assert lines[-3:] == [
        "  2 trajectories (kept 1): p50 3.0s  p90 4.0s  max 4.0s, env 12 %, slowest 17/1;",
        "    waited 12s",
        "  eval: 1 trajectory: 2.0s, env 12 %; reward +0.500",
    ]


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({semconv.ERROR_TYPE: "RuntimeError"}, "failed: RuntimeError | Loss: 0.5000"),
        ({semconv.ABORTED: "KeyboardInterrupt"}, "aborted: KeyboardInterrupt | Loss: 0.5000"),
        ({semconv.STEP_LEFT: True}, "left | Loss: 0.5000"),
        ({semconv.ERROR_TYPE: "E" * 99}, f"failed: {'E' * 29}... | Loss: 0.5000"),
    ],
)
def test_how_a_step_ended_stands_first(attributes: dict[str, Any], told: str) -> None:
    """A step that failed, was aborted or was left says so in its headline."""
    assert step_lines(one_step([], [], 1, **attributes, **{semconv.LOSS: 0.5}))[0] == f"Step   0 | {told}"


def test_a_rollout_with_nothing_to_tell_has_no_line() -> None:
    """Where of a rollout only the reward is known, which the headline has, the table ends with the total."""
    phases = [phase("rollout", 0, 1, **{semconv.REWARD_MEAN: 0.5})]
    assert step_lines(one_step(phases, [], 1))[-1] == "  total:              1.00s"


def test_the_first_step_is_not_said_to_be_faster_than_it_was() -> None:
    """Slowest is said of the later steps alone, plainly where one of them was the slowest of all."""
    steps = [
        step(k, k * 100 * S, (k * 100 + total) * S, {}, phases=[], trajectories=[])
        for k, total in enumerate([20, 40, 71])
    ]
    assert run_lines(run(steps, 0))[-1] == "  Step: median 40s, first 20s, slowest 71s (step 2)"


def test_a_run_reads_as_in_the_manual() -> None:
    """The summary: every share of the run, medians without the first step, peaks, steps and evaluations."""
    steps = [
        step(
            k,
            start * S,
            (start + total) * S,
            {},
            phases=[
                phase("rollout", start, start + total / 4, **memory(20.41, 0.2)),
                phase("train", start + total / 4, start + total - 1),
            ],
            trajectories=[],
        )
        for k, (start, total) in enumerate([(10, 96), (106, 40), (150, 72)])
    ]
    outside = [(phase("checkpoint", 146, 149), None)]
    assert text(run_lines(run(steps, 0, outside))) == (
        "Training Summary (3 steps): medians leave out the first, which warms up\n"
        "  Total wall-clock:               222.00s\n"
        "  Setup:                           10.00s  (  4.5%)\n"
        "  Cumul. rollout:                  52.00s  ( 23.4%)   median 10s\n"
        "  Cumul. train:                   153.00s  ( 68.9%)   median 29s\n"
        "  Cumul. checkpoint:                3.00s  (  1.4%)\n"
        "  Other:                            3.00s  (  1.4%)\n"
        "  Between steps:                    1.00s  (  0.5%)\n"
        "  Peak mem (rollout):             20.41 GiB\n"
        "  Step: median 40s, first 96s, slowest after it 72s (step 2)"
    )


def test_evaluations_have_a_line_of_their_own() -> None:
    """The first and the last reward of the run's evaluations are compared."""
    steps = [
        step(
            k,
            k * 10 * S,
            (k * 10 + 9) * S,
            {},
            phases=[phase("eval", k * 10, k * 10 + 4)],
            trajectories=[Trajectory("e", b"e", k * 10 * S, (k * 10 + 4) * S, mode="eval", reward=0.25 * k)],
        )
        for k in range(3)
    ]
    assert run_lines(run(steps, 0))[-1] == "  Evaluation: 3 times, reward +0.000 first, +0.500 last"


@pytest.mark.parametrize(
    ("time", "column", "sentence"),
    [
        (0, "0.00s", "0s"),
        (180, "180ns", "0.18us"),
        (42, "42ns", "42ns"),
        (42_000, "42us", "42us"),
        (400_000, "0.4ms", "0.4ms"),
        (4_600_000, "4.6ms", "4.6ms"),
        (45_000_000, "0.04s", "45ms"),
        (99_600_000, "0.10s", "0.1s"),
        (120_000_000, "0.12s", "0.12s"),
        (400_000_000, "0.40s", "0.4s"),
        (996_000_000, "1.00s", "1.0s"),
        (4_100_000_000, "4.10s", "4.1s"),
        (9_960_000_000, "9.96s", "10s"),
        (312 * S, "312.00s", "312s"),
        (3600 * S, "1h00m00s", "1h00m"),
        (445_445 * S, "123h44m05s", "123h44m"),
    ],
)
def test_durations_can_be_read_at_every_size(time: int, column: str, sentence: str) -> None:
    """From nanoseconds to days, in a column and in a sentence."""
    assert (exact(time), short(time)) == (column, sentence)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (7, "7"),
        (7.25, "7.2"),
        (999, "999"),
        (999.7, "1.0k"),
        (9_140, "9.1k"),
        (12_345, "12k"),
        (1_900_000, "1.9M"),
        (5e9, "5.0G"),
        (2e15, "2000T"),
    ],
)
def test_counts_can_be_read_at_every_size(number: float, written: str) -> None:
    """Tokens and rates in about three characters."""
    assert scaled(number) == written


def test_numbers_that_decimals_would_hide_are_powers_of_ten() -> None:
    """A loss of a millionth is not 0, and neither NaN nor a diverged loss breaks the line."""
    losses = [2e-6, float("nan"), float("-inf"), 3.5e12, 0.0]
    heads = [step_lines(one_step([], [], 1, **{semconv.LOSS: loss}))[0] for loss in losses]
    assert [head.partition("Loss: ")[2] for head in heads] == ["2.0000e-06", "nan", "-inf", "3.5000e+12", "0.0000"]


@given(st.lists(st.tuples(st.text(min_size=1, max_size=60), st.integers(0, 9)), max_size=12), st.integers(0, 10**15))
def test_a_table_is_never_wider_than_a_terminal(drawn: list[tuple[str, int]], length: int) -> None:
    """Long names, deep nesting, days of running and every column stay within 80 columns."""
    crowded = {**memory(999, 1.0), semconv.GPU_DEVICE_USED: 1_999 * GIB, semconv.GPU_LOWER_BOUND: True}
    phases = [
        Phase(name, b"%d" % k, b"%d" % (k - nested), 0, length, {semconv.GPU_DURATION: 1.0, **crowded})
        for k, (name, nested) in enumerate(drawn)
    ]
    figures = step(0, 0, length, {}, phases=phases, trajectories=[])
    lines = step_lines(figures) + run_lines(run([figures, figures], 0))
    assert max(len(line) for line in lines) <= WIDTH


@given(st.lists(st.text(alphabet="ab ", min_size=1, max_size=30), min_size=1, max_size=12))
def test_a_sentence_breaks_only_after_commas_and_semicolons(words: list[str]) -> None:
    """Lines fit, and put together again they are the sentence."""
    sentence = ", ".join(word.replace(" ", "_") for word in words)
    lines = wrapped(sentence)
    assert max(len(line) for line in lines) <= WIDTH
    assert " ".join(line.strip() for line in lines) == sentence
    assert all(line.endswith(",") for line in lines[:-1])
