"""A fork, also in the middle of a span: the child records on its own, and nothing is recorded twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_otel._journal import journals, read
from rl_otel._record import End, Process
from rl_otel.testing import Recorded, Traces
from tests import process
from tests.receiver import Receiver

#: Forks as such, and what they record. Warnings are errors: from 3.12 on Python warns of a fork beside a thread.
HEAD = """
    import os, sys, threading, time, warnings
    counted = []
    os.register_at_fork(before=lambda: counted.append(len(os.listdir("/proc/self/task"))))  # runs after ours
    import rl_otel

    def child(work, leave=os._exit):
        pid = os.fork()
        if pid == 0:
            work()
            leave(0)
        assert os.waitpid(pid, 0)[1] == 0
        return pid

    def record(name):
        with rl_otel.env_step(name):
            pass

    rl_otel.configure(run_dir="runs", run_id="r1", **({"endpoint": sys.argv[1]} if len(sys.argv) > 1 else {}))
"""


def traces_of(script: str, *arguments: str, **env: str) -> Traces:
    process.run(HEAD + script, *arguments, env=env)
    return Traces(Path("runs/r1"))


def by_process() -> dict[str, list[str]]:
    """Return the environments that each process recorded, by its instance id."""
    found: dict[str, list[str]] = {}
    for path in journals(Path("runs/r1")):
        first, *others = [record for record, _ in read(path)]
        assert isinstance(first, Process)
        spans = [record for record in others if isinstance(record, End)]
        found[first.resource["service.instance.id"]] = [environment(span) for span in spans]
    return found


def environment(span: End | Recorded) -> Any:
    return span.attributes.get("rl.environment.name", span.name)


IN_A_SPAN = """
    with rl_otel.step(3) as step, rl_otel.rollout():
        record("before")
        pid = child(lambda: record("in the child"))
        record("after")
    rl_otel.shutdown()
    print(pid)
"""


def test_a_fork_in_a_span_gives_the_child_a_journal_of_its_own() -> None:
    """The child's spans are in its own journal, children of the parent's; the parent's are recorded once."""
    traces = traces_of(IN_A_SPAN)
    assert sorted(by_process().values()) == [["before", "after", "rollout", "step"], ["in the child"]]
    assert len({path.name.split("-")[-2] for path in journals(traces.folder)}) == 2
    rollout = traces.one("rollout")
    assert [environment(span) for span in rollout.children] == ["before", "in the child", "after"]
    assert {span.attributes["rl.step"] for span in traces.spans} == {3}


FORKS_ALONE = """
    from tests.waiting import until
    record("before")
    worker = rl_otel._runtime.active.keeper.worker
    for i in range(20):
        until(lambda: worker._may_leave)
        child(lambda: record(f"child {i}"))
    assert len(threading.enumerate()) == 3, threading.enumerate()
    record("after")
    print(*counted)
"""


def test_no_thread_of_ours_is_beside_a_fork() -> None:
    """While the host forks it has no thread but its own, so that Python does not warn of it; later ours go on."""
    done = process.run(HEAD + FORKS_ALONE)
    assert done.stdout.split() == ["1"] * 20
    assert done.stderr == ""
    assert sorted(map(len, by_process().values())) == [1] * 20 + [2]


LEAVES_THE_SPAN = """
    with rl_otel.step(0), rl_otel.rollout():
        pid = os.fork()
        if pid == 0:
            record("in the child")
        else:
            os.waitpid(pid, 0)
    if pid == 0:
        record("later in the child")
        rl_otel.shutdown()
        os._exit(0)
"""


def test_a_span_that_both_leave_is_the_parents() -> None:
    """A child that leaves the `with` it was born in neither records nor prints the parent's span a second time."""
    done = process.run(HEAD + LEAVES_THE_SPAN, env={"RL_OTEL_PRINT": "1"})
    assert sorted(by_process().values()) == [["in the child", "later in the child"], ["rollout", "step"]]
    assert len(Traces(Path("runs/r1")).roots) == 2
    assert done.stdout.count("Step   0") == 1


FORKED_BEFORE = """
    children = [child(lambda: record(f"child {i}")) for i in range(3)]
    record("parent")
"""


def test_children_of_a_process_that_has_recorded_nothing_yet() -> None:
    """Forked before the first span each records into a file of its own, under the same run and restart."""
    traces = traces_of(FORKED_BEFORE)
    assert sorted(by_process().values()) == [["child 0"], ["child 1"], ["child 2"], ["parent"]]
    firsts = [record for record in traces.records if isinstance(record, Process)]
    assert {(first.run, first.restart) for first in firsts} == {("r1", 0)}
    assert len({first.resource["process.pid"] for first in firsts}) == 4


STEPS_IN_BOTH = """
    with rl_otel.step(0):
        pass
    def steps():
        with rl_otel.step(0), rl_otel.train():
            pass
        with rl_otel.step():
            pass
    child(steps)
    with rl_otel.step(1):
        pass
"""


@pytest.mark.parametrize("printing", ["0", "1"])
def test_steps_of_a_child_join_those_of_the_parent(printing: str) -> None:
    """One process owns the root of a step: a child's step is a child of it, and only the parent prints."""
    done = process.run(HEAD + STEPS_IN_BOTH, env={"RL_OTEL_PRINT": printing})
    traces = Traces(Path("runs/r1"))
    assert traces.tree() == "step\n  step\n    train\nstep\n  step"
    assert len({span.span_id for span in traces.spans}) == 5
    assert [span.attributes["rl.step"] for span in traces.roots] == [0, 1]
    assert done.stdout.count("Step   ") == (2 if printing == "1" else 0)


LONE_TRAJECTORIES = """
    with rl_otel.trajectory("t"):
        pass
    def again():
        with rl_otel.trajectory("t") as trajectory:
            assert trajectory.id == "t#2"
    child(again)
"""


def test_a_child_does_not_repeat_the_ids_of_the_parent() -> None:
    """A trajectory's id that the parent has used becomes another in the child, and so do its span ids."""
    traces = traces_of(LONE_TRAJECTORIES)
    first, second = traces.all("trajectory")
    assert first.span_id != second.span_id
    assert first.trace_id != second.trace_id


THREADS = """
    warnings.simplefilter("ignore", DeprecationWarning)  # it may be sending just then
    record("parent")
    names = sorted(thread.name for thread in threading.enumerate())
    def in_child():
        assert threading.active_count() == 1
        record("child")
        assert sorted(thread.name for thread in threading.enumerate()) == names, threading.enumerate()
        report = rl_otel.shutdown()
        assert (report.sent, report.pending) == (1, 0), report
    assert names == ["MainThread", "rl_otel keeper", "rl_otel meter", "rl_otel ship"]
    child(in_child)
    report = rl_otel.shutdown()
    assert (report.sent, report.pending) == (1, 0), report
"""


def test_threads_start_again_in_the_child() -> None:
    """A child delivers what it recorded by threads and connections of its own, under its own instance."""
    with Receiver() as receiver:
        traces_of(THREADS, receiver.http)
        found = {environment_sent: span.resource for span in receiver.spans for environment_sent in [named(span)]}
    assert set(found) == {"parent", "child"}
    assert found["parent"]["service.instance.id"] != found["child"]["service.instance.id"]
    assert found["parent"]["process.pid"] != found["child"]["process.pid"]


def named(span: Any) -> str:
    return str(span.attributes["rl.environment.name"])


KILLED = """
    import signal
    pid = os.fork()
    if pid == 0:
        for i in range(100):
            record(str(i))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def test_a_child_that_is_killed_has_lost_nothing_that_ended() -> None:
    """The journal of a child that leaves without a word has all its spans."""
    traces_of(KILLED)
    assert list(by_process().values()) == [[str(i) for i in range(100)]]


POOL = """
    import multiprocessing
    warnings.simplefilter("ignore", DeprecationWarning)  # the pool has threads of its own
    def work(i):
        record(str(i))
        return os.getpid()
    with rl_otel.step(0), rl_otel.rollout():
        with multiprocessing.get_context("fork").Pool(3) as pool:
            pool.map(work, range(12), chunksize=1)
            pool.close()
            pool.join()
"""


def test_workers_of_a_pool_record_into_the_step() -> None:
    """Each task of a multiprocessing pool is in the trace of the step that it was started in."""
    traces = traces_of(POOL)
    assert sorted(int(environment(span)) for span in traces.one("rollout").children) == list(range(12))


WHILE_RECORDING = """
    warnings.simplefilter("ignore", DeprecationWarning)  # the host's threads
    done = threading.Event()
    def others():
        while not done.is_set():
            record("thread")
    threads = [threading.Thread(target=others) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(5):
        child(lambda: record(f"child {i}"))
    done.set()
    for thread in threads:
        thread.join()
    report = rl_otel.shutdown()
    print(report.kept)
    assert not report.dropped
"""


def test_a_fork_beside_threads_that_record_hangs_nobody() -> None:
    """Whatever the other threads hold at that moment, each child records."""
    done = process.run(HEAD + WHILE_RECORDING)
    found = sorted(by_process().values(), key=len)
    assert sorted(found[:5]) == [[f"child {i}"] for i in range(5)]
    assert len(found[5]) == int(done.stdout)
