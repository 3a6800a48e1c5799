"""A fork at the worst moment: while other threads hold our locks, and in a signal handler."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_otel.testing import Traces
from tests import process
from tests.test_fork import HEAD

#: Every lock of ours is another thread's at the very moment of the fork: after our hook before it, before those after.
HELD = """
    import os, signal, sys, threading, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside a thread
    locks, held, over = [], threading.Event(), threading.Event()

    def noting(make):
        def made():
            lock = make()
            if sys._getframe(1).f_globals["__name__"].startswith("rl_otel"):
                locks.append(lock)
            return lock
        return made

    def hold():
        for lock in locks:
            lock.acquire()
        held.set()
        over.wait()
        for lock in locks:
            lock.release()

    def before():
        threading.Thread(target=hold).start()
        held.wait()

    os.register_at_fork(before=before, after_in_parent=over.set)
    threading.Lock, threading.RLock = noting(threading.Lock), noting(threading.RLock)
    import rl_otel
    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.trajectory(), rl_otel.generate():
        assert len(locks) > 8
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            with rl_otel.env_step("in the child"):
                pass
    with rl_otel.step(1), rl_otel.train():
        pass
    rl_otel.shutdown()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_lock_that_another_thread_holds_at_the_fork_holds_nobody_in_the_child() -> None:
    """A child ends what it inherited, records and shuts down, whoever was in the middle of what in its parent."""
    process.run(HELD)
    traces = Traces(Path("runs/r1"))
    assert [span.attributes["rl.environment.name"] for span in traces.all("env.step")] == ["in the child"]
    assert sorted(span.attributes["rl.step"] for span in traces.all("step")) == [0, 1, 1]


USES_POOLS = """
    import concurrent.futures.thread, signal
    def work():
        signal.alarm(20)
        record("child")
        child(lambda: record("grandchild"))
    child(work)
"""


def test_a_host_that_uses_threads_of_a_pool_can_fork() -> None:
    """What the SDK does in a forked child waits for no lock of a module that the host imports after `configure()`."""
    process.run(HEAD + USES_POOLS)
    assert len(Traces(Path("runs/r1")).all("env.step")) == 2


AT_EACH_LINE = """
    import signal
    warnings.simplefilter("ignore", DeprecationWarning)
    record("before")
    struck, parent = 0, os.getpid()

    def handler(*_):
        global struck
        struck += 1
        child(rl_otel.flush)

    def trace(frame, event, argument):
        ours = frame.f_globals["__name__"].split(".")[0] in ("rl_otel", "threading", "queue")
        if event == "line" and ours and os.getpid() == parent:
            signal.raise_signal(signal.SIGUSR1)
        return trace

    signal.signal(signal.SIGUSR1, handler)
    signal.alarm(50)
    sys.settrace(trace)
    WORK
    sys.settrace(None)
    assert struck > 2, struck
    record("after")
    report = rl_otel.shutdown()
    assert not report.dropped
"""


@pytest.mark.parametrize("work", ["child(lambda: None)", "rl_otel._runtime.active.keeper.look()"])
def test_a_signal_handler_that_forks_in_the_middle_of_a_fork(work: str) -> None:
    """At each line that runs before and after a fork, or to wake a thread of ours, a handler may fork as well."""
    process.run(HEAD + AT_EACH_LINE.replace("WORK", work))
