"""How a process leaves: in its time whatever the receiver does, with its own exit code, and nothing lost."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rl_otel._record import End, Process, Start
from rl_otel.testing import Traces
from tests import process
from tests.receiver import Answer, Receiver, black_hole, dead_port

SLACK = 4.0  # s that a loaded machine may be late: still less than what it may wait where nothing is said

#: Prints when it has done its work, so that what follows is the leaving alone.
SENDS = """
    import socket, sys, time
    import rl_otel
    if sys.argv[3] == "hang":
        socket.getaddrinfo = lambda *_, **__: time.sleep(60)
    rl_otel.configure(endpoint=sys.argv[1], protocol=sys.argv[2], run_dir="runs", run_id="r1")
    with rl_otel.step(0), rl_otel.train():
        pass
    print(time.time())
    if len(sys.argv) > 4:
        rl_otel.shutdown(timeout=float(sys.argv[4]))
    sys.exit(3)
"""


def seconds_to_leave(endpoint: str, protocol: str, look_up: str = "", timeout: str | None = None) -> float:
    """Run a process that sends to `endpoint`, and return how long it took to leave with its own code."""
    given = (endpoint, protocol, look_up, *([timeout] if timeout is not None else []))
    done = process.run(SENDS, *given, check=False)
    left = time.time() - float(done.stdout)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    assert sorted(span.name for span in Traces(Path("runs/r1")).spans) == ["step", "train"]
    return left


# --- Whatever the receiver does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("port", [dead_port, black_hole])
def test_leaves_in_time_where_nobody_answers(port: object, protocol: str) -> None:
    """A port that refuses or swallows costs the timeout that was given and no more."""
    assert callable(port)
    assert seconds_to_leave(f"http://127.0.0.1:{port()}", protocol, timeout="0.3") < 0.3 + SLACK


def test_leaves_in_time_from_a_receiver_of_one_byte_a_second() -> None:
    """A receiver that keeps the answer coming for ever does not keep the process."""
    with Receiver() as receiver:
        receiver.script(then=Answer(drip=1.0))
        assert seconds_to_leave(receiver.http, "http/protobuf", timeout="0.3") < 0.3 + SLACK


def test_leaves_in_time_while_a_name_is_looked_up() -> None:
    """A name server that never answers holds up a thread that nobody waits for."""
    assert seconds_to_leave("http://collector.example:4318", "http/protobuf", "hang", timeout="0.3") < 0.3 + SLACK


@pytest.mark.once
def test_leaves_after_five_seconds_where_nothing_else_is_said() -> None:
    """Without a call of `shutdown` the end of the process waits for its five seconds."""
    left = seconds_to_leave(f"http://127.0.0.1:{black_hole()}", "http/protobuf")
    assert 4.5 < left < 5 + SLACK


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_what_was_recorded_is_delivered_at_exit(protocol: str) -> None:
    """Nobody has to call `shutdown`: at the end of the process all is sent, at once."""
    with Receiver() as receiver:
        left = seconds_to_leave(receiver.grpc if protocol == "grpc" else receiver.http, protocol)
        assert sorted(span.name for span in receiver.spans) == ["step", "train"]
    assert left < 5.0  # which is what it has to wait for where nobody answers


# --- However it ends --------------------------------------------------------------------------------------------------

ENDS = """
    import os, signal, sys
    import rl_otel
    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0):
        pass
    with rl_otel.step(1), rl_otel.train():
        with rl_otel.optimizer():
            pass
        {ending}
"""


def after(ending: str) -> tuple[int, str, Traces]:
    """Run a process that ends in the middle of a phase; return its code, what it wrote, and its journal."""
    done = process.run(ENDS.format(ending=ending), check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr, Traces(Path("runs/r1"))


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_what_ended_before_a_sudden_end_is_in_the_journal(ending: str, code: int) -> None:
    """However hard the process is stopped: what had ended is there, and what was open is known."""
    returned, stderr, traces = after(ending)
    assert (returned, stderr) == (code, "")
    assert [span.name for span in traces.spans] == ["step", "optimizer"]
    records = traces.records
    assert isinstance(records[0], Process)
    ended = {record.span for record in records if isinstance(record, End)}
    opened = [record.name for record in records if isinstance(record, Start) and record.span not in ended]
    assert opened == ["step", "train"]


@pytest.mark.parametrize(
    ("ending", "code", "status", "attributes", "last_line"),
    [
        ("sys.exit(3)", 3, "unset", {"rl.aborted": "SystemExit"}, ""),
        ("raise ValueError('nan')", 1, "error", {"error.type": "ValueError"}, "ValueError: nan"),
        ("raise KeyboardInterrupt", -2, "unset", {"rl.aborted": "KeyboardInterrupt"}, "KeyboardInterrupt"),
    ],
)
def test_an_exception_that_ends_the_process_is_its_own(
    ending: str, code: int, status: str, attributes: dict[str, str], last_line: str
) -> None:
    """The exit code and the traceback are those of the program; the open spans end with what happened."""
    returned, stderr, traces = after(ending)
    assert returned == code
    assert stderr.splitlines()[-1:] == ([last_line] if last_line else [])
    assert "rl_otel" not in stderr
    for name in ("step", "train"):
        span = traces.all(name)[-1]
        assert span.status == status
        assert attributes.items() <= span.attributes.items()


def test_the_summary_is_printed_at_exit() -> None:
    """A run that prints ends with its summary, without a call."""
    done = process.run(ENDS.format(ending="pass"), env={"RL_OTEL_PRINT": "1"})
    assert done.stdout.count("Training Summary (2 steps)") == 1
    assert done.stderr == ""


def test_a_quiet_run_writes_nothing() -> None:
    """Where nothing goes wrong and no terminal is there, neither output gets a line of ours."""
    done = process.run(ENDS.format(ending="pass"))
    assert (done.stdout, done.stderr) == ("", "")


HANDLER = """
    import os, signal, sys
    import rl_otel
    def leave(*_):
        print(rl_otel.shutdown(timeout=1).kept)
        sys.exit(5)
    signal.signal(signal.SIGTERM, leave)
    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0):
        with rl_otel.train():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_signal_handler_may_shut_down() -> None:
    """A handler that shuts down in the middle of a step gets its report, and the exit code is the handler's."""
    done = process.run(HANDLER, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "1\n", "")


# --- Handlers of the host that run after ours -------------------------------------------------------------------------

AFTERWARDS = """
    import atexit, sys
    import rl_otel
    opened = []
    def last():
        opened.pop().end()
        with rl_otel.checkpoint():
            pass
        print(rl_otel.flush(1).pending)
    atexit.register(last)
    rl_otel.configure(run_dir="runs", run_id="r1", **({"endpoint": sys.argv[1]} if len(sys.argv) > 1 else {}))
    opened.append(rl_otel.step(0).start())
    with rl_otel.train():
        pass
    sys.exit(3)
"""


def test_what_a_handler_ends_after_ours_is_in_the_journal() -> None:
    """A handler registered before `configure()` runs last: what it ends, begun before or not, is recorded too."""
    done = process.run(AFTERWARDS, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert Traces(Path("runs/r1")).tree() == "step\n  train\ncheckpoint"


def test_what_was_not_sent_at_the_very_end_is_said() -> None:
    """Behind the last delivery nothing is sent any more; a line says where it is, and its command sends it."""
    with Receiver() as receiver:
        done = process.run(AFTERWARDS, receiver.http, check=False)
        assert done.returncode == 3
        assert [span.name for span in receiver.spans] == ["train"]
        (line,) = done.stderr.splitlines()
        said, _, command = line.partition("; to send it: ")
        assert said == "rl_otel: what ended at exit, after rl_otel was shut down, is in runs/r1 and not sent"
        shipped = subprocess.run([*shlex.split(command), "--endpoint", receiver.http], capture_output=True, check=False)
        assert shipped.returncode == 0, shipped.stderr
        assert sorted(span.name for span in receiver.spans) == ["checkpoint", "step", "train"]
