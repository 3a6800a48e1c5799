"""`rl-otel report` of a run of several processes: who did what, on which host, by which clock."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_otel import _record, semconv
from rl_otel._analysis import Analysis, StepReport
from rl_otel._analysis.early import Early
from rl_otel._read import Run
from tests import process as real
from tests.journal_maker import BEGAN, Maker, S, one_step, span_of, trace_of
from tests.reporting import exported, reported

RUN = Path("runs/r")


def process(name: str, role: str, pid: int, host: str = "a", rank: int = 0, **more: Any) -> Maker:
    told = {semconv.ROLE: role, semconv.PROCESS_PID: pid, semconv.HOST_NAME: host, semconv.RANK: rank}
    return Maker(RUN, name, **more, **told)


def joining(maker: Maker, index: int = 0) -> Maker:
    maker.step_index, maker.trace = index, f"step {index}"
    return maker


def analysed() -> tuple[list[StepReport], Analysis]:
    analysis = Analysis(Run(RUN))
    return list(analysis.steps()), analysis


# --- trajectories and memory of other processes ---


def test_the_slowest_trajectories_name_their_process(capsys: pytest.CaptureFixture[str]) -> None:
    """By role where one process has it, else by rank where that tells, else by pid, and by host where pids repeat."""
    driver = process("driver", "driver", 1)
    driver.begin_step(0, 0)
    driver.end("rollout", 0, 9, "rollout", "step 0")
    driver.trajectory("own", 0, 1)
    for at, (name, role, pid, host, rank) in enumerate(
        [("g", "generator", 2, "a", 0), ("e1", "env", 3, "a", 3), ("w1", "env", 4, "b", 4), ("w2", "env", 4, "c", 4)]
    ):
        joining(process(name, role, pid, host, rank)).trajectory(name, 0, 2 + at)
    driver.end("step", 0, 10, "step 0")
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    first = next(at for at, line in enumerate(lines) if line == "  Slowest trajectories:") + 1
    said = " ".join(line.strip() for line in lines[first:])
    for name, where in (("w2", "c:4"), ("w1", "b:4"), ("e1", "rank 3"), ("g", "generator"), ("own", "driver")):
        assert f"in {where}" in said.partition(f"{name}: ")[2].partition("completed")[2].split(" tok")[0][:40]


def test_one_process_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Where all ran in one process its name tells nothing."""
    one_step(process("driver", "driver", 1), 0)
    assert "in driver" not in " ".join(reported(capsys, str(RUN), "--step", "0")[1])


def test_trajectories_of_a_rollout_are_joined_over_processes(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts, tokens, percentiles, tail and slowest are those of all twelve, which ran in three other processes."""
    driver = process("driver", "driver", 1)
    driver.begin_step(0, 0)
    driver.start("rollout", 0, "rollout", "step 0")
    for number in range(12):
        worker = joining(process(f"w{number % 3}", "generator", 2 + number % 3)) if number < 3 else worker_of(number)
        worker.trajectory(f"t/{number}", 0, number + 1, **{semconv.TRAJECTORY_OUTPUT_TOKENS: 100})
    driver.end("rollout", 0, 12, "rollout", "step 0")
    driver.end("step", 0, 12, "step 0")
    assert reported(capsys, str(RUN))[1][6:8] == [
        "  12 trajectories: p50 6.0s  p90 11s  max 12s, env 25 %, tail 1.0s,",
        "    slowest t/11; 1.2k tok out, 100 tok/s",
    ]


def worker_of(number: int) -> Maker:
    again = Maker(Path("elsewhere"), "again")
    again.path = RUN / f"w{number % 3}.00000.journal"
    return joining(again)


def test_calls_of_a_process_that_is_older_than_the_driver_are_in_the_rollout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A server that had recorded before the run began is read first: its calls wait for the step that they are in."""
    server = process("server", "env", 2)
    server.trace = "before"
    server.end("checkpoint", -9, -8)
    joining(server).end("generate", 1, 2, "g", "rollout", **{semconv.OUTPUT_TOKENS: 100})
    server.end("env.step", 2, 3, "e", "t", **{semconv.ENVIRONMENT_NAME: "swe"})
    driver = process("driver", "driver", 1)
    driver.begin_step(0, 0)
    driver.start("rollout", 0, "rollout", "step 0")
    driver.trajectory("t", 0, 4)
    driver.end("rollout", 0, 5, "rollout", "step 0")
    driver.end("step", 0, 6, "step 0")
    lines = reported(capsys, str(RUN), "--step", "0")[1]
    assert any("100 tok out" in line for line in lines)
    assert "      call 1: env.step swe 1.0s" in lines


def test_calls_whose_trace_never_comes_are_let_go() -> None:
    """What is kept for traces that nobody tells of has a bound, and the newest calls are those that are kept."""
    early = Early()
    owner: Any = None  # nobody asks
    for number in range(1 << 16):
        early.keep(owner, _record.End(trace_of(str(number)), span_of("g"), span_of("r"), "generate", 0, 1, {}, 0))
    assert not early.take(trace_of("0"))
    assert len(early.take(trace_of(str(number)))) == 1


def test_memory_is_the_highest_of_all_processes(capsys: pytest.CaptureFixture[str]) -> None:
    """A row has the peak of whichever process of the step was highest in that phase."""
    driver = process("driver", "driver", 1)
    driver.begin_step(0, 0)
    driver.end("train", 0, 5, "train", "step 0", **{semconv.GPU_PEAK: 2 << 30})
    for pid, gib in ((2, 7), (3, 5)):
        peak = {semconv.GPU_PEAK: gib << 30}
        joining(process(f"w{pid}", "driver", pid, rank=pid)).end("train", 1, 4, f"train {pid}", "step 0", **peak)
    driver.end("step", 0, 5, "step 0")
    assert "  train:              5.00s,   7.00 GiB" in reported(capsys, str(RUN))[1]


# --- roles ---


def test_what_other_roles_did_meanwhile_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Phases of generators, in the step's trace or outside any, are told beside its rows, in none of its time."""
    driver = process("driver", "trainer", 1)
    driver.begin_step(0, 10)
    driver.end("train", 10, 16, "train", "step 0")
    for pid, waited in ((2, 4), (3, 8), (4, 9)):
        generator = process(f"g{pid}", "generator", pid)
        generator.trace = f"alone {pid}"
        reason = {semconv.WAIT_REASON: "buffer_full"}
        generator.end("rollout", 0, 12, f"r{pid}", **{semconv.GPU_PEAK: 3 << 30})
        generator.trace = f"alone too {pid}"
        generator.end("wait", 12, 12 + waited, f"w{pid}", **reason)
    reward = joining(process("reward", "reward", 5))
    reward.end("reward", 11, 12, "reward", "step 0")
    driver.end("step", 10, 20, "step 0")
    driver.begin_step(1, 30)
    driver.end("step", 30, 31, "step 1")
    lines = reported(capsys, str(RUN))[1]
    assert lines[3:9] == [
        "  train:              6.00s",
        "  other:              4.00s",
        "  total:             10.00s",
        "  generator waited: buffer_full 8.0s",
        "  meanwhile generator (3 processes): rollout 2.0s, peak mem 3.00 GiB",
        "  meanwhile reward: reward 1.0s",
    ]
    second = lines.index("Step   1")
    assert not any("meanwhile" in line for line in lines[second:])
    assert not any("Cumul. wait" in line or "Cumul. rollout" in line for line in lines)


def test_a_phase_of_another_role_that_has_not_ended_counts_until_the_step_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A generator that waits for longer than the step takes was waiting during all of it."""
    driver = process("driver", "trainer", 1)
    driver.begin_step(0, 10)
    driver.end("step", 10, 20, "step 0")
    generator = process("g", "generator", 2)
    generator.trace = "alone"
    generator.start("wait", 14, "w", **{semconv.WAIT_REASON: "weight_sync"})
    assert "  generator waited: weight_sync 6.0s" in reported(capsys, str(RUN))[1]


# --- clocks ---


def skewed(ahead: float, *, length: float = 10, steps: int = 3) -> None:
    """Write a run whose trajectories ran on a host with another clock, messages take a tenth of a second."""
    driver, worker = process("driver", "driver", 1), process("worker", "generator", 2, "b", ahead=ahead)
    for index in range(steps):
        at = index * (length + 2.0)
        joining(worker, index)
        driver.begin_step(index, at)
        driver.start("rollout", at, f"rollout {index}", f"step {index}")
        worker.trajectory(f"{index}/0", at + 0.1, at + length / 2, f"rollout {index}")
        worker.trajectory(f"{index}/1", at + 0.1, at + length - 0.1, f"rollout {index}")
        driver.end("rollout", at, at + length, f"rollout {index}", f"step {index}")
        driver.end("step", at, at + length + 1, f"step {index}")


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (0.0, ""),
        (-30.0, "rl-otel report: the clock of b was 30s behind: its times are moved by as much\n"),
        (45.0, "rl-otel report: the clock of b was 45s ahead: its times are moved by as much\n"),
        (-86400.0, "rl-otel report: the clock of b was 24h00m behind: its times are moved by as much\n"),
        (86400.0, "rl-otel report: the clock of b was 24h00m ahead: its times are moved by as much\n"),
    ],
)
def test_a_clock_that_differs_is_set_right_and_said(
    ahead: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A child before its parent, or after its end, was timed by another clock: its trajectories count all the same."""
    skewed(ahead)
    code, lines, error = reported(capsys, str(RUN))
    assert (code, error) == (0, told)
    assert sum(line.startswith("  2 trajectories: p50 4.9s  p90 9.8s  max 9.8s") for line in lines) == 3


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ahead=st.floats(-1e5, 1e5),
    starts=st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1)), min_size=1, max_size=8),
)
def test_no_clock_makes_a_time_negative(ahead: float, starts: list[tuple[float, float]]) -> None:
    """Whatever the offset is, no trajectory begins before its rollout once it is set right, and all are counted."""
    shutil.rmtree(RUN, ignore_errors=True)
    driver, worker = process("driver", "driver", 1), joining(process("worker", "generator", 2, "b", ahead=ahead))
    driver.begin_step(0, 0)
    driver.start("rollout", 0, "rollout", "step 0")
    for number, (start, share) in enumerate(starts):
        worker.trajectory(f"t{number}", start, start + share * (10 - start))
    driver.end("rollout", 0, 10, "rollout", "step 0")
    driver.end("step", 0, 11, "step 0")
    (step,), analysis = analysed()
    rollout = step.figures.training
    assert rollout is not None
    assert rollout.count == len(starts)
    assert all(each.start >= step.figures.start and each.end >= each.start for each in rollout.slowest)
    assert rollout.tail is None or rollout.tail >= 0
    # Between the two bounds that the spans give, of which one is at 0 or the offset is none.
    moved = analysis.clocks.widest.get("b", 0) / 1e9
    assert abs(moved + ahead) <= 10 + 1e-6 or abs(moved) <= abs(ahead)


def test_hosts_behind_hosts_are_set_right_one_after_the_other() -> None:
    """An environment's host is told by the generator's, which is told by the driver's."""
    skewed(-30.0, steps=1)
    env = joining(process("env", "env", 3, "c", ahead=-100.0))
    env.end("env.step", 3, 4, "e", "0/1")
    env.end("env.step", 0.2, 1, "e2", "0/1")
    (step,), analysis = analysed()
    assert step.figures.training is not None
    assert {host: round(offset / 1e9) for host, offset in analysis.clocks.widest.items()} == {"b": 30, "c": 100}


def test_a_rank_that_steps_before_the_first_has_no_other_clock() -> None:
    """Ranks join a step by its number: that one begins it before rank 0 does says nothing of clocks."""
    driver, rank = process("r0", "trainer", 1), joining(process("r1", "trainer", 2, "b", rank=1))
    rank.end("step", -3, 9, "step r1", "step 0", **{semconv.RANK: 1})
    driver.begin_step(0, 0)
    driver.end("step", 0, 10, "step 0")
    assert analysed()[1].clocks.widest == {}


# --- what is not there ---


def test_a_step_whose_driver_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Journals of workers alone have no step to report, and the line says which file is not there."""
    joining(process("worker", "generator", 2), 3).trajectory("3/0", 0, 1)
    code, lines, error = reported(capsys, str(RUN))
    assert (code, lines) == (1, [])
    assert "spans of step 3 are here, but no journal has the beginning: that of the driver is missing" in error


@pytest.mark.parametrize(
    ("here", "told"),
    [
        ((0, 1, 2, 3), ""),
        ((0, 1, 3), "rank 2 of 4 trainers left no journal here: copy those of other hosts into runs/r"),
        ((0,), "ranks 1 to 3 of 4 trainers left no journal here: copy those of other hosts into runs/r"),
    ],
)
def test_ranks_that_left_no_journal_are_said(
    here: tuple[int, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that has only some ranks says which are not there; processes that serve them have no rank to miss."""
    for rank in here:
        maker = process(f"r{rank}", "trainer", rank, rank=rank, **{semconv.WORLD_SIZE: 4})
        if rank == 0:
            one_step(maker, 0)
    process("engine", "generator", 9, **{semconv.WORLD_SIZE: 8})
    process("child", "worker", 8, rank=0, **{semconv.WORLD_SIZE: 4})
    code, _, error = reported(capsys, str(RUN))
    assert (code, error) == (0, f"rl-otel report: {told}\n" if told else "")


def test_each_thing_that_is_wrong_with_a_folder_is_named_and_the_rest_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder in a journal's place, an empty file, one of a newer format, a torn one and a second copy."""
    one_step(process("driver", "driver", 1, **{semconv.SERVICE_INSTANCE_ID: "one"}), 0)
    shutil.copy(RUN / "driver.00000.journal", RUN / "driver2.00000.journal")
    (RUN / "folder.00000.journal").mkdir()
    (RUN / "empty.00000.journal").touch()
    newer = process("newer", "driver", 2).path
    process_record = _record.Process(_record.FORMAT + 1, "run", 0, {}, 0, 0)
    newer.unlink()
    Maker.write(rewritten(newer), process_record)
    torn = process("torn", "generator", 3).path
    torn.write_bytes(torn.read_bytes()[:-2])
    code, lines, error = reported(capsys, str(RUN))
    assert code == 0
    assert "  2 trajectories: p50 2.0s  p90 4.0s  max 4.0s, env 25 %, slowest 0/1" in lines
    for told in (
        "folder.00000.journal is no file: left out",
        "empty.00000.journal is empty, damaged, or no journal of rl_otel: left out",
        f"newer.00000.journal has format {_record.FORMAT + 1}, which a newer rl_otel reads: left out",
        "torn.00000.journal is empty, damaged, or no journal of rl_otel: left out",
        "driver2 is the process of driver once more: left out",
    ):
        assert told in error
    assert error.count("\n") == 5


def rewritten(path: Path) -> Maker:
    maker = Maker(Path("elsewhere"), "scratch")
    maker.path = path
    return maker


def test_a_process_whose_first_file_is_torn_is_read_from_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Each file begins with who writes it, so a torn beginning costs that record alone where there is another file."""
    one_step(process("driver", "driver", 1), 0)
    first = RUN / "driver.00000.journal"
    later = process("later", "driver", 1)
    later.path.rename(RUN / "driver.00001.journal")
    first.write_bytes(b"x" + first.read_bytes()[5:])
    code, lines, error = reported(capsys, str(RUN))
    assert (code, lines[0]) == (0, "Step   0 | Loss: 0.5000")
    assert error == f"rl-otel report: {first} is damaged in front: what can be read behind that is here\n"


# --- a real run ---

DRIVER = """
import json, os, subprocess, sys
import rl_otel
from rl_otel import context

env = {**os.environ, "RL_OTEL_RUN_DIR": "runs", "RL_OTEL_RUN_ID": "r", "RL_OTEL_ROLE": "generator"}
WORKER = '''
import json, sys
import rl_otel
from rl_otel import context

rl_otel.configure()
with context.use(json.loads(sys.argv[1])), rl_otel.trajectory(group=sys.argv[2], sample=0):
    with rl_otel.generate() as generation:
        generation.record(output_tokens=100)
    with rl_otel.env_step("swe"):
        pass
rl_otel.shutdown()
'''

rl_otel.configure(service_name="grpo", run_dir="runs", run_id="r")
for i in range(2):
    with rl_otel.step(i):
        with rl_otel.rollout():
            carrier = json.dumps(context.inject())
            started = [subprocess.Popen([sys.executable, "-c", WORKER, carrier, str(n)], env=env) for n in range(3)]
            assert [each.wait() for each in started] == [0, 0, 0]
        with rl_otel.train():
            pass
"""


@pytest.mark.once
def test_a_driver_says_what_its_table_lacks_and_the_report_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The driver of three workers saw no trajectory end: it says so in place of zeros; the report has three a step."""
    printed = real.run(DRIVER, env={"RL_OTEL_PRINT": "1"}).stdout
    alone = "  (this process alone: rl-otel report tells of those it handed its context to)"
    assert printed.count(alone) == 2
    assert "trajector" not in printed.replace(alone, "")
    code, lines, error = reported(capsys, str(RUN))
    assert (code, error) == (0, "")
    told = [line for line in lines if line.startswith("  3 trajectories: p50 ")]
    assert len(told) == 2
    assert sum("300 tok out" in line for line in lines) == 2
    assert alone not in lines


@pytest.mark.once
def test_a_step_of_several_processes_is_exported_as_one_trace() -> None:
    """`rl-otel export --step` writes the spans of all of them, each below its parent and under its own process."""
    real.run(DRIVER)
    spans = exported(RUN, "--step", "1")
    above = {"trajectory": "rollout", "generate": "trajectory", "env.step": "trajectory"}
    above |= {"step": "", "rollout": "step", "train": "step"}
    assert Counter(span.name for span in spans) == {name: 3 if name in list(above)[:3] else 1 for name in above}
    names = {b"": "", **{span.proto.span_id: span.name for span in spans}}
    assert {(span.name, names[span.proto.parent_span_id]) for span in spans} == set(above.items())
    assert len({span.proto.trace_id for span in spans}) == 1
    processes: dict[str, set[int]] = {}
    for span in spans:
        processes.setdefault(span.name, set()).add(span.resource["process.pid"])
    assert len(processes["trajectory"]) == 3
    assert processes["trajectory"] == processes["generate"] == processes["env.step"]
    assert processes["trajectory"].isdisjoint(processes["step"])


# --- what nothing trained on ---


def consuming(trained: dict[int, list[str]], **more: Any) -> Maker:
    """Write a trainer whose steps train on trajectories, each a trace of its own with a hundred tokens."""
    trainer = process("trainer", "trainer", 1)
    for index, ids in trained.items():
        at = 10.0 * index
        trainer.begin_step(index, at)
        told, links = {semconv.PHASE: "train", semconv.STEP_INDEX: index}, [link_to(id_, **more) for id_ in ids]
        whole = _record.End(
            trace_of(f"step {index}"), span_of(f"train {index}"), span_of(f"step {index}"), "train",
            BEGAN + round(at * S), BEGAN + round((at + 5) * S), told, links=links,
        )  # fmt: skip
        trainer.write(whole)
        trainer.end("step", at, at + 9, f"step {index}")
    return trainer


def link_to(id_: str, **more: Any) -> _record.Link:
    return _record.Link(trace_of(id_), span_of(id_), {semconv.TRAJECTORY_ID: id_, **more})


def alone(maker: Maker, id_: str, end: float, tokens: int = 100, **more: Any) -> None:
    """Append a trajectory that is a trace of its own."""
    maker.trace = id_
    maker.trajectory(id_, end - 1, end, "", **{semconv.TRAJECTORY_OUTPUT_TOKENS: tokens, **more})


def wasted(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = reported(capsys, str(RUN))[1]
    return [line.strip() for line in lines if "never trained" in line]


def test_tokens_that_nothing_trained_on_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Dropped, aborted and forgotten ones, but no evaluation, and none that was named before it was read."""
    consuming({0: ["g/0"], 1: ["g/1", "late"], 2: []})
    generator = process("generator", "generator", 2)
    for number in range(3):
        alone(generator, f"g/{number}", number + 1)
    alone(generator, "aborted", 5, 30, **{semconv.TRAJECTORY_OUTCOME: "aborted"})
    alone(generator, "eval", 6, 1000, **{semconv.MODE: "eval"})
    alone(generator, "late", 40)
    assert wasted(capsys) == ["Generated, never trained on: 2 of 5 trajectories, 130 of 430 tok out (30 %)"]


def test_a_run_that_says_nothing_of_what_it_trains_on_wastes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a link nothing is known, however many steps there are."""
    consuming({index: [] for index in range(40)})
    alone(process("generator", "generator", 2), "g/0", 1)
    assert wasted(capsys) == []


def test_a_run_whose_trajectories_are_all_missing_says_how_they_get_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Generators that never called `configure()` leave nothing: that is said, and no figure is made of nothing."""
    consuming({0: ["g/0"], 1: ["g/1", "g/2"]})
    _, lines, error = reported(capsys, str(RUN))
    assert not any("never trained" in line for line in lines)
    assert "of 3 trajectories trained on nothing is here: call configure() in each process that plays them" in error
    alone(process("generator", "generator", 2), "g/0", 1)
    assert "trained on" not in reported(capsys, str(RUN))[2]


def test_what_is_continued_is_trained_on_with_its_last_segment(capsys: pytest.CaptureFixture[str]) -> None:
    """A trajectory over two weight updates counts once, with the tokens of all its segments."""
    consuming({0: ["kept 2"], 1: []})
    generator = process("generator", "generator", 2)
    for id_ in ("kept", "lost"):
        name = {semconv.TRAJECTORY_ID: id_}
        alone(generator, f"{id_} 1", 1, 10, **name, **{semconv.TRAJECTORY_CONTINUES: True})
        alone(generator, f"{id_} 2", 2, 20, **name, **{semconv.SEGMENT: 2})
    assert wasted(capsys) == ["Generated, never trained on: 1 of 2 trajectories, 30 of 60 tok out (50 %)"]


def test_a_link_that_stands_for_a_group_is_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Above a thousand links there is one a group; where it is for fewer than there are, nobody knows which."""
    group = {semconv.GROUP_ID: "g", semconv.GROUP_TRAJECTORIES: 3}
    consuming({0: ["g/0"], 1: []}, **group)
    generator = process("generator", "generator", 2)
    for number in range(3):
        alone(generator, f"g/{number}", number + 1, **{semconv.GROUP_ID: "g"})
    alone(generator, "h/0", 3)
    assert wasted(capsys) == ["Generated, never trained on: 1 of 4 trajectories, 100 of 400 tok out (25 %)"]
    alone(generator, "g/3", 4, **{semconv.GROUP_ID: "g"})
    assert wasted(capsys) == []


def test_a_trajectory_inside_another_is_trained_on_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The tokens of an agent that a tool call started belong to the trajectory that called it."""
    consuming({0: ["outer"], 1: []})
    generator = process("generator", "generator", 2)
    generator.trace = "outer"
    generator.start("trajectory", 0, "outer")
    generator.trajectory("inner", 1, 2, "tool", **{semconv.TRAJECTORY_OUTPUT_TOKENS: 50})
    generator.end("env.step", 1, 3, "tool", "outer")
    alone(generator, "outer", 4)
    assert wasted(capsys) == ["Generated, never trained on: 0 of 1 trajectory, 0 of 150 tok out (0 %)"]
