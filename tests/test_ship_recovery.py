"""What processes leave behind that are gone: somebody else delivers it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

import rl_otel
from rl_otel import _record, _runtime, semconv
from rl_otel._journal import Sent, frame, journals, read, segment_path
from tests import process
from tests.receiver import Receiver, dead_port
from tests.shipping import arrived, ended, held_back, names, play, play_step, ship
from tests.waiting import until

_KILLED = """
    import os, sys, rl_otel
    from tests.shipping import play
    rl_otel.configure(service_name="grpo", endpoint=sys.argv[1], run_dir="runs", run_id="run", trace_budget=200)
    with rl_otel.step(0), rl_otel.rollout():
        for group in range(30):
            play(group, 5)
            if group == 20:
                rl_otel.flush()
        print("ready", flush=True)
        sys.stdin.read()
"""


pytestmark = pytest.mark.usefixtures("look_often")


def killed(receiver: Receiver) -> Path:
    """Kill a process in the middle of a step, and return its run folder."""
    command = process._command(_KILLED, receiver.http)
    environment = process._environment(None)
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        _at_rest(receiver)
        child.kill()
    return Path("runs/run")


def _at_rest(receiver: Receiver) -> None:
    """Wait until the process remembers all that arrived: killed between the two it would rightly send some again."""
    receiver.wait(spans=30)
    sent = Path("runs/run")
    until(lambda: sum(path.stat().st_size for path in sent.glob("*.sent")) >= 8 * len(receiver.spans))


def test_what_a_killed_process_left_is_shipped(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """Exactly the rest goes, with the cuts that the process would have made, and a second time nothing."""
    folder = killed(receiver)
    before = len(arrived(receiver))
    assert before == 30  # trajectories; their detail was not decided
    assert ship(folder, receiver) == 0
    after = arrived(receiver)
    assert before < len(after) <= 200
    assert names(receiver)["trajectory"] == 30
    assert set(after) <= ended(folder)
    assert ship(folder, receiver) == 0
    assert len(arrived(receiver)) == len(after)
    first, second = capsys.readouterr().out.split("spans sent", 2)[:2]
    assert first == f"{len(after) - before} "
    assert second.rsplit("\n", 2)[-1] == "0 "


def test_a_shipped_rest_is_byte_for_byte_what_a_whole_run_sends(receiver: Receiver) -> None:
    """Begun by the process and finished by the command, or all by the command: the same spans."""
    folder = killed(receiver)
    assert ship(folder, receiver) == 0
    shutil.copytree(folder, "copy", ignore=shutil.ignore_patterns("*.sent"))
    with Receiver() as other:
        assert ship(Path("copy"), other) == 0
        assert arrived(other) == arrived(receiver)


def test_a_torn_list_of_what_was_sent_is_cut(receiver: Receiver) -> None:
    """Half an id at its end, by a process that was killed there, neither hides a span nor stays."""
    folder = killed(receiver)
    (sent,) = folder.glob("*.sent")
    with sent.open("ab") as file:
        file.write(b"abc")
    assert ship(folder, receiver) == 0
    assert sent.stat().st_size % 8 == 0
    assert len(arrived(receiver)) <= 200


def test_a_living_process_delivers_itself(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside it the command sends nothing of its own accord, and no span arrives twice."""
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run")
    with rl_otel.step(0), rl_otel.rollout():
        play(0, 5)
        rl_otel.flush()
        assert ship(Path("runs/run"), receiver) == 1
        assert f"process {os.getpid()} delivers its spans itself\n10 pending\n" in capsys.readouterr().out
    assert rl_otel.shutdown() == rl_otel.Delivery(sent=13)
    assert len(arrived(receiver)) == 13


def test_a_process_waits_while_somebody_ships_its_journal(receiver: Receiver) -> None:
    """Who has the lock delivers; the process goes on behind it, without what was sent meanwhile."""
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run")
    assert _runtime.active is not None
    base = _runtime.active.journal.base
    with held_back():
        play_step(0, 2, 2)
        assert rl_otel.flush(timeout=0.2) == rl_otel.Delivery(pending=12, timed_out=True)
        (first, *_) = ended(base.parent)
        Sent(segment_path(base, 0)).add([first])
    assert rl_otel.shutdown() == rl_otel.Delivery(sent=12)
    assert set(arrived(receiver)) == ended(base.parent) - {first}


def test_a_process_of_the_run_delivers_what_another_left(receiver: Receiver) -> None:
    """At the latest in its shutdown, with the resource of the one that is gone."""
    folder = killed(receiver)
    before = len(arrived(receiver))
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run")
    with rl_otel.train():
        pass
    done = rl_otel.shutdown(timeout=60)
    assert done == rl_otel.Delivery(sent=1)  # its own
    spans = arrived(receiver)
    assert before + 100 < len(spans) <= 201
    assert len({span.resource[semconv.PROCESS_PID] for span in receiver.spans}) == 2
    assert ship(folder, receiver) == 0
    assert len(arrived(receiver)) == len(spans)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_parent_delivers_what_its_child_left(receiver: Receiver) -> None:
    """A worker that ends without a goodbye, as those of a DataLoader do, loses nothing."""
    script = """
        import os, sys, rl_otel
        rl_otel.configure(service_name="grpo", endpoint=sys.argv[1], run_id="run")
        with rl_otel.train():
            pass
        rl_otel.flush()
        child = os.fork()
        if child == 0:
            with rl_otel.wait("batch"):
                pass
            os._exit(0)
        os.waitpid(child, 0)
        print(rl_otel.shutdown(60).sent)
    """
    assert process.run(script, receiver.http).stdout == "1\n"
    assert names(receiver) == {"train": 1, "wait": 1}
    assert not list(Path(os.environ["TMPDIR"]).glob("rl-otel-*/run"))  # all was delivered, so all is gone


def test_what_a_process_on_another_host_left_is_not_ours(receiver: Receiver) -> None:
    """Nobody here knows whether it lives."""
    folder = killed(receiver)
    (journal,) = journals(folder)
    records = [record for record, _ in read(journal)]
    for record in records:
        if isinstance(record, _record.Process):
            record.resource[semconv.HOST_NAME] = "elsewhere"
    journal.write_bytes(b"".join(frame(_record.encode(record)) for record in records))
    before = len(arrived(receiver))
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run")
    with rl_otel.train():
        pass
    rl_otel.shutdown(timeout=60)
    assert len(arrived(receiver)) == before + 1


def test_shutdown_keeps_its_time_with_much_to_inherit(receiver: Receiver) -> None:
    """Where the back end does not answer, what others left stays for the next one."""
    folder = killed(receiver)
    port = dead_port()
    rl_otel.configure(service_name="grpo", endpoint=f"http://127.0.0.1:{port}", run_dir="runs", run_id="run")
    with rl_otel.train():
        pass
    assert rl_otel.shutdown(timeout=0.3) == rl_otel.Delivery(pending=1, timed_out=True)
    for thread in threading.enumerate():
        if thread.name == "rl_otel ship":
            thread.join()  # it was not waited for, and has the lock until its last try is over
    assert ship(folder, receiver) == 0
    assert names(receiver)["train"] == 1


def test_what_an_earlier_configure_left_in_this_process(receiver: Receiver) -> None:
    """Configured again behind an outage, for the same run, a process delivers what its first journal still has."""
    rl_otel.configure(service_name="grpo", endpoint=f"http://127.0.0.1:{dead_port()}", run_dir="runs", run_id="run")
    play_step(0, 3, 2)
    left = rl_otel.shutdown(0.2)
    assert (left.sent, left.pending) == (0, 17)
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run")
    play_step(1, 3, 2)
    assert rl_otel.shutdown().sent == 17
    assert arrived(receiver).keys() == ended(Path("runs/run"))
    assert len(receiver.spans) == 34


def test_an_earlier_configure_that_has_delivered_all_is_left_alone(receiver: Receiver) -> None:
    """What the first journal has sent is sent no second time."""
    for index in range(2):
        rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run")
        play_step(index, 3, 2)
        assert rl_otel.shutdown().sent == 17
    assert len(receiver.spans) == 34
