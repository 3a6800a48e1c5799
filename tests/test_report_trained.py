"""`rl-otel report --step N` of a step that trains on trajectories of other traces, as an asynchronous one does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rl_otel import _record, semconv
from rl_otel._analysis import Analysis
from rl_otel._read import Run
from tests import process as real
from tests.journal_maker import BEGAN, Maker, S, one_step, span_of, trace_of
from tests.reporting import reported
from tests.test_report_also import FILE, line, request, vllm
from tests.test_report_processes import RUN, alone, consuming, link_to, process

HEAD = "  Slowest trajectories this step trained on"


def plays(maker: Maker, id_: str, seconds: float, calls: int = 1, **more: Any) -> None:
    """Append a trajectory that is a trace of its own, of so many generate calls of a second each."""
    maker.trace = id_
    for turn in range(calls):
        maker.end("generate", turn, turn + 1, f"{id_} {turn}", id_, **{semconv.TURN: turn + 1})
    maker.trajectory(id_, 0, seconds, "", **{semconv.TRAJECTORY_TURNS: calls, **more})


def trained(capsys: pytest.CaptureFixture[str], step: int = 0, *more: str) -> list[str]:
    """Return what stands between the heading and the step's trace, with the heading."""
    code, lines, _ = reported(capsys, str(RUN), "--step", str(step), *more)
    assert code == 0
    assert lines[-1] == f"  Trace: {trace_of(f'step {step}').hex()}"
    return list(itertools.dropwhile(lambda each: not each.startswith(HEAD), lines[:-1]))


def test_the_slowest_it_trained_on_are_shown_as_its_own_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    """With where each ran, how stale it was, parts and turns; what another step trained on, or none, is left out."""
    consuming({0: ["a/0", "a/1"], 1: ["b/0"]}, **{semconv.STALENESS: 2})
    plays(process("g", "generator", 2), "a/0", 2)
    other = process("h", "generator", 3)
    parts = {semconv.TRAJECTORY_PART.format(part=part): time for part, time in (("wait", 3.0), ("other", 1.0))}
    plays(other, "a/1", 8, calls=2, **{semconv.TRAJECTORY_REWARD: 0.5, **parts})
    plays(other, "b/0", 9)
    plays(other, "nobody's", 9)
    assert trained(capsys) == [
        f"{HEAD}:",
        "    a/1: 8.0s, 2 turns, generate 6.0s, env 2.0s, wait 3.0s, other 1.0s,",
        "      completed, reward +0.500, staleness 2, in pid 3",
        "      turn 1: generate 1.0s",
        "      turn 2: generate 1.0s",
        "    a/0: 2.0s, 1 turn, generate 1.5s, env 0.5s, other 0s, completed,",
        "      staleness 2, in pid 2",
        "      turn 1: generate 1.0s",
    ]
    assert not any(each.startswith("  Slowest") for each in reported(capsys, str(RUN))[1])


def test_those_that_failed_are_shown_though_they_were_short(capsys: pytest.CaptureFixture[str]) -> None:
    """Beyond the five slowest, three that failed are listed, and the rest counted."""
    ids = [f"a/{number}" for number in range(10)]
    consuming({0: ids})
    generator = process("g", "generator", 2)
    for number, id_ in enumerate(ids):
        plays(generator, id_, 10 - number, **({semconv.TRAJECTORY_OUTCOME: "error"} if number > 5 else {}))
    lines = trained(capsys)
    assert [each.split(":")[0].strip() for each in lines if each.startswith("    a/")] == [*ids[:5], *ids[6:9]]
    assert lines[lines.index("  Failed as well:") :][-1] == "    and 1 more"


def test_those_of_a_process_that_is_missing_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a generator's journal is not here the heading says how many are; where none is, nothing is said of any."""
    consuming({0: ["a/0", "b/0"]})
    assert trained(capsys) == []
    plays(process("g", "generator", 2), "a/0", 2)
    assert trained(capsys)[0] == f"{HEAD} (1 of 2 known):"


def test_a_link_that_stands_for_a_group_names_its_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a group that has one link it is known how many were trained on, and of one of them which."""
    consuming({0: ["a/0"]}, **{semconv.GROUP_ID: "a", semconv.GROUP_TRAJECTORIES: 4})
    generator = process("g", "generator", 2)
    for number in range(4):
        plays(generator, f"a/{number}", 2 + number)
    lines = trained(capsys)
    assert lines[0] == f"{HEAD} (1 of 4 known):"
    assert [each for each in lines if each.startswith("    a/")] == [lines[1]]


def test_what_is_in_the_step_itself_is_not_shown_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """A step that trains on its own rollout has those there; one that trains on another step's shows them."""
    maker = Maker(RUN)
    one_step(maker, 0)
    maker.begin_step(1, 20)
    maker.trajectory("1/own", 20, 23, "step 1")
    own = _record.Link(trace_of("step 1"), span_of("1/own"), {semconv.TRAJECTORY_ID: "1/own"})
    earlier = _record.Link(trace_of("step 0"), span_of("0/1"), {semconv.TRAJECTORY_ID: "0/1"})
    root = (trace_of("step 1"), span_of("step 1"), b"", "step")
    times = BEGAN + 20 * S, BEGAN + 30 * S
    maker.write(_record.End(*root, *times, {semconv.STEP_INDEX: 1}, links=[own, earlier]))
    assert trained(capsys, 1) == [
        f"{HEAD}:",
        "    0/1: 4.0s, 1 turn, generate 3.0s, env 1.0s, other 0s, completed",
    ]


def test_hostile_links_cost_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Links that are no trajectories', or carry what no trainer writes, are passed over or shown without that."""
    consuming({0: ["a/0", "lost"]}, **{semconv.STALENESS: "old", semconv.GROUP_TRAJECTORIES: -5})
    generator = process("g", "generator", 2)
    plays(generator, "a/0", 2)
    generator.trace = "a/0"
    generator.end("generate", 0, 1, "a/0", "a/0")  # a call that is inside itself
    lines = trained(capsys)
    assert lines[0] == f"{HEAD} (1 of 2 known):"
    assert "staleness" not in " ".join(lines)


def test_what_came_late_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A reward that a GPU had still to compute when the trajectory ended is shown."""
    consuming({0: ["a/0"]})
    generator = process("g", "generator", 2)
    plays(generator, "a/0", 2, flags=_record.SAMPLED | _record.AWAITED)
    generator.write(_record.Late(span_of("a/0"), {semconv.TRAJECTORY_REWARD: 0.25}))
    assert "reward +0.250" in " ".join(trained(capsys))


def test_one_that_was_played_again_is_the_one_before_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    """After a restart ids come again: a step has what was played in its own attempt of the run, never in a later."""
    for restart, seconds in ((0, 2), (1, 3), (2, 4)):
        plays(Maker(RUN, f"g-{restart}", restart=restart), "a/0", seconds)
    trainer = Maker(RUN, "trainer", restart=1)
    trainer.begin_step(0, 10)
    root = (trace_of("step 0"), span_of("step 0"), b"", "step")
    times = BEGAN + 10 * S, BEGAN + 11 * S
    trainer.write(_record.End(*root, *times, {semconv.STEP_INDEX: 0}, links=[link_to("a/0")]))
    assert trained(capsys)[1].startswith("    a/0: 3.0s")


def test_what_their_servers_say_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """With --also their calls show where they spent their time, beneath a span of the client's own library too."""
    consuming({0: ["a/0"]})
    generator = process("g", "generator", 2)
    ids = trace_of("a/0"), span_of("http"), span_of("a/0 0")
    generator.write(_record.Foreign(*ids, "POST", BEGAN, BEGAN + S, {}))
    plays(generator, "a/0", 2)
    FILE.write_text(line(request("r", "http", "a/0", **vllm(0.25, 0.25, 0.25))))
    told = "      in the server: queue 0.25s, prefill 0.25s, decode 0.25s, outside it 0.25s"
    assert told in trained(capsys, 0, "--also", str(FILE))


def test_only_the_calls_of_the_slowest_are_kept() -> None:
    """However many a step trains on, calls are held of the five that are shown; of another step nothing is."""
    ids = [f"a/{number}" for number in range(20)]
    consuming({0: ids, 1: ["b/0"]})
    generator = process("g", "generator", 2)
    for number, id_ in enumerate(ids):
        plays(generator, id_, 30 + number, calls=30)
    alone(generator, "b/0", 5)
    first, second = Analysis(Run(RUN), 0).steps()
    assert first.trained is not None
    assert second.trained is None
    assert {call.parent for call in first.trained.detail.calls} == {span_of(id_) for id_ in ids[-5:]}
    assert len(first.trained.detail.calls) == 5 * 30


def test_a_generator_in_its_own_process_is_shown_by_its_role(capsys: pytest.CaptureFixture[str]) -> None:
    """Of what the public API recorded in two processes: which failed, why and where, and how stale each was."""
    generator = """
        import rl_otel
        rl_otel.configure(run_dir="runs", run_id="r")
        for number in range(2):
            try:
                with rl_otel.trajectory(f"g/{number}"), rl_otel.generate():
                    if number:
                        raise RuntimeError("sandbox is gone")
            except RuntimeError:
                pass
        """
    trainer = """
        import rl_otel
        rl_otel.configure(run_dir="runs", run_id="r")
        with rl_otel.weight_sync() as sync:
            sync.record(policy_version=4)
        with rl_otel.step(7) as step:
            step.consume(["g/0", "g/1"], policy_versions=[4, 1])
            with rl_otel.train():
                pass
        """
    real.run(generator, env={"RL_OTEL_ROLE": "generator"})
    real.run(trainer, env={"RL_OTEL_ROLE": "trainer"})
    lines = reported(capsys, str(RUN), "--step", "7")[1]
    said = " ".join(" ".join(lines).split()).partition(f"{HEAD.strip()}: ")[2]
    shown = {id_: said.partition(f"{id_}: ")[2].partition(" turn 1:")[0] for id_ in ("g/0", "g/1")}
    assert shown["g/0"].endswith("completed, staleness 0, in generator")
    assert shown["g/1"].endswith("error, staleness 3, in generator RuntimeError: sandbox is gone")
