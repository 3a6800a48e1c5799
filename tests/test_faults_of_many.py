"""Faults where several threads, processes or receivers take part."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from tests import needs, process, system_clock
from tests.receiver import dead_port
from tests.shipping import play_step
from tests.waiting import until

if TYPE_CHECKING:
    from tests.receiver import Receiver

FLUSHED = """
    import os, signal, sys, threading
    import rl_otel
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    ended, enough = [], threading.Event()

    def play():
        while True:
            with rl_otel.generate() as generation:
                pass
            ended.append(generation.span_id)
            if len(ended) > 500:
                enough.set()

    for _ in range(4):
        threading.Thread(target=play, daemon=True).start()
    enough.wait()
    before = list(ended)
    report = rl_otel.flush(60)
    print(*before)
    print(report.sent, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_ended_before_a_flush_is_there_though_others_go_on(receiver: Receiver) -> None:
    """Four threads record while the main one flushes, and then the process is killed: what had ended has arrived."""
    done = process.run(FLUSHED, receiver.http, check=False)
    assert done.returncode == -signal.SIGKILL
    before, sent = done.stdout.splitlines()
    arrived = {span.proto.span_id.hex() for span in receiver.spans}
    assert set(before.split()) <= arrived
    assert 500 < len(before.split()) <= int(sent) <= len(arrived)


KILLED = """
    import os, signal, sys
    import rl_otel
    from tests.shipping import play
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    for index in range(3):
        with rl_otel.step(index), rl_otel.rollout():
            play(0, 2)
            if index == 2:
                rl_otel.flush(60)
                os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_step_without_its_root_is_found_by_its_number(receiver: Receiver) -> None:
    """Of a driver that was killed in a step, the back end finds that step's spans by `rl.step` and `rl.run.id`."""
    process.run(KILLED, receiver.http, check=False)
    found = [
        span.name
        for span in receiver.spans
        if (span.resource["rl.run.id"], span.attributes.get("rl.step")) == ("r1", 2)
    ]
    assert "trajectory" in found
    assert "step" not in found
    assert len([span for span in receiver.spans if span.name == "step"]) == 2


def test_nothing_is_sent_on_the_hosts_threads(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow a back end is, no step waits for it: all requests are made by threads of ours."""
    senders: list[str] = []
    request = http.client.HTTPConnection.request

    def noted(self: http.client.HTTPConnection, *args: Any, **kwargs: Any) -> None:
        senders.append(threading.current_thread().name)
        request(self, *args, **kwargs)

    monkeypatch.setattr(http.client.HTTPConnection, "request", noted)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    rl_otel.configure(endpoint=receiver.http)
    for index in range(20):
        play_step(index, 10, 5)
    until(lambda: receiver.counts["spans"])
    assert rl_otel.shutdown(60).sent == 20 * (2 + 10 * 11)
    assert set(senders) == {"rl_otel meter", "rl_otel ship"}


@pytest.mark.once
def test_a_step_of_a_hundred_thousand_spans(receiver: Receiver) -> None:
    """As much of it arrives as back ends open, nothing of it is lost, and its totals are those of all."""
    rl_otel.configure(endpoint=receiver.http, run_dir="runs", run_id="r1")
    play_step(0, 1000, 50)
    done = rl_otel.shutdown(60)
    assert (done.sent + done.kept, done.pending, done.dropped) == (101_002, 0, 0)
    assert 1000 < done.sent == len(receiver.spans) <= 10_000
    (rollout,) = (span for span in receiver.spans if span.name == "rollout")
    assert rollout.attributes["rl.rollout.trajectories"] == 1000
    assert rollout.attributes["rl.rollout.output_tokens"] == 1000 * 50 * 20
    assert rollout.attributes["rl.rollout.spans.kept"] == done.kept


CLOSES = """
    import os, sys
    import rl_otel
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    with rl_otel.env_step("parent"):
        pass
    assert rl_otel.flush(60).sent == 1
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 65536)
        with rl_otel.env_step("child"):
            pass
        assert rl_otel.flush(60).sent == 1
        sys.exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
"""


def test_a_child_that_closes_what_it_inherits_sends_all_the_same(receiver: Receiver) -> None:
    """Daemons close every descriptor after the fork: the child opens its own, and neither process writes a line."""
    done = process.run(CLOSES, receiver.http)
    assert (done.stdout, done.stderr) == ("", "")
    assert sorted(span.attributes["rl.environment.name"] for span in receiver.spans) == ["child", "parent"]


POOL = """
    import multiprocessing, os, sys, warnings
    import rl_otel
    def work(i):
        with rl_otel.env_step(str(i)):
            return os.getpid()
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    warnings.simplefilter("ignore", DeprecationWarning)  # the pool has threads of its own
    with rl_otel.step(0), rl_otel.rollout():
        with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
            assert len(set(pool.map(work, range(6), chunksize=1))) == 6
            pool.close()
            pool.join()
    print(rl_otel.shutdown(60).pending)
"""


def test_workers_of_one_task_each_arrive(receiver: Receiver) -> None:
    """A pool's workers leave without a word after one task; what they recorded arrives."""
    done = process.run(POOL, receiver.http)
    assert (done.stdout, done.stderr) == ("0\n", "")
    # One that leaves between an answer and the note of it is sent once more, the same to the byte.
    played = {span.proto.SerializeToString(deterministic=True): span for span in receiver.spans}
    names = [span.attributes["rl.environment.name"] for span in played.values() if span.name == "env.step"]
    assert sorted(names) == [str(i) for i in range(6)]


FANS_OUT = """
    import rl_otel
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Sink(SpanExporter):
        def __init__(self, name):
            self.name = name
        def export(self, spans):
            with open(self.name, "a") as file:
                file.writelines(f"{span.name}\\n" for span in spans)
            return SpanExportResult.SUCCESS

    class Both(SpanExporter):
        def __init__(self, *sinks):
            self.sinks = sinks
        def export(self, spans):
            results = [sink.export(spans) for sink in self.sinks]
            return max(results, key=lambda result: result.value)

    rl_otel.configure(exporter=Both(Sink("one"), Sink("other")), run_dir="runs", run_id="r1")
    with rl_otel.step(0), rl_otel.train():
        pass
"""


def test_two_sinks_behind_one_exporter_are_complete_at_exit() -> None:
    """Without a call of `shutdown`, an exporter of the host's that serves two sinks has served both at the end."""
    done = process.run(FANS_OUT)
    assert done.stderr == ""
    assert Path("one").read_text() == Path("other").read_text() == "train\nstep\n"


SHOUTS = """
    import sys, time
    began = time.monotonic()
    import rl_otel
    from tests.shipping import play_step
    rl_otel.configure(endpoint=sys.argv[1], run_dir="runs", run_id="r1")
    print("begun", flush=True)
    index = 0
    while time.monotonic() < began + 180:
        play_step(index, trajectories=1, turns=1)
        index += 1
        time.sleep(1.0)
    rl_otel.shutdown(1)
"""


@needs.gcc
@pytest.mark.once
def test_eight_processes_without_a_receiver_do_not_flood_the_log(tmp_path: Path) -> None:
    """Against a dead port for three minutes each says so once, and once a minute after that: four lines (C8)."""
    clock = system_clock.environment(tmp_path / "clock")
    endpoint = f"http://127.0.0.1:{dead_port()}"
    ranks = [process.start(SHOUTS, endpoint, env={**clock, "RL_OTEL_ROLE": f"role {rank}"}) for rank in range(8)]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "begun\n"
    for _ in range(360):
        system_clock.forward(tmp_path / "clock", 0.5)
        time.sleep(0.005)  # of theirs half a second
    said = [rank.communicate(timeout=60)[1].splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 8
    assert all(1 <= len(lines) <= 4 for lines in said), said
    assert all("Connection refused" in line for lines in said for line in lines)
