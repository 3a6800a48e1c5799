"""`rl-otel report`: the numbers a run printed, again from its journals, and what a killed run left open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_otel import _record, semconv
from rl_otel._analysis import Analysis
from rl_otel._cli import main
from rl_otel._read import Run
from rl_otel._terminal import command
from tests import process
from tests.journal_maker import BEGAN, Maker, S, one_step, span_of, trace_of
from tests.reporting import reported

RUN = Path("runs/r")


def two_steps() -> Maker:
    maker = Maker(RUN)
    one_step(maker, 0, 1)
    one_step(maker, 1, 12)
    return maker


# --- unhappy paths ---


def test_no_verb_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """A bare `rl-otel` shows what it can do."""
    assert main([]) == 2
    assert "rl-otel report" in capsys.readouterr().err


def test_no_run_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """A path without a run ends with 2 and a sentence that says what to do."""
    code, lines, error = reported(capsys, "no\x1bwhere")
    assert (code, lines) == (2, [])
    assert error.startswith("rl-otel report: no?where is not there; no run in ")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["report", ".", "--stpe", "3"], "rl-otel report: error: unknown arguments: --stpe 3\n"),
        (["report", ".", "--step", "x"], "rl-otel report: error: argument --step: invalid int value: 'x'\n"),
        (["export", ".", "more"], "rl-otel export: error: unknown arguments: more\n"),
    ],
)
def test_wrong_usage_shows_that_of_the_verb(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who mistypes an option is shown the options that the verb has."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    shown = capsys.readouterr().err
    assert shown.startswith(f"usage: rl-otel {arguments[0]} [-h] [--step N]")
    assert shown.endswith(error)


def test_a_folder_that_may_not_be_read_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system refuses is told in its own words, without a traceback."""
    two_steps()
    refused = PermissionError(13, "Permission denied", str(RUN))
    monkeypatch.setattr("rl_otel._read.finding.journals", lambda folder: (_ for _ in ()).throw(refused))
    assert reported(capsys, str(RUN)) == (2, [], "rl-otel report: [Errno 13] Permission denied: 'runs/r'\n")


def test_without_a_run_the_newest_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Who says no run means the last one, and a line says which that is."""
    one_step(Maker(Path("rl-otel-runs/old")), 1)
    one_step(Maker(Path("rl-otel-runs/new")), 2, 100)
    code, lines, error = reported(capsys)
    assert (code, lines[0]) == (0, "Step   2 | Loss: 0.5000")
    assert error == "rl-otel report: no RUN given, so the newest: rl-otel-runs/new\n"


def test_a_run_killed_in_its_first_step_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """What is open is a report, though no step has ended."""
    Maker(RUN).begin_step(0, 0)
    code, lines, error = reported(capsys, str(RUN))
    assert (code, lines[0], error) == (0, "Step 0 has not ended, open 0 s when last heard of", "")


@pytest.mark.parametrize(
    ("lives", "told"),
    [
        (True, "no step has begun in runs/r yet; try again once the run has gone on"),
        (False, "no step began in runs/r, and its processes do not run here; look at another run"),
    ],
)
def test_a_run_without_any_step_has_nothing_to_report(
    lives: bool, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is worth to wait depends on whether the run goes on; a server's folder says how it joins a run."""
    Maker(RUN).end("generate", 0, 1)
    monkeypatch.setattr("rl_otel._read.source.lives", lambda process: lives)
    serves = "If these processes serve another run, start them with its RL_OTEL_RUN_ID and RL_OTEL_RUN_DIR"
    assert reported(capsys, str(RUN)) == (1, [], f"rl-otel report: {told}. {serves}\n")


def test_a_folder_of_damaged_journals_has_nothing_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no journal can be read each is named, and then that there is no other."""
    RUN.mkdir(parents=True)
    (RUN / "empty-1-a.00000.journal").touch()
    assert reported(capsys, str(RUN)) == (
        1,
        [],
        "rl-otel report: runs/r/empty-1-a.00000.journal is empty, damaged, or no journal of rl_otel: left out\n"
        "rl-otel report: no journal in runs/r can be read\n",
    )


def test_a_step_that_is_not_there_names_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for an unknown step it says which steps there are."""
    two_steps()
    assert reported(capsys, str(RUN), "--step", "7") == (
        1,
        [],
        f"rl-otel report: no step 7 in runs/r; it has steps 0 to 1. Try: {command('report', RUN, '--step', '1')}\n",
    )


def test_a_journal_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Garbage beside a good journal is named on stderr, and the rest is reported."""
    two_steps()
    (RUN / "torn-1-a.00000.journal").write_bytes(b"garbage")
    code, lines, error = reported(capsys, str(RUN))
    assert (code, lines[0]) == (0, "Step   0 | Loss: 0.5000")
    assert error == (
        "rl-otel report: runs/r/torn-1-a.00000.journal is empty, damaged, or no journal of rl_otel: left out\n"
    )


def test_lost_spans_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What never reached a journal is not passed over in silence."""
    two_steps().write(_record.Lost({"journal": 4}))
    assert reported(capsys, str(RUN))[2] == "rl-otel report: 4 spans never reached a journal and are missing here\n"


@pytest.mark.parametrize("verb", ["report", "export"])
def test_help_documents_the_exit_codes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb's help lists its exit codes and what to do next."""
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    text = capsys.readouterr().out
    assert "exit codes:" in text
    assert "next:" in text


def test_a_pipe_that_closes_early_is_no_error() -> None:
    """`rl-otel report RUN | head -1` ends quietly."""
    maker = Maker(RUN)
    for index in range(300):
        one_step(maker, index, index * 11)
    command = f"set -o pipefail; {sys.executable} -m rl_otel report {RUN} | head -1"
    environment = {**os.environ, "PYTHONPATH": str(process.ROOT)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Step   0 | Loss: 0.5000\n", "")


# --- what it prints ---


def test_a_recorded_run_reads_as_in_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    """Two steps from a journal written by hand: the whole text."""
    two_steps()
    code, lines, error = reported(capsys, str(RUN))
    table = [
        "  Phase                Time",
        "  --------------------------",
        "  rollout:            4.00s",
        "  train x2:           5.00s",
        "  other:              1.00s",
        "  total:             10.00s",
    ]
    assert (code, error) == (0, "")
    assert lines == [
        "Step   0 | Loss: 0.5000",
        *table,
        "  2 trajectories: p50 2.0s  p90 4.0s  max 4.0s, env 25 %, slowest 0/1",
        "Step   1 | Loss: 0.5000",
        *table,
        "  2 trajectories: p50 2.0s  p90 4.0s  max 4.0s, env 25 %, slowest 1/1",
        "Training Summary (2 steps): medians leave out the first, which warms up",
        "  Total wall-clock:                22.00s",
        "  Setup:                            1.00s  (  4.5%)",
        "  Cumul. rollout:                   8.00s  ( 36.4%)   median 4.0s",
        "  Cumul. train:                    10.00s  ( 45.5%)   median 5.0s",
        "  Other:                            2.00s  (  9.1%)",
        "  Between steps:                    1.00s  (  4.5%)",
        "  Step: median 10s, first 10s, slowest 10s (step 1)",
    ]


# --- several processes, restarts, what comes late ---


def test_processes_of_a_run_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker's trajectories and memory count; its own phases and step are not added to the driver's time."""
    peak = {semconv.GPU_PEAK: 5 << 30, semconv.GPU_PEAK_RATIO: 0.5}
    one_step(Maker(RUN, "driver-1-a"), 0)
    worker = Maker(RUN, "worker-2-b")
    worker.step_index, worker.trace = 0, "step 0"
    worker.trajectory("0/2", 1, 7)
    worker.end("train", 4, 9.5, "train w", "step w", **peak)
    worker.end("step", 0.5, 9.8, "step w", "step 0", **{semconv.RANK: 1})
    lines = reported(capsys, str(RUN))[1]
    assert lines[:8] == [
        "Step   0 | Loss: 0.5000",
        "  Phase                Time    Peak Mem",
        "  --------------------------------------",
        "  rollout:            4.00s",
        "  train x2:           5.00s,   5.00 GiB  (50.0%)",
        "  other:              1.00s",
        "  total:             10.00s",
        "  3 trajectories: p50 4.0s  p90 6.0s  max 6.0s, env 25 %, slowest 0/2",
    ]
    assert lines[8] == "Training Summary (1 step):"


def test_of_a_step_done_again_the_last_restart_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """After a crash step 1 was done again: it is reported once, and says so; what the first left open is not."""
    first = Maker(RUN, "host-1-a", restart=0)
    one_step(first, 0, 0)
    one_step(first, 1, 10)
    first.begin_step(2, 20)
    again = Maker(RUN, "host-2-b", restart=1)
    for index, (start, end) in enumerate([(50, 53), (54, 55)], start=1):
        again.step_index, again.trace = index, f"step {index} again"
        again.start("step", start, again.trace)
        again.end("step", start, end, again.trace, **{semconv.LOSS: 0.25})
    code, lines, _ = reported(capsys, str(RUN))
    assert code == 0
    assert [line for line in lines if line.startswith("Step")] == [
        "Step   0 | Loss: 0.5000",
        "Step   1 | Loss: 0.2500",
        "Step   2 | Loss: 0.2500",
    ]
    assert "  Total wall-clock:                55.00s" in lines
    marks = [index for index, line in enumerate(lines) if line == "  (done again after a restart)"]
    assert marks == [lines.index("Step   2 | Loss: 0.2500") - 1]  # step 2 had not ended in the first attempt


def test_a_loss_that_came_late_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A value that followed its step as a late record is shown with the step."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.end("step", 0, 1, "step 0", flags=_record.SAMPLED | _record.AWAITED)
    maker.begin_step(1, 2)
    maker.write(_record.Late(span_of("step 0"), {semconv.LOSS: -0.125}))
    maker.end("step", 2, 3, "step 1")
    assert reported(capsys, str(RUN))[1][0] == "Step   0 | Loss: -0.1250"


def test_what_ended_after_its_step_is_in_no_total(capsys: pytest.CaptureFixture[str]) -> None:
    """A trajectory and a phase that outlived their step stay outside its closed totals."""
    maker = Maker(RUN)
    one_step(maker, 0)
    maker.trajectory("0/late", 1, 12, **{semconv.LATE: True})
    maker.end("weight_sync", 9, 13, "w", "step 0", **{semconv.LATE: True})
    lines = reported(capsys, str(RUN))[1]
    assert "weight_sync" not in "".join(lines)
    assert lines[7] == "  2 trajectories: p50 2.0s  p90 4.0s  max 4.0s, env 25 %, slowest 0/1"


def test_a_trajectory_in_another_ones_call_is_nested(capsys: pytest.CaptureFixture[str]) -> None:
    """An agent that a tool call started is no trajectory of the rollout, though only its tokens' call is between."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.start("rollout", 0, "rollout", "step 0")
    maker.start("trajectory", 0, "outer", "rollout")
    maker.trajectory("inner", 1, 2, "tool", **{semconv.TRAJECTORY_OUTPUT_TOKENS: 50})
    maker.end("env.step", 1, 3, "tool", "outer")
    maker.trajectory("outer", 0, 4, **{semconv.TRAJECTORY_OUTPUT_TOKENS: 150})
    maker.end("rollout", 0, 4, "rollout", "step 0")
    maker.end("step", 0, 4, "step 0")
    assert reported(capsys, str(RUN))[1][6] == "  1 trajectory: 4.0s, env 25 %; 200 tok out, 50 tok/s"


def test_a_span_of_another_library_between_two_of_ours_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A phase below a foreign span below a phase is nested in that, and a call below one is the rollout's."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.start("rollout", 0, "rollout", "step 0")
    maker.end("reward", 1, 2, "reward", "http")
    maker.end("generate", 2, 3, "g", "http", **{semconv.OUTPUT_TOKENS: 8})
    times = BEGAN + S, BEGAN + 3 * S
    ids = trace_of("step 0"), span_of("http"), span_of("rollout")
    maker.write(_record.Foreign(*ids, "GET", *times, {}))
    maker.end("rollout", 0, 4, "rollout", "step 0")
    maker.end("step", 0, 4, "step 0")
    lines = reported(capsys, str(RUN))[1]
    assert lines[3:5] == ["  rollout:            4.00s", "    reward:           1.00s"]
    assert lines[7] == "  8 tok out, 2 tok/s"


def test_traces_outside_steps_cost_nothing_and_count_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A trajectory and a generate on their own are in no step's figures; a root phase is in the run's."""
    maker = Maker(RUN)
    one_step(maker, 0)
    maker.step_index = None
    maker.trace = "lone"
    maker.trajectory("lone", 1, 11, "")
    maker.trace = "call"
    maker.end("generate", 1, 11, "call")
    maker.trace = "eval"
    maker.start("eval", 11, "eval")
    maker.trajectory("e", 11, 13, "eval", **{semconv.MODE: "eval", semconv.TRAJECTORY_REWARD: 0.5})
    maker.end("eval", 11, 14, "eval", **{semconv.MODE: "eval"})
    lines = reported(capsys, str(RUN))[1]
    assert lines[7] == "  2 trajectories: p50 2.0s  p90 4.0s  max 4.0s, env 25 %, slowest 0/1"
    assert "  Cumul. eval:                      3.00s  ( 21.4%)" in lines
    assert lines[-2:] == ["  Evaluation: 1 time, reward +0.500", "1 trajectory outside any step: p50 10s  max 10s"]


def test_trajectories_that_no_step_has_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a thread that knows of no step, and those of a rollout outside any, are counted in one line.

    It names the slowest, and says how many failed; a segment that another one takes up is none.
    """
    maker = Maker(RUN)
    for number in range(3):
        maker.trace = f"lone {number}"
        maker.trajectory(f"lone {number}", 0, number + 1, "")
    maker.trace = "rollout"
    maker.start("rollout", 0, "rollout")
    maker.trajectory("r", 0, 9, **{semconv.TRAJECTORY_OUTCOME: "timeout"})
    maker.end("rollout", 0, 9, "rollout")
    maker.trace = "continues"
    maker.trajectory("c", 0, 20, "", **{semconv.TRAJECTORY_CONTINUES: True})
    told = "4 trajectories outside any step: p50 2.0s  max 9.0s, slowest r; 1 failed"
    assert reported(capsys, str(RUN)) == (0, [told], "")


def test_memory_holds_only_what_is_open() -> None:
    """While a long run is read, traces of steps that are done are let go of."""
    maker = Maker(RUN)
    for index in range(60):
        one_step(maker, index, index * 11)
    analysis = Analysis(Run(RUN))
    assert max(len(analysis._traces) for _ in analysis.steps()) <= 4
    assert analysis.unfinished == []
