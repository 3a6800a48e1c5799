"""What happens to real processes: killed at any moment, stopped for a while, beside each other, on a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rl_otel import _record
from rl_otel._journal import journals, read
from rl_otel.testing import Traces
from tests import process
from tests.receiver import remote

if TYPE_CHECKING:
    from tests.receiver import Receiver

RUN = Path("runs/r1")


def ended(folder: Path) -> set[str]:
    """Return the ids of all spans in the journals of a run."""
    records = (record for path in journals(folder) for record, _ in read(path))
    return {record.span.hex() for record in records if isinstance(record, _record.End)}


# --- kill -9 ----------------------------------------------------------------------------------------------------------

#: Forks 200 processes that record, and kills each after as many spans, and as many µs, as chance wants. A process
#: writes the id of a span to its pipe once it has left the `with`.
KILLS = """
    import os, random, signal, sys, time
    import rl_otel
    rl_otel.configure(run_dir="runs", run_id="r1")

    def record(pipe):
        with rl_otel.rollout():
            while True:
                with rl_otel.trajectory() as trajectory:
                    for _ in range(20):
                        with rl_otel.generate() as generation:
                            generation.record(output_tokens=1, text="x" * random.randrange(2000))
                        os.write(pipe, generation.span_id.encode())
                os.write(pipe, trajectory.span_id.encode())

    for _ in range(200):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                record(theirs)
            finally:
                os._exit(1)
        os.close(theirs)
        told = b""
        for _ in range(random.randrange(60)):
            told += os.read(ours, 16)
        moment = time.perf_counter() + random.random() / 1000
        while time.perf_counter() < moment:
            pass
        os.kill(pid, signal.SIGKILL)
        while rest := os.read(ours, 65536):
            told += rest
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        os.close(ours)
        print(told.decode())
"""


@pytest.mark.once
def test_what_ended_before_any_of_200_kills_is_in_the_journal() -> None:
    """Whenever a process is killed: each span that the host has left is there, and the report names what was open."""
    done = process.run(KILLS)
    told = [line[at : at + 16] for line in done.stdout.split("\n") for at in range(0, len(line), 16)]
    assert len(told) > 1000
    assert set(told) <= ended(RUN)
    opened = [path for path in journals(RUN) if any(isinstance(record, _record.Start) for record, _ in read(path))]
    report = process.run("import rl_otel._cli as cli, sys; sys.exit(cli.main(['report', 'runs/r1']))", check=False)
    assert report.stdout.count("Outside a step: rollout") == len(opened) > 100


# --- SIGSTOP ----------------------------------------------------------------------------------------------------------

#: With a timeout of 0.5 s a second of standing still is what twenty are with the usual ten.
STOPPED = """
    import os, sys
    import rl_otel
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    for index in range(2):
        with rl_otel.step(index), rl_otel.rollout():
            for i in range(300):
                with rl_otel.env_step(str(i)):
                    pass
            print("stop me", flush=True)
            sys.stdin.readline()
    report = rl_otel.shutdown(60)
    print(report.sent, report.pending, report.dropped)
"""


@pytest.mark.once
def test_a_process_that_is_stopped_goes_on_where_it_was(receiver: Receiver) -> None:
    """Stopped in the middle of a step, whatever it was sending: nothing is lost, and the time counts as the step's."""
    env = {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.5", "OTEL_BSP_SCHEDULE_DELAY": "1"}
    command, environment = process._command(STOPPED, receiver.http), process._environment(env)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        for _ in range(2):
            assert child.stdout.readline() == "stop me\n"
            child.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(1.0)
            child.send_signal(signal.SIGCONT)
            child.stdin.write("go on\n")
            child.stdin.flush()
        assert child.stdout.readline() == "604 0 0\n"
        assert child.wait(60) == 0
        assert "internal error" not in child.stderr.read()
    assert {span.proto.span_id.hex() for span in receiver.spans} == ended(RUN)
    assert all(step.end - step.start > 1_000_000_000 for step in Traces(RUN).all("step"))


RECORDS = """
    import sys
    import rl_otel
    from tests.shipping import play_step
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    play_step(0, trajectories=3, turns=2)
    rl_otel.flush(60)
    print("stop it", flush=True)
    sys.stdin.readline()
    for index in range(1, 4):
        play_step(index, trajectories=3, turns=2)
    print("recorded", flush=True)
    report = rl_otel.shutdown(60)
    print(report.sent, report.pending, report.dropped)
"""


@pytest.mark.once
def test_a_receiver_that_stands_still_costs_a_delay() -> None:
    """For five seconds it takes connections and answers none: the run records on, and all of it arrives once."""
    with remote() as receiver:
        child = process.start(RECORDS, receiver.http)
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == "stop it\n"
        receiver.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, receiver.process.pid, os.WSTOPPED)
        child.stdin.write("go on\n")
        child.stdin.flush()
        assert child.stdout.readline() == "recorded\n"  # nobody waited for the receiver, which still stands
        with pytest.raises(subprocess.TimeoutExpired):
            receiver.process.wait(5.0)
        receiver.process.send_signal(signal.SIGCONT)
        out, errors = child.communicate(timeout=60)
        spans = [span.proto.span_id.hex() for span in receiver.spans]
    assert (child.returncode, errors) == (0, "")
    assert sorted(spans) == sorted(ended(RUN))
    assert out.split() == [str(len(spans)), "0", "0"]


# --- Two runs in one folder -------------------------------------------------------------------------------------------

BESIDE = """
    import sys
    import rl_otel
    rl_otel.configure(run_dir="runs", run_id="r1")
    for i in range(50):
        with rl_otel.step(i), rl_otel.train():
            pass
        if i == 0:
            print("begun", flush=True)
            sys.stdin.readline()
    print(rl_otel.shutdown().kept)
"""


def test_two_runs_in_one_folder_are_two_runs() -> None:
    """Started while the first still runs, under the same name, the second counts as its restart and says so."""
    command, environment = process._command(BESIDE), process._environment(None)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as first:
        assert first.stdout
        assert first.stdout.readline() == "begun\n"
        second = subprocess.run(
            command, env=environment, input="go on\n", capture_output=True, text=True, check=True, timeout=60
        )
        out, err = first.communicate("go on\n", timeout=60)
    assert (second.stdout, out, err) == ("begun\n100\n", "100\n", "")
    (line,) = second.stderr.splitlines()
    assert line.startswith("rl_otel: run r1 is being recorded by another process in the same role")
    traces = Traces(RUN)
    assert len({span.span_id for span in traces.spans}) == 200
    assert len({step.trace_id for step in traces.all("step")}) == 100


# --- A full disk ------------------------------------------------------------------------------------------------------

FULL = """
    import os, sys
    import rl_otel
    rl_otel.configure(**({"endpoint": sys.argv[1]} if len(sys.argv) > 1 else {}), run_dir="small", run_id="r1")
    with rl_otel.step(0), rl_otel.rollout():
        for i in range(2000):
            with rl_otel.env_step("swe") as env_step:
                env_step.record(reward=0.5, terminated=False)
    assert os.statvfs("small").f_bavail == 0
    report = rl_otel.shutdown(60)
    print(report.sent, report.pending, report.kept + report.dropped)
    sys.exit(3)
"""


def on_a_small_disk(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `script` where the folder `small` is a file system of 128 KiB."""
    Path("small").mkdir()
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = "mount -t tmpfs -o size=128k none small"
    if subprocess.run([*inside, "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    command = [*inside, "sh", "-c", f'{mount} && exec "$@"', "sh", *process._command(script, *arguments)]
    return subprocess.run(
        command, env=process._environment(None), capture_output=True, text=True, check=False, timeout=60
    )


def test_a_full_disk_costs_no_span_that_can_be_sent(receiver: Receiver) -> None:
    """What a disk does not take is sent from memory, each span once; a line for each file tells it."""
    done = on_a_small_disk(FULL, receiver.http)
    assert (done.returncode, done.stdout) == (3, "2002 0 0\n")
    first, *more = done.stderr.splitlines()
    assert "spans wait in memory" in first
    assert all("cannot note" in line for line in more)
    assert all(line.endswith("No space left on device") for line in (first, *more))
    ids = [span.proto.span_id for span in receiver.spans]
    assert len(set(ids)) == len(ids) == 2002


def test_a_full_disk_without_a_back_end_counts_what_it_costs() -> None:
    """Nowhere to send to: what is on the disk is kept, all else is counted as dropped."""
    done = on_a_small_disk(FULL)
    assert (done.returncode, done.stdout) == (3, "0 0 2002\n")
    (line,) = done.stderr.splitlines()
    assert "No space left on device" in line
