"""`rl-otel report` of a run that was killed or is still running: what is open, and since when."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rl_otel
from rl_otel import semconv
from rl_otel._terminal import command
from tests.journal_maker import BEGAN, Maker, S, one_step
from tests.reporting import reported
from tests.waiting import until

RUN = Path("runs/r")


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
    """Start records without an end are what it hung in; ages are those at the last sign of life, as each line says."""
    killed()
    assert reported(capsys, str(RUN), "--step", "17") == (
        0,
        [
            "  Open in step 17:",
            "    step, open 832 s when last heard of",
            "    rollout, open 831 s when last heard of",
            "    17/1 turn 4, open 830 s when last heard of",
            "    17/3 turn 37 env.step swe, open 812 s when last heard of",
            "    (process 1 is on another host, elsewhere;",
            "      last heard of at 2023-11-14 22:27:32 UTC)",
            "    (a generate or env.step is named once it has been open for 10 to 15 s)",
        ],
        "",
    )


def test_a_killed_run_still_has_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """The steps that ended are reported, then one line names the step that did not and how to see more."""
    killed()
    code, lines, _ = reported(capsys, str(RUN))
    assert (code, lines[0]) == (0, "Step  16 | Loss: 0.5000")
    assert lines[-4:] == [
        "Step 17 has not ended: rollout, trajectory x2, env.step, open 832 s when last heard of",
        "    (process 1 is on another host, elsewhere;",
        "      last heard of at 2023-11-14 22:27:32 UTC)",
        f"    What is open: {command('report', RUN, '--step', '17')}",
    ]


def test_a_process_of_this_host_that_is_gone_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    """Where it ran here it can be seen that it does not any more."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    pid = int(gone.stdout)
    killed(**{semconv.HOST_NAME: socket.gethostname(), semconv.PROCESS_PID: pid})
    lines = reported(capsys, str(RUN), "--step", "17")[1]
    assert " ".join(line.strip() for line in lines[-2:-1]) == (
        f"(process {pid} is gone; last heard of at 2023-11-14 22:27:32 UTC)"
    )


def test_ages_of_hours_are_told_in_hours(capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond an hour nobody counts in seconds."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.end("train", 0, 5000, "train", "step 0")
    assert reported(capsys, str(RUN))[1][0] == "Step 0 has not ended, open 1h23m when last heard of"


def test_ages_of_a_running_process_are_as_of_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the process lives on this host, what is open grows older though nothing is written."""
    monkeypatch.setattr("rl_otel._life.started_at", lambda pid: BEGAN - S)
    monkeypatch.setattr(time, "time_ns", lambda: BEGAN + 1040 * S)
    killed(**{semconv.HOST_NAME: socket.gethostname(), semconv.PROCESS_PID: os.getpid()})
    lines = reported(capsys, str(RUN), "--step", "17")[1]
    assert lines[4] == "    17/3 turn 37 env.step swe, open 1000 s"
    assert "is running: ages are as of now)" in lines[-2]


def test_a_call_that_hangs_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a call has been open for long, the report of the running process says which it is, and no more when."""
    monkeypatch.setattr("rl_otel._keeper.TICK", 0.02)
    monkeypatch.setattr("rl_otel._keeper.LONG", 0)
    rl_otel.configure(run_dir="runs", run_id="r")
    with rl_otel.step(3), rl_otel.rollout(), rl_otel.trajectory(group="u", sample=0):
        lines = reported(capsys, str(RUN), "--step", "3")[1]
        assert heads(lines[1:4]) == ["    step", "    rollout", "    u/0"]
        assert lines[-1] == "    (a generate or env.step is named once it has been open for 10 to 15 s)"
        with rl_otel.env_step("hang"):
            until(lambda: "    u/0 turn 1 env.step hang" in heads(reported(capsys, str(RUN), "--step", "3")[1]))
            assert "is running: ages are as of now)" in reported(capsys, str(RUN), "--step", "3")[1][-1]


def heads(lines: list[str]) -> list[str]:
    """Return what is open, without its age."""
    return [line.split(",")[0] for line in lines]


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
    assert lines[-5:-3] == ["  Open in step 0:", "    0/9, open 53 s when last heard of"]
    state = "Step 0 has ended, but trajectory is still open in it, for 53 s when last heard of"
    assert state in reported(capsys, str(RUN))[1]
