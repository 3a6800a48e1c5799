"""Ray, by a real run of a driver and its actors: one trace a step, and nothing lost with those that are killed.

`tests/ray_driver.py` is the run; each test looks at one part of what it has left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import needs
from tests.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.otlp import ReceivedSpan

pytestmark = [needs.ray, pytest.mark.once, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent
#: A loaded machine starts Ray's parts slowly; and Ray is to write nothing into the home folder and call nobody.
RAY = {
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Run:
    """A run that has ended: what its driver saw, what the back end has, and its folder."""

    def __init__(self, seen: dict[str, Any], out: str, spans: list[ReceivedSpan], folder: Path) -> None:
        self.seen, self.out, self.folder = seen, out, folder
        # What is killed between sending and noting it is sent again, byte for byte: back ends show it once.
        self.spans = list({span.proto.SerializeToString(): span for span in spans}.values())
        self.by_id = {span.proto.span_id: span for span in self.spans}

    def of_step(self, step: int, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name and span.attributes.get("rl.step") == step]

    def trajectory(self, name: str) -> ReceivedSpan:
        (found,) = [span for span in self.spans if span.attributes.get("rl.trajectory.id") == name]
        return found

    def beneath(self, span: ReceivedSpan) -> Counter[str]:
        """Return how many children of which name a span has."""
        return Counter(child.name for child in self.spans if child.proto.parent_span_id == span.proto.span_id)

    def path(self, span: ReceivedSpan) -> list[str]:
        """Return the names from the root down to a span."""
        parent = self.by_id.get(span.proto.parent_span_id)
        return [*([] if parent is None else self.path(parent)), span.name]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("ray") / "runs"
    sockets = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # their paths have to be short
    try:
        with Receiver() as receiver:
            done = drive(receiver.http, folder, sockets)
            assert done.returncode == 0, done.stderr
            out, _, seen = done.stdout.rstrip().rpartition("\n")
            (of_run,) = folder.iterdir()
            yield Run(json.loads(seen), out, receiver.spans, of_run)
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def drive(endpoint: str, folder: Path, sockets: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "tests.ray_driver", endpoint, str(folder)]
    for _ in range(3):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**env, **RAY, "RAY_TMPDIR": sockets, "RL_OTEL_PRINT": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if "timed out during startup" not in done.stderr:  # Ray gives itself 30 s, whatever else the machine does
            break
    return done


def test_actors_play_the_trajectories_of_the_driver_s_rollout(run: Run) -> None:
    """Eight trajectories in four processes are beneath the driver's rollout, in its trace, each with its own calls."""
    played = run.of_step(0, "trajectory")
    assert sorted(span.attributes["rl.trajectory.id"] for span in played) == [f"0/{n}" for n in range(8)]
    assert {tuple(run.path(span)) for span in played} == {("step", "rollout", "trajectory")}
    assert {span.proto.trace_id.hex() for span in played} == set(run.seen["traces"])
    assert Counter(span.resource["process.pid"] for span in played) == dict.fromkeys(run.seen["pids"], 2)
    assert len({span.resource["service.instance.id"] for span in played}) == 4
    for span in played:
        told = {name: span.attributes[f"rl.trajectory.{name}"] for name in ("turns", "reward", "outcome")}
        assert told == {"turns": 2, "reward": 1.0, "outcome": "completed"}
        assert run.beneath(span) == {"generate": 2, "env.step": 2}


@pytest.mark.parametrize("kind", ["async", "threads"])
def test_an_actor_of_many_calls_at_once_keeps_them_apart(run: Run, kind: str) -> None:
    """Of eight trajectories that one actor plays at once, in tasks or in threads, each has its own two turns."""
    names = {f"{kind}/{n}" for n in range(8)}
    played = [span for span in run.of_step(1, "trajectory") if span.attributes["rl.trajectory.id"] in names]
    assert len(played) == 8
    assert len({span.resource["process.pid"] for span in played}) == 1
    assert {tuple(run.path(span)) for span in played} == {("step", "rollout", "trajectory")}
    assert [run.beneath(span) for span in played] == [{"generate": 2, "env.step": 2}] * 8


def test_generator_methods_stream_inside_their_trajectory(run: Run) -> None:
    """What a method yields, sync or async, is what it yielded before, and its trajectory has all its turns."""
    assert run.seen["streamed"] == [[0, 1, 2], [0, 1, 2]]
    for name in ("2/0", "2/1"):
        assert run.path(run.trajectory(name)) == ["step", "rollout", "trajectory"]
        assert run.beneath(run.trajectory(name)) == {"generate": 3, "env.step": 3}


def test_a_task_is_part_of_what_called_it(run: Run) -> None:
    """A judge that runs as a task stands beneath the reward of the driver's trajectory; what it returns is the same."""
    (judged,) = [span for span in run.of_step(3, "generate") if "judge" in span.attributes.values()]
    assert run.path(judged) == ["step", "rollout", "trajectory", "reward", "generate"]
    assert judged.resource["process.pid"] != run.trajectory("3/0").resource["process.pid"]
    assert run.seen["judged"] == 0.25


def test_an_exception_comes_back_as_it_was(run: Run) -> None:
    """The driver catches what the actor raised, and the trajectory says that it failed."""
    assert run.seen["raised"] is True
    failed = run.trajectory("3/1")
    assert (failed.attributes["rl.trajectory.outcome"], failed.attributes["error.type"]) == ("error", "LookupError")


def test_what_had_ended_in_an_actor_that_is_gone_is_delivered(run: Run) -> None:
    """Neither `ray.kill` nor `os._exit` costs a span that had ended, and none is there in two versions."""
    assert run.seen["gone"] == ["ActorDiedError", "ActorDiedError"]
    left = run.trajectory("4/left")
    assert run.beneath(left) == {"generate": 1, "env.step": 1}
    (trace,) = {span.proto.trace_id for span in run.of_step(4, "step")}
    of_killed = [span for span in run.spans if span.proto.trace_id == trace and span.name in {"generate", "env.step"}]
    assert Counter(span.name for span in of_killed if run.path(span)[0] != "step") == {"generate": 2, "env.step": 2}
    assert len(run.by_id) == len(run.spans)
    assert (run.seen["pending"], run.seen["dropped"]) == (0, 0)


def test_a_worker_that_nobody_gave_a_carrier_records_nothing(run: Run) -> None:
    """A task that opens a trajectory without a carrier finds rl_otel not configured."""
    assert run.seen["bare"] == ""
    assert not [span for span in run.spans if span.attributes.get("rl.trajectory.id") == "of nobody"]


def test_a_step_links_to_what_it_trains_on_by_the_id_alone(run: Run) -> None:
    """An actor that configures itself records for no step; the driver's train span links to its trajectory."""
    played, (train,) = run.trajectory("5/0"), run.of_step(5, "train")
    assert [(link.trace_id, link.span_id) for link in train.proto.links] == [
        (played.proto.trace_id, played.proto.span_id)
    ]
    assert played.resource["service.name"] == "grpo"


def test_the_report_has_what_all_processes_recorded(run: Run) -> None:
    """`rl-otel report` joins the journals of driver and actors, and tells what a killed one had open."""
    command = [sys.executable, "-m", "rl_otel", "report", str(run.folder)]
    reported = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT).stdout
    first = reported.partition("Step   1")[0]
    assert "8 trajectories" in first
    assert "48 tok out" in first
    step = subprocess.run([*command, "--step", "4"], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert "4/killed" in step.stdout
    assert "is gone" in step.stdout


def test_the_driver_shows_no_zeros_for_what_it_does_not_see(run: Run) -> None:
    """The driver leaves out the figures of trajectories that ended in other processes, and says where they are."""
    assert [name for name in run.seen["summary"] if not name.startswith("timing/")] == []
    tables = re.split(r"^Step +\d", run.out, flags=re.MULTILINE)[1:]
    assert len(tables) == 6
    assert [("rl-otel report tells of those" in table, "0 trajectories" in table) for table in tables] == [
        *[(True, False)] * 5,
        (False, False),  # the driver handed nothing on
    ]
