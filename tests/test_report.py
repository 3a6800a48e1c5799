"""`rl-otel report`: the numbers a run printed, again from its journals, and what a killed run left open."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rl_otel import _record, semconv
from rl_otel._analysis import Analysis
from rl_otel._cli import main
from rl_otel._read import Run
from rl_otel._terminal import Terminal
from tests import needs, process
from tests.journal_maker import BEGAN, Maker, S, one_step, span_of, trace_of

RUN = Path("runs/r")

TRAINING = """
import asyncio
import rl_otel

rl_otel.configure(service_name="grpo", run_dir="runs", run_id="r")

async def play(group, sample):
    with rl_otel.trajectory(group=group, sample=sample) as trajectory:
        with rl_otel.env_reset("swe"):
            await asyncio.sleep(0.001)
        for _ in range(3):
            with rl_otel.generate(model="m") as generation:
                await asyncio.sleep(0.001)
                generation.record(input_tokens=5, output_tokens=7)
            with rl_otel.env_step("swe"):
                await asyncio.sleep(0.03 if (group, sample) == (2, 3) else 0.002)
        trajectory.record(reward=sample / 10)

async def collect():
    await asyncio.gather(*(play(group, sample) for group in range(3) for sample in range(4)))

with rl_otel.checkpoint():
    pass
for i in range(3):
    with rl_otel.step(i) as step:
        with rl_otel.rollout() as rollout:
            asyncio.run(collect())
            rollout.record(dropped={"stale": 2})
        with rl_otel.rollout(), rl_otel.generate() as generation:
            generation.record(output_tokens=[3, 3])
        for _ in range(2):
            with rl_otel.train(), rl_otel.phase("backward"):
                pass
        with rl_otel.wait("batch"):
            pass
        with rl_otel.eval():
            asyncio.run(collect())
        step.record(loss=0.1 * i, samples=12)
with rl_otel.eval():
    asyncio.run(collect())
"""


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    code = main(["report", *arguments])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


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
    code, lines, error = reported(capsys, "nowhere")
    assert (code, lines) == (2, [])
    assert error.startswith("rl-otel report: no run folder at nowhere; ")


def test_a_folder_that_may_not_be_read_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system refuses is told in its own words, without a traceback."""
    two_steps()
    refused = PermissionError(13, "Permission denied", str(RUN))
    monkeypatch.setattr("rl_otel._read.journals", lambda folder: (_ for _ in ()).throw(refused))
    assert reported(capsys, str(RUN)) == (2, [], "rl-otel report: [Errno 13] Permission denied: 'runs/r'\n")


def test_a_run_without_an_ended_step_has_nothing_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that has only begun ends with 1, and still shows what is open."""
    Maker(RUN).begin_step(0, 0)
    code, lines, error = reported(capsys, str(RUN))
    assert code == 1
    assert lines[0] == "Step 0 has not ended, open 0 s"
    assert (
        error == "rl-otel report: no step has ended in runs/r yet; try again once the run has gone on, or look at "
        "another run\n"
    )


def test_a_step_that_is_not_there_names_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for an unknown step it says which steps there are."""
    two_steps()
    assert reported(capsys, str(RUN), "--step", "7") == (
        1,
        [],
        "rl-otel report: no step 7 in runs/r; it has steps 0 to 1. Try: rl-otel report runs/r --step 1\n",
    )


def test_a_journal_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Garbage beside a good journal is named on stderr, and the rest is reported."""
    two_steps()
    (RUN / "torn-1-a.00000.journal").write_bytes(b"garbage")
    code, lines, error = reported(capsys, str(RUN))
    assert (code, lines[0]) == (0, "Step   0 | Loss: 0.5000")
    assert error == "rl-otel report: runs/r/torn-1-a.00000.journal does not say which process wrote it: left out\n"


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


# --- the same as the run printed ---


def test_the_report_prints_what_the_run_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables and summary of a real run come out of its folder character by character."""
    run = process.run(TRAINING, env={"RL_OTEL_PRINT": "1"})
    code, lines, error = reported(capsys, "runs")
    assert (code, error) == (0, "")
    *printed, hint = run.stdout.splitlines()
    assert lines == printed
    assert hint == "To read it again: rl-otel report runs/r"
    assert [line for line in lines if line.startswith("Step")] == [
        "Step   0 | Loss: 0.0000 | Reward: +0.150 | Samples: 12",
        "Step   1 | Loss: 0.1000 | Reward: +0.150 | Samples: 12",
        "Step   2 | Loss: 0.2000 | Reward: +0.150 | Samples: 12",
    ]
    assert sum("slowest 2/3" in line for line in lines) == 6


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
        "Training Summary (2 steps):",
        "  Total wall-clock:                22.00s",
        "  Setup:                            1.00s  (  4.5%)",
        "  Cumul. rollout:                   8.00s  ( 36.4%)   median 4.0s",
        "  Cumul. train:                    10.00s  ( 45.5%)   median 5.0s",
        "  Other:                            2.00s  (  9.1%)",
        "  Between steps:                    1.00s  (  4.5%)",
        "  Step: median 10s, first 10s, slowest 10s (step 1)",
    ]


def test_the_slowest_trajectories_come_with_parts_and_turns(capsys: pytest.CaptureFixture[str]) -> None:
    """A step in detail: its slowest trajectories first, each with its longest turns in order, and the trace's id."""
    maker = Maker(RUN)
    maker.begin_step(3, 0)
    maker.start("rollout", 0, "rollout", "step 3")
    for turn in range(7):
        told = {semconv.TURN: turn, semconv.OUTPUT_TOKENS: 210}
        maker.end("generate", turn, turn + 0.5, f"g{turn}", "a/0", **told)
        where = {semconv.TURN: turn, semconv.ENVIRONMENT_NAME: "swe", semconv.TOOL_NAME: "bash"}
        maker.end("env.step", turn + 0.5, turn + 0.5 + turn / 20, f"e{turn}", "a/0", **where)
    maker.trajectory("a/0", 0, 8, **{semconv.TRAJECTORY_TURNS: 7, semconv.TRAJECTORY_REWARD: 1.0})
    maker.trajectory("a/1", 0, 2, **{semconv.TRAJECTORY_OUTCOME: "error"})
    maker.end("rollout", 0, 8, "rollout", "step 3")
    maker.end("step", 0, 9, "step 3")
    lines = reported(capsys, str(RUN), "--step", "3")[1]
    assert lines[lines.index("  Slowest trajectories:") :] == [
        "  Slowest trajectories:",
        "    a/0: 8.0s, 7 turns, generate 6.0s, env 2.0s, other 0s, completed,",
        "      reward +1.000",
        *(
            f"      turn {turn}: generate 0.5s (210 tok), env.step swe bash {time}"
            for turn, time in [(2, "0.1s"), (3, "0.1s"), (4, "0.2s"), (5, "0.2s"), (6, "0.3s")]
        ),
        "      and 2 shorter turns",
        "    a/1: 2.0s, 1 turn, generate 1.5s, env 0.5s, other 0s, error",
        f"  Trace: {trace_of('step 3').hex()}",
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
    """After a crash step 1 was done again: it is reported once, and what the first attempt left open is not."""
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
    """A detached trajectory and a lone generate are in no step's figures; a root phase is in the run's."""
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
    assert lines[-1] == "  Evaluation: 1 time, reward +0.500"


def test_memory_holds_only_what_is_open() -> None:
    """While a long run is read, traces of steps that are done are let go of."""
    maker = Maker(RUN)
    for index in range(60):
        one_step(maker, index, index * 11)
    analysis = Analysis(Run(RUN))
    assert max(len(analysis._traces) for _ in analysis.steps()) <= 4
    assert analysis.unfinished == []


# --- killed and running ---


def killed(**resource: Any) -> Maker:
    """Return a run whose step 17 hangs: in one trajectory's environment, and in one between two calls."""
    maker = Maker(RUN, **resource)
    one_step(maker, 16)
    maker.begin_step(17, 20)
    maker.start("rollout", 21, "rollout", "step 17")
    for id_ in ("17/1", "17/3"):
        maker.start("trajectory", 22, id_, "rollout", **{semconv.TRAJECTORY_ID: id_})
    maker.end("generate", 22, 30, "g", "17/1", **{semconv.TURN: 4})
    where = {semconv.TURN: 37, semconv.ENVIRONMENT_NAME: "swe"}
    maker.start("env.step", 40, "e", "17/3", **where)
    maker.step_index, maker.trace = None, "elsewhere"
    maker.end("weight_sync", 851, 852, "w")
    return maker


def test_a_killed_run_shows_what_was_open_and_since_when(capsys: pytest.CaptureFixture[str]) -> None:
    """Start records without an end are what it hung in; ages count to the last record, and the report says so."""
    killed()
    assert reported(capsys, str(RUN), "--step", "17") == (
        0,
        [
            "  Open in step 17:",
            "    step, open 832 s",
            "    rollout, open 831 s",
            "    17/1 turn 4, open 830 s",
            "    17/3 turn 37 env.step swe, open 812 s",
            "    (process 1 on elsewhere is not running here: ages count to its last record,",
            "      2023-11-14 22:27:32 UTC)",
        ],
        "",
    )


def test_a_killed_run_still_has_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """The steps that ended are reported, then one line names the step that did not and how to see more."""
    killed()
    code, lines, _ = reported(capsys, str(RUN))
    assert (code, lines[0]) == (0, "Step  16 | Loss: 0.5000")
    assert lines[-4:] == [
        "Step 17 has not ended: rollout, trajectory x2, env.step, open 832 s",
        "    (process 1 on elsewhere is not running here: ages count to its last record,",
        "      2023-11-14 22:27:32 UTC)",
        "    What is open: rl-otel report runs/r --step 17",
    ]


def test_ages_of_a_running_process_are_as_of_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the process lives on this host, what is open grows older though nothing is written."""
    monkeypatch.setattr("rl_otel._read._started", lambda pid: BEGAN - S)
    monkeypatch.setattr(time, "time_ns", lambda: BEGAN + 1040 * S)
    killed(**{semconv.HOST_NAME: socket.gethostname(), semconv.PROCESS_PID: os.getpid()})
    lines = reported(capsys, str(RUN), "--step", "17")[1]
    assert lines[4] == "    17/3 turn 37 env.step swe, open 1000 s"
    assert "is running: ages are as of now)" in lines[-1]


def test_a_trajectory_that_outlives_its_step_is_open_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The step's table is there, and below it the trajectory that is still under way."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.start("rollout", 0, "rollout", "step 0")
    maker.start("trajectory", 1, "0/9", "rollout", **{semconv.TRAJECTORY_ID: "0/9"})
    maker.end("rollout", 0, 4, "rollout", "step 0")
    maker.end("step", 0, 5, "step 0")
    for index in range(1, 5):
        one_step(maker, index, index * 11)
    code, lines, _ = reported(capsys, str(RUN), "--step", "0")
    assert (code, lines[0]) == (0, "Step   0")
    assert lines[-4:-2] == ["  Open in step 0:", "    0/9, open 53 s"]
    assert "Step 0 has ended, but in it is still open: trajectory, open 53 s" in reported(capsys, str(RUN))[1]


# --- the terminal ---


class Screen:
    """A terminal that keeps what is written to it."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


LINES = ["Step   0 | Loss: 0.5 [bold]", "  -----", "  total: 1s", "    (process 1)" + "x" * 90]


@needs.rich
def test_a_terminal_with_rich_shows_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rich headings gain weight, and the text loses nothing: no markup, no wrapping."""
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    Terminal(screen).write(LINES)  # type: ignore[arg-type]
    assert "\x1b[1m" in screen.text
    assert re.sub(r"\x1b\[[0-9;]*m", "", screen.text).splitlines() == LINES


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rich is missing the lines are written as they are."""
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    screen = Screen()
    Terminal(screen).write(LINES)  # type: ignore[arg-type]
    assert screen.text.splitlines() == LINES


def test_a_terminal_of_another_encoding_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a narrow encoding lacks becomes a question mark."""
    monkeypatch.setattr(Screen, "encoding", "ascii")
    monkeypatch.setattr(Screen, "isatty", lambda self: False)
    screen = Screen()
    Terminal(screen).write(["größe"])  # type: ignore[arg-type]
    assert screen.text == "gr??e\n"
