"""Processes that a run starts: each records into its own journal, in the trace of the step, nothing twice or lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from rl_otel._cli import main
from rl_otel._journal import journals, read
from rl_otel._record import End, Process
from rl_otel._terminal import command
from rl_otel.testing import Traces
from tests import needs, process
from tests.receiver import black_hole

if TYPE_CHECKING:
    from tests.receiver import Receiver

pytestmark = pytest.mark.usefixtures("look_often")

#: Warnings are errors, and from 3.12 on Python warns of a fork beside threads, which pools have.
HEAD = """
    import multiprocessing, os, subprocess, sys, warnings
    from functools import partial
    import rl_otel
    from rl_otel import context
    from tests import workers
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    rl_otel.configure(service_name="grpo", endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    pids = []
    with rl_otel.step(3), rl_otel.rollout():
        carrier = context.inject()
"""
TAIL = """
    rl_otel.shutdown(30)
    print(os.getpid(), *sorted(set(pids) - {None}))
"""

PROCESS = """
        ways = multiprocessing.get_context("{way}")
        for i in range(2):
            child = ways.Process(target=workers.record, args=(carrier, str(i)))
            child.start()
            pids.append(child.pid)
            child.join()
            assert child.exitcode == 0
"""
POOL = """
        with multiprocessing.get_context("{way}").Pool(2, maxtasksperchild=1) as pool:
            pids += pool.map(partial(workers.record, carrier), "0123", chunksize=1)
            pool.close()
            pool.join()
"""
EXECUTOR = """
        from concurrent.futures import ProcessPoolExecutor
        ways = multiprocessing.get_context("{way}")
        with context.executor(ProcessPoolExecutor(2, mp_context=ways)) as pool:
            pids += [pool.submit(workers.step_environment, "0").result(), *pool.map(workers.step_environment, "123")]
"""
PROGRAM = """
        child = "import os, rl_otel; from tests import workers; print(workers.record(os.environ, '0'))"
        done = subprocess.run([sys.executable, "-c", child], env=context.environ(), capture_output=True, text=True)
        assert not done.stderr, done.stderr
        pids.append(int(done.stdout))
"""
LOADER = """
        from torch.utils.data import DataLoader
        items = workers.Items(carrier, 4)
        loader = DataLoader(items, num_workers=2, multiprocessing_context="{way}")
        assert sorted(int(batch) for batch in loader) == [0, 1, 2, 3]
        pids += [None]
"""
VECTOR = """
        import gymnasium
        envs = gymnasium.vector.AsyncVectorEnv([workers.make_environment] * 2, context="{way}")
        envs.set_attr("carrier", carrier)
        envs.reset(seed=1)
        for _ in range(3):
            envs.step(envs.action_space.sample())
        envs.close()
"""


class Recorder(NamedTuple):
    """A process that has recorded."""

    resource: dict[str, object]
    restart: int
    spans: list[End]


def recorders() -> dict[int, Recorder]:
    """Return who has recorded, by process id."""
    found = {}
    for path in journals(Path("runs/r1")):
        first, *others = [record for record, _ in read(path)]
        assert isinstance(first, Process)
        pid = first.resource["process.pid"]
        assert pid not in found
        found[pid] = Recorder(first.resource, first.restart, [each for each in others if isinstance(each, End)])
    return found


def whole(receiver: Receiver) -> set[tuple[str, bytes]]:
    """Return what has arrived, by id and as bytes.

    A child that is gone between sending and noting it has it sent again, byte for byte: back ends show that once.
    """
    return {(span.proto.span_id.hex(), span.proto.SerializeToString()) for span in receiver.spans}


KINDS = [
    *[pytest.param(PROCESS.format(way=way), id=f"process-{way}") for way in ("fork", "spawn", "forkserver")],
    *[pytest.param(POOL.format(way=way), id=f"pool-{way}") for way in ("spawn", "forkserver")],
    pytest.param(EXECUTOR.format(way="spawn"), id="executor-spawn"),
    pytest.param(PROGRAM, id="subprocess"),
    *[pytest.param(LOADER.format(way=way), id=f"loader-{way}", marks=needs.torch) for way in ("fork", "spawn")],
    *[
        pytest.param(VECTOR.format(way=way), id=f"vector-{way}", marks=[needs.gymnasium, needs.numpy])
        for way in ("fork", "spawn")
    ],
]


@pytest.mark.parametrize("work", KINDS)
def test_every_kind_of_child_records_in_the_step(receiver: Receiver, work: str) -> None:
    """Its spans are in the trace under the span it was started in, from a process of its own, and all arrive once."""
    done = process.run(HEAD + work + TAIL, receiver.http, timeout=110)
    assert done.stderr == ""
    parent, *pids = map(int, done.stdout.split())
    found = recorders()
    children = {pid: each for pid, each in found.items() if pid != parent}
    assert len(children) >= 1
    assert set(pids) <= set(children)
    assert len({each.resource["service.instance.id"] for each in found.values()}) == len(found)
    assert {(each.resource["rl.run.id"], each.resource["service.name"], each.restart) for each in found.values()} == {
        ("r1", "grpo", 0)
    }
    traces = Traces(Path("runs/r1"))
    rollout = traces.one("rollout")
    names = [child.attributes["rl.environment.name"] for child in rollout.children]
    assert len(names) == len(traces.all("env.step"))
    assert sorted(names) == [*"0123"][: len(names)] if "cartpole" not in names else len(names) == 6
    assert {span.attributes["rl.step"] for span in traces.spans} == {3}
    assert sorted(span_id for span_id, _ in whole(receiver)) == sorted(span.span_id for span in traces.spans)


ENDS = """
        ways = multiprocessing.get_context("{way}")
        names = [str(i) for i in range(200)]
        child = ways.Process(target=workers.record_and_leave, args=(carrier, names), kwargs=dict(killed={killed}))
        child.start()
        pids.append(child.pid)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is not asked how it ended
"""


@pytest.mark.parametrize("killed", [False, True], ids=["os._exit", "kill -9"])
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_child_that_is_gone_without_a_word_loses_nothing(receiver: Receiver, way: str, killed: bool) -> None:
    """What it had recorded is delivered by its parent, also where nobody has waited for the child yet."""
    process.run(HEAD + ENDS.format(way=way, killed=killed) + TAIL, receiver.http)
    arrived = whole(receiver)
    assert len({span_id for span_id, _ in arrived}) == len(arrived) == 202


NOTHING_ITSELF = """
    import os, subprocess, sys
    import rl_otel
    from rl_otel import context
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    carrier = {"TRACEPARENT": sys.argv[2], "TRACESTATE": "rl_otel=1;k:rollout;s:1"}
    child = "import os; from tests import workers; workers.record_and_leave(os.environ, ['a', 'b'])"
    subprocess.run([sys.executable, "-c", child], env={**context.environ(), **carrier}, check=True)
    print(bool(rl_otel.shutdown(float(sys.argv[3]))))
"""
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_parent_that_records_nothing_delivers_all_the_same(receiver: Receiver) -> None:
    """A process that only starts others looks for what they have left when it ends."""
    told = process.run(NOTHING_ITSELF, receiver.http, PARENT, "30")
    assert (told.stdout, told.stderr) == ("True\n", "")
    assert sorted(span.attributes["rl.environment.name"] for span in receiver.spans) == ["a", "b"]


def test_what_there_was_no_time_to_send_for_others_is_said(receiver: Receiver) -> None:
    """Where the receiver does not answer, a line at the end names the folder and the command, which sends it."""
    told = process.run(NOTHING_ITSELF, f"http://127.0.0.1:{black_hole()}", PARENT, "0.5")
    left = "there was no time to send what processes that are gone have left in runs/r1"
    assert f"{left}; to send it: {command('ship', Path('runs/r1'))}\n" in told.stderr
    assert main(["ship", "runs/r1", "--endpoint", receiver.http]) == 0
    assert sorted(span.attributes["rl.environment.name"] for span in receiver.spans) == ["a", "b"]


ACTOR = """
        ways = multiprocessing.get_context("spawn")
        tasks, results = ways.Queue(), ways.Queue()
        actor = ways.Process(target=workers.act, args=(tasks, results))
        actor.start()
        for i in range(24):
            with rl_otel.trajectory(i):
                tasks.put((context.inject(), str(i)))
        assert sorted(results.get() for _ in range(24)) == sorted(map(str, range(24)))
        tasks.put(None)
        actor.join()
"""


def test_an_actor_of_many_threads_serves_each_trajectory_in_its_place(receiver: Receiver) -> None:
    """Tasks of a queue that four threads of another process take: each is recorded in the trajectory it came from."""
    process.run(HEAD + ACTOR + TAIL, receiver.http)
    traces = Traces(Path("runs/r1"))
    assert len({span.trace_id for span in traces.spans}) == 1
    assert len(traces.all("trajectory")) == 24
    for trajectory in traces.all("trajectory"):
        [child] = trajectory.children
        assert child.attributes["rl.environment.name"] == trajectory.attributes["rl.trajectory.id"]


LIVES_ON = """
    import os, subprocess, sys
    import rl_otel
    from rl_otel import context
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    CHILD = '''
    import os, sys
    from tests import workers
    workers.record(os.environ, "a")
    print(os.getpid(), flush=True)
    sys.stdin.read()
    workers.record(os.environ, "b")
    '''
    import textwrap
    with rl_otel.step(0), rl_otel.rollout():
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(CHILD)], env=context.environ(),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
    assert rl_otel.shutdown(30)
    child.communicate()
"""


def test_a_child_that_lives_delivers_its_own(receiver: Receiver) -> None:
    """The journal of a process that runs on is left alone by whoever ends before it, and nothing goes twice."""
    process.run(LIVES_ON, receiver.http)
    spans = [span.proto.span_id for span in receiver.spans]
    assert len(spans) == len(set(spans)) == 4


DIES_EARLY = """
    from pathlib import Path
    from tests.waiting import until
    import rl_otel._ship.shipper as shipper
    shipper._ORPHANS = 0.05
    with rl_otel.step(4), rl_otel.rollout():
        child = multiprocessing.get_context("fork").Process(
            target=workers.record_and_leave, args=(context.inject(), ["x"]), kwargs=dict(killed=True))
        child.start()
        child.join()
        notes = f"*-{child.pid}-*.sent"
        until(lambda: any(path.stat().st_size for path in Path("runs/r1").glob(notes)))
        print("delivered")
"""


def test_a_dead_child_is_delivered_while_the_run_goes_on(receiver: Receiver) -> None:
    """A run of days does not keep what its killed workers had recorded until it ends."""
    done = process.run(HEAD + "        pass\n" + DIES_EARLY, receiver.http)
    assert "delivered" in done.stdout


WITHOUT_HEADERS = """
    import multiprocessing, sys
    import rl_otel
    from rl_otel import context
    from tests import workers
    if __name__ == "__main__":
        rl_otel.configure(endpoint=sys.argv[1], headers={"x-token": "secret"}, run_dir="runs", run_id="r1")
        import os
        assert "secret" not in str(os.environ)
        with rl_otel.step(0), rl_otel.rollout():
            child = multiprocessing.get_context("spawn").Process(target=workers.record, args=(context.inject(), "a"))
            child.start()
            child.join()
        assert rl_otel.shutdown(30)
"""


def test_what_a_child_could_not_send_its_parent_delivers(receiver: Receiver) -> None:
    """Headers that `configure()` was given are handed to nobody: the parent sends for its children, with them."""
    process.run(WITHOUT_HEADERS, receiver.http)
    assert sorted(span.name for span in receiver.spans) == ["env.step", "rollout", "step"]
    assert {request.headers.get("x-token") for request in receiver.requests} == {"secret"}
