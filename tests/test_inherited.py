"""RL_OTEL_PARENT: what a run leaves in the environment for the processes it starts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _runtime, context
from rl_otel._record import Process
from rl_otel.testing import Traces
from tests import process

if TYPE_CHECKING:
    from tests.receiver import Receiver

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CARRIER = {"TRACEPARENT": PARENT, "TRACESTATE": "rl_otel=1;k:rollout;s:1"}

#: Records one span under what its environment says, and tells its run.
CHILD = """
    import os, rl_otel
    from rl_otel import _runtime, context
    with context.use(os.environ), rl_otel.env_step():
        who = _runtime.active and _runtime.active.identity
    print(who and who.run_id)
"""


def left(**changes: Any) -> dict[str, Any]:
    """Return what a living process, this one, leaves, with changes."""
    rl_otel.configure(service_name="grpo", run_dir="runs", run_id="r1")
    told = json.loads(os.environ["RL_OTEL_PARENT"])
    rl_otel.shutdown()
    return {**told, **changes}


def run(script: str, told: Any, **env: str) -> subprocess.CompletedProcess[str]:
    text = told if isinstance(told, str) else json.dumps(told)
    return process.run(script, env={"RL_OTEL_PARENT": text, **env})


def first_records(folder: str = "runs/r1") -> list[Process]:
    return [record for record in Traces(Path(folder)).records if isinstance(record, Process)]


# --- what is left -----------------------------------------------------------------------------------------------------


def test_it_is_there_from_configure_to_shutdown(receiver: Receiver) -> None:
    """Run, restart, folder and where spans go are in the environment as long as the run is recorded."""
    assert "RL_OTEL_PARENT" not in os.environ
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="r1")
    told = json.loads(os.environ["RL_OTEL_PARENT"])
    assert (told["run_id"], told["restart"], told["service_name"]) == ("r1", 0, "grpo")
    assert told["folder"] == str(Path("runs/r1").absolute())
    assert (told["endpoint"], told["sends"]) == (receiver.http, True)
    rl_otel.shutdown()
    assert "RL_OTEL_PARENT" not in os.environ


def test_what_was_there_before_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that shuts down leaves its own children what it was left itself."""
    before = json.dumps(left())
    monkeypatch.setenv("RL_OTEL_PARENT", before)
    rl_otel.configure(run_dir="runs", run_id="r2")
    assert os.environ["RL_OTEL_PARENT"] != before
    rl_otel.shutdown()
    assert os.environ["RL_OTEL_PARENT"] == before


def test_no_secret_is_left() -> None:
    """Headers, and an address with a password in it, stay here; children then leave the sending to this process."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    for address, settings in (
        ("http://127.0.0.1:1", {"headers": {"authorization": "Bearer s3cret"}}),
        ("http://user:s3cret@127.0.0.1:1", {}),
        ("http://127.0.0.1:1", {"exporter": InMemorySpanExporter()}),
    ):
        rl_otel.configure(endpoint=address, run_dir="runs", **settings)
        assert "s3cret" not in str(os.environ)
        assert json.loads(os.environ["RL_OTEL_PARENT"])["sends"] is False
        rl_otel.shutdown()


def test_headers_of_the_environment_are_there_for_children_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a child finds in its own environment is enough for it to send."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "a=b")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces")
    rl_otel.configure(run_dir="runs")
    told = json.loads(os.environ["RL_OTEL_PARENT"])
    assert (told["endpoint"], told["sends"]) == (None, True)


# --- what a child makes of it -----------------------------------------------------------------------------------------


def test_a_child_under_a_carrier_is_configured_by_it() -> None:
    """It records into the run's folder, as a worker that owns no step, with a part of the budget."""
    done = run(CHILD, left(trace_budget=640, sends=False), **CARRIER)
    assert (done.stdout.strip(), done.stderr) == ("r1", "")
    [child] = first_records()
    assert (child.restart, child.resource["service.name"], child.resource["rl.role"]) == (0, "grpo", "worker")
    assert (child.sending["budget"], child.sending["quota"]) == (640, 20)
    assert Traces(Path("runs/r1")).one("env.step").parent_id == "b7ad6b7169203331"


def test_the_role_of_a_child_is_what_its_environment_says() -> None:
    """`RL_OTEL_ROLE` names it."""
    run(CHILD, left(), RL_OTEL_ROLE="env", **CARRIER)
    assert [child.resource["rl.role"] for child in first_records()] == ["env"]


def test_without_a_carrier_a_child_stays_a_no_op() -> None:
    """A program that happens to run below a traced one records nothing, whatever it opens or asks."""
    done = run(CHILD, left())
    assert (done.stdout.strip(), done.stderr) == ("None", "")
    done = run(CHILD, left(), TRACEPARENT=PARENT)  # of another library
    assert (done.stdout.strip(), done.stderr) == ("None", "")
    assert not Path("runs").exists()


def test_a_carrier_without_a_run_configures_nothing() -> None:
    """In a process that no run has started a carrier is only handed on."""
    done = process.run(CHILD, env=CARRIER)
    assert (done.stdout.strip(), done.stderr) == ("None", "")


CONFIGURES = """
    import rl_otel
    from rl_otel import _runtime
    rl_otel.configure(service_name="env-server")
    with rl_otel.step(0):
        pass
    rl_otel.shutdown()
"""


def test_a_child_that_configures_itself_joins_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run, restart and folder are those of its parent, also from another working directory; its service is its own."""
    told = left(restart=3)
    Path("elsewhere").mkdir()
    with monkeypatch.context() as there:
        there.chdir("elsewhere")
        run(CONFIGURES, told)
    [child] = first_records()
    assert (child.run, child.restart, child.resource["service.name"]) == ("r1", 3, "env-server")
    assert Traces(Path("runs/r1")).one("step").parent_id != ""  # the parent owns the root


def test_a_child_that_configures_itself_sends_where_the_run_does(receiver: Receiver) -> None:
    """Without a word of its own it has the run's service and endpoint; an endpoint of its own comes first."""
    bare = CONFIGURES.replace('service_name="env-server"', "")
    told = left(endpoint=receiver.http, sends=True)
    run(bare, told)
    run(
        bare.replace("configure()", f"configure(endpoint='{receiver.http}')"),
        {**told, "endpoint": "http://[", "sends": False},
    )
    run(bare, {**told, "sends": False})  # which would need what is secret
    assert [span.resource["service.name"] for span in receiver.spans] == ["grpo", "grpo"]
    assert len(first_records()) == 3


def test_what_a_child_says_itself_comes_first() -> None:
    """A run id of its own makes it a run of its own, in the folder that it names."""
    run(CONFIGURES, left(), RL_OTEL_RUN_ID="mine", RL_OTEL_RUN_DIR="other")
    [child] = first_records("other/mine")
    assert (child.run, child.resource["rl.role"]) == ("mine", "driver")
    assert not Path("runs").exists()


def test_the_same_run_id_in_the_environment_is_the_same_run() -> None:
    """`RL_OTEL_RUN_ID` for all of a run makes no restart of a process that the first one starts."""
    for _ in range(2):
        run(CONFIGURES, left(), RL_OTEL_RUN_ID="r1", RL_OTEL_RUN_DIR="runs")
    assert [child.restart for child in first_records()] == [0, 0]


RANKS = {"RANK": "3", "WORLD_SIZE": "8"}


def test_ranks_that_a_driver_starts_are_trainers_and_their_own_workers_are_workers() -> None:
    """A rank tells itself from others; a process with the variables of the rank that started it does not."""
    run(CONFIGURES, left(), **RANKS)
    run(CHILD, left(rank=3, world_size=8), **RANKS, **CARRIER)
    roles = [(child.resource["rl.role"], child.resource["rl.rank"]) for child in first_records()]
    assert sorted(roles) == [("trainer", 3), ("worker", 3)]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("{", "torn"),
        ("null", "torn"),
        ("[]", "torn"),
        ('{"run_id": "r1"}', "torn"),
        ("x" * 20_000, "torn"),
        ("[" * 10_000, "torn"),
        ({"restart": "0"}, "torn"),
        ({"restart": True}, "torn"),
        ({"folder": "relative"}, "torn"),
        ({"folder": "/a\0b"}, "torn"),  # JSON has a way to write it
        ({"folder": "/half \ud83d an emoji"}, "torn"),
        ({"service_name": "\ud83d"}, "torn"),
        ({"restart": 2**80}, "torn"),
        ({"run_id": ""}, "torn"),
        ({"time": 1}, "is over"),  # the number was given to another process since
        ({"pid": 2**22 + 1}, "is over"),
    ],
)
def test_what_is_left_over_is_ignored_in_one_line(
    told: Any, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A variable of a run that is over, as in a shell it had started, or a torn one is no error and no run."""
    text = told if isinstance(told, str) else json.dumps({**left(), "pid": os.getppid(), **told})
    monkeypatch.setenv("RL_OTEL_PARENT", text)
    rl_otel.configure()
    assert _runtime.active is not None
    assert _runtime.active.identity.run_id != "r1"
    assert _runtime.active.identity.owns_root
    [line] = caplog.messages
    assert why in line


def test_a_child_of_a_run_that_is_over_stays_a_no_op() -> None:
    """A carrier configures nothing where the run that it would record into has ended, and one line says so."""
    done = run(CHILD, left(pid=2**22 + 1), **CARRIER)
    assert done.stdout.strip() == "None"
    assert len(done.stderr.splitlines()) == 1
    assert "is over" in done.stderr


def test_a_folder_that_is_gone_is_made_again() -> None:
    """A run that lives, and has nothing on disk, takes what its children record."""
    run(CHILD, left(folder=str(Path("runs/gone/r1").absolute())), **CARRIER)
    assert len(first_records("runs/gone/r1")) == 1


def test_a_folder_that_cannot_be_made_stops_nobody() -> None:
    """Where the run's folder cannot be had one line says so, and the child runs on."""
    Path("file").write_text("no folder")
    done = run(CHILD, left(folder=str(Path("file/r1").absolute())), **CARRIER)
    assert done.stdout.strip() == "r1"
    assert len(done.stderr.splitlines()) == 1


def test_a_process_of_another_host_is_believed() -> None:
    """Whether a process of another host lives cannot be asked, so its run is taken for one that goes on."""
    assert run(CHILD, left(host="elsewhere", pid=2**22 + 1), **CARRIER).stdout.strip() == "r1"


def test_grandchildren_belong_to_the_run_when_their_parent_is_gone() -> None:
    """What counts is the process that began the run, not the one between, which may only have started others."""
    middle = """
        import os, subprocess, sys, rl_otel
        rl_otel.configure()
        print(os.environ["RL_OTEL_PARENT"])
    """
    told = run(middle, left()).stdout.strip()
    assert run(CHILD, told, **CARRIER).stdout.strip() == "r1"


def test_who_was_shut_down_is_not_begun_again_by_a_carrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `shutdown()` a process that was left a run records nothing until it configures itself."""
    monkeypatch.setenv("RL_OTEL_PARENT", json.dumps(left(host="elsewhere")))
    rl_otel.configure()
    rl_otel.shutdown()
    with context.use(CARRIER), rl_otel.env_step() as step:
        assert not step.recording
    assert _runtime.active is None


THREADS = """
    import os, threading
    import rl_otel
    from rl_otel import context
    ready = threading.Barrier(16)
    def serve(i):
        ready.wait()
        with context.use(os.environ), rl_otel.env_step(str(i)):
            pass
    threads = [threading.Thread(target=serve, args=(i,)) for i in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_the_first_requests_of_a_server_come_at_once() -> None:
    """However many threads enter carriers first at once, the process is configured once, and none is lost."""
    done = run(THREADS, left(), **CARRIER)
    assert done.stderr == ""
    assert len(first_records()) == 1
    assert len(Traces(Path("runs/r1")).all("env.step")) == 16


def test_the_environment_of_a_program_has_the_context() -> None:
    """`context.environ` is that of this process, or another, with what the program needs."""
    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(2) as step:
        whole, small = context.environ(), context.environ({"A": "b"})
    assert whole["PATH"] == os.environ["PATH"]
    assert set(small) == {"A", "TRACEPARENT", "TRACESTATE", "RL_OTEL_PARENT"}
    assert step.trace_id in small["TRACEPARENT"]
    assert "TRACEPARENT" not in os.environ
    assert set(context.environ({"A": "b"})) == {"A", "RL_OTEL_PARENT"}
