"""`rl-otel report --step N`: a step in detail."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import rl_otel
from rl_otel import semconv
from tests.clock import running
from tests.journal_maker import Maker, one_step, trace_of
from tests.reporting import reported

RUN = Path("runs/r")


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
            for turn, time in [(2, "0.1s"), (3, "0.15s"), (4, "0.2s"), (5, "0.25s"), (6, "0.3s")]
        ),
        "      and 2 shorter turns",
        "    a/1: 2.0s, 1 turn, generate 1.5s, env 0.5s, other 0s, error",
        f"  Trace: {trace_of('step 3').hex()}",
    ]


def test_the_reset_before_the_first_turn_is_no_turn(capsys: pytest.CaptureFixture[str]) -> None:
    """An environment's reset stands before the turns under its own name, and is not counted with them."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.end("env.reset", 0, 1, "r", "0/0", **{semconv.TURN: 0, semconv.ENVIRONMENT_NAME: "swe"})
    for turn in range(1, 7):
        maker.end("generate", turn, turn + 0.9, f"g{turn}", "0/0", **{semconv.TURN: turn})
    maker.trajectory("0/0", 0, 8, "step 0", **{semconv.TRAJECTORY_TURNS: 6})
    maker.end("step", 0, 9, "step 0")
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    assert lines[-7:-1] == [
        "      reset: env.reset swe 1.0s",
        *(f"      turn {turn}: generate 0.9s" for turn in range(1, 5)),
        "      and 2 shorter turns",
    ]


def test_calls_of_another_process_stand_in_the_turn_in_which_they_began(capsys: pytest.CaptureFixture[str]) -> None:
    """Under a carrier no turn is known: an env step belongs to the generate before it, a reset stands before all."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.end("env.reset", 0, 1, "r", "0/0")
    for turn in (1, 2):
        maker.end("generate", turn, turn + 0.5, f"g{turn}", "0/0", **{semconv.TURN: turn})
        maker.end("env.step", turn + 0.5, turn + 0.75, f"e{turn}", "0/0")
    maker.trajectory("0/0", 0, 3, "step 0", **{semconv.TRAJECTORY_TURNS: 2})
    for number in range(7):
        maker.end("env.step", number, number + (number + 1) / 10, f"c{number}", "0/1")
    maker.trajectory("0/1", 0, 2, "step 0", **{semconv.TRAJECTORY_TURNS: 0})
    maker.end("step", 0, 9, "step 0")
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    assert [line.strip() for line in lines if line.startswith("      ")] == [
        "reset: env.reset 1.0s",
        "turn 1: generate 0.5s, env.step 0.25s",
        "turn 2: generate 0.5s, env.step 0.25s",
        *(f"call {number}: env.step {number / 10:.1f}s" for number in range(3, 8)),
        "and 2 shorter calls",
    ]


def test_a_vector_environment_shows_its_share(capsys: pytest.CaptureFixture[str]) -> None:
    """Of calls directly in a rollout of which nothing was recorded, the environment's share is known all the same."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.end("generate", 0, 1, "g", "rollout")
    maker.end("env.step", 1, 4, "e", "rollout")
    maker.end("rollout", 0, 4, "rollout", "step 0")
    maker.end("step", 0, 5, "step 0")
    assert "  env 75 %" in reported(capsys, str(RUN))[1]


def test_what_was_recorded_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Words of a step beyond its headline, and those of its slow trajectories, known ones and the user's own."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.trajectory("0/0", 0, 8, "step 0", **{"rl.custom.sandbox": 13, semconv.TRAJECTORY_REASON: "solved"})
    told = {semconv.LOSS: 0.5, "rl.kl": 0.0123456, "rl.lr": 1e-6, "rl.custom.note": "a" * 50, "unknown": 1}
    maker.end("step", 0, 9, "step 0", **told)
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    assert lines[0] == "Step   0 | Loss: 0.5000"
    assert lines[-5:-1] == [
        f"  Recorded: kl 0.01235, lr 1e-06, note {'a' * 37}...",
        "  Slowest trajectories:",
        "    0/0: 8.0s, 1 turn, generate 6.0s, env 2.0s, other 0s, completed, sandbox 13,",
        "      reason solved",
    ]


def test_failed_trajectories_say_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed one has its error in one line; three more are listed though they are not among the slowest."""
    monkeypatch.setenv("RL_OTEL_PRINT", "1")
    rl_otel.configure(run_dir="runs", run_id="r")
    with running() as clock, contextlib.suppress(KeyError), rl_otel.step(0), rl_otel.rollout():
        for k in range(11):
            with contextlib.suppress(ValueError), rl_otel.trajectory(group=0, sample=k):
                clock.pass_by(2 if k < 5 else 1)
                if k > 3:
                    raise ValueError(f"no such file: {k}\n\x1b[31m" + "x" * 99)
        raise KeyError("step")
    rl_otel.shutdown()
    printed = capsys.readouterr().out.splitlines()
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    assert lines[0] == printed[0] == "Step   0 | failed: KeyError"
    shown = [line for line in lines if line.startswith("      ValueError: ")]
    assert [line[:35] for line in shown] == [f"      ValueError: no such file: {k} ?" for k in (4, 5, 6, 7)]
    assert all(len(line) == 80 for line in shown)
    listed = lines[lines.index("  Failed as well:") :]
    assert [line.split(":")[0] for line in listed[1:-2:2]] == ["    0/5", "    0/6", "    0/7"]
    assert listed[-2] == "    and 3 more"


def test_a_step_done_again_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is that of the last attempt; below it stands that there was another."""
    one_step(Maker(RUN, "host-1-a", restart=0), 0, 0)
    again = Maker(RUN, "host-2-b", restart=2)
    again.step_index, again.trace = 0, "step 0 again"
    again.end("step", 50, 53)
    assert "  (done again after a restart)" in reported(capsys, str(RUN), "--step", "0")[1]


def test_what_was_recorded_on_phases_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Words of a phase stand under its name, with the parts of a weight sync below it; of many spans the first."""
    rl_otel.configure(run_dir="runs", run_id="r")
    with running() as clock, rl_otel.step(0):
        with rl_otel.rollout() as rollout:
            rollout.record(rewards=[0.0, 1.0], dropped={"stale": 3})
        for k in range(7):
            with rl_otel.train() as train:
                train.record(tokens=100 + k, clipped=0.25)
        with rl_otel.optimizer():
            clock.pass_by(1)
        with rl_otel.weight_sync() as sync:
            with sync.part("pause"):
                clock.pass_by(0.5)
            for _ in range(2):
                with sync.part("transfer", bytes=3_000_000_000):
                    clock.pass_by(1)
            with sync.part("resume") as resume:
                clock.pass_by(0.25)
                resume.record(engines=4)
            sync.record(policy_version=7)
    rl_otel.shutdown()
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    assert lines[lines.index("  Recorded:") + 1 : -1] == [
        "    rollout: rewards 0.5, dropped stale 3",
        *(f"    train: tokens {100 + k}, clipped 0.25" for k in range(5)),
        "    weight_sync: policy_version 7, 6.0GB, 3.0GB/s, paused 2.8s",
        "      pause: 0.5s",
        "      transfer x2: 2.0s, 6.0GB, 3.0GB/s",
        "      resume: 0.25s, engines 4",
        "    and 2 train phases more",
    ]


def test_the_utilization_of_gpus_is_shown_beside_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Where samples were taken, a step in detail says by phase how busy the GPUs were; where none were, nothing."""
    maker = Maker(RUN)
    maker.begin_step(0, 0)
    maker.end("rollout", 0, 8, "r", "step 0", **{semconv.GPU_DURATION: 7.99, semconv.GPU_UTILIZATION: 0.124})
    maker.end("train", 8, 9, "t", "step 0", **{semconv.GPU_DURATION: 0.98})
    maker.end("step", 0, 9, "step 0")
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    assert [line for line in lines if "utilization" in line] == ["  GPU utilization: rollout 12 %"]
