"""Who a process is in which run, under each launcher and under none."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import _identity
from rl_otel._config import Config
from rl_otel._identity import Identity, clean, identify
from tests import process

Under: TypeAlias = Callable[..., Identity]

FOUR_LOCAL_RANKS = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}
TWO_NODES = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SRUN = {"SLURM_CLUSTER_NAME": "alpha", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> Under:
    """Return a function that identifies this process under some variables."""

    def under(**variables: str) -> Identity:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return identify(Config.load())

    return under


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK"),
        ({"RANK": "first", "WORLD_SIZE": "4"}, "RANK"),
        ({"RANK": "0", "WORLD_SIZE": "many"}, "WORLD_SIZE"),
        ({"TORCHELASTIC_RESTART_COUNT": "x"}, "TORCHELASTIC_RESTART_COUNT"),
        ({"RL_OTEL_RESTART": "x"}, "RL_OTEL_RESTART"),
    ],
)
def test_a_wrong_number_counts_as_unset(
    variables: dict[str, str], named: str, identity: Under, caplog: pytest.LogCaptureFixture
) -> None:
    """A launcher's variable that makes no sense costs one line and nothing else."""
    me = identity(**variables)
    assert (me.rank, me.world_size, me.restart, me.role) == (0, 1, 0, "driver")
    (record,) = caplog.records
    assert f"ignoring {named}" in record.getMessage()


def test_ranks_without_anything_in_common_are_asked_for_a_run_id(
    identity: Under, caplog: pytest.LogCaptureFixture
) -> None:
    """Plain torchrun on two nodes gives the ranks nothing to share: one line says what to set."""
    me = identity(**TWO_NODES, TORCHELASTIC_RUN_ID="none")
    assert not me.shared
    (record,) = caplog.records
    assert "8 processes" in record.getMessage()
    assert "RL_OTEL_RUN_ID" in record.getMessage()


def test_a_process_alone_is_a_driver_named_by_the_time(identity: Under, caplog: pytest.LogCaptureFixture) -> None:
    """Without a launcher there is one driver, with a run id of its own each time."""
    me = identity()
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", me.run_id)
    assert (me.rank, me.world_size, me.local_rank, me.restart) == (0, 1, None, 0)
    assert (me.role, me.owns_root, me.shared, me.pid) == ("driver", True, False, os.getpid())
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", me.instance)
    assert not caplog.records


def test_the_run_id_of_a_process_alone_owes_nothing_to_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equally seeded runs within one second have names of their own."""
    monkeypatch.setattr(_identity.time, "strftime", lambda _: "20300101-000000")
    names = set()
    for _ in range(20):
        random.seed(1)
        state = random.getstate()
        names.add(identify(Config()).run_id)
        assert random.getstate() == state
    assert len(names) > 10


@pytest.mark.parametrize(
    ("variables", "run_id", "restart"),
    [
        ({"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2"}, "job", 2),
        (SRUN | {"SLURM_RESTART_COUNT": "1"}, "alpha-77.0", 1),
        ({"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"}, "slurm-77.3", 0),
        (SRUN | {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}, "alpha-77.0", 0),
        (SRUN | {"TORCHELASTIC_RESTART_COUNT": "2", "SLURM_RESTART_COUNT": "1"}, "alpha-77.0", 1002),
        (SRUN | {"TORCHELASTIC_RUN_ID": "job", "RL_OTEL_RUN_ID": "mine"}, "mine", 0),
        ({"RL_OTEL_RUN_ID": "mine", "TORCHELASTIC_RESTART_COUNT": "3"}, "mine", 3),
        ({"RL_OTEL_RUN_ID": "mine", "TORCHELASTIC_RESTART_COUNT": "3", "RL_OTEL_RESTART": "0"}, "mine", 0),
    ],
)
def test_the_run_is_named_by_what_its_processes_share(
    variables: dict[str, str], run_id: str, restart: int, identity: Under
) -> None:
    """The user's id, else the elastic launcher's, else Slurm's; a restart keeps the id and counts up."""
    me = identity(**TWO_NODES, **variables)
    assert (me.run_id, me.restart, me.shared) == (run_id, restart, True)


@pytest.mark.parametrize("step", [{}, {"SLURM_STEP_ID": "4294967291"}])
def test_a_batch_script_is_no_slurm_step(step: dict[str, str], identity: Under) -> None:
    """Two programs started one after the other by one batch script are two runs, of one process each."""
    me = identity(SLURM_JOB_ID="77", SLURM_PROCID="0", SLURM_NTASKS="8", **step)
    assert (me.world_size, me.shared) == (1, False)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (TWO_NODES, (5, 8, 1)),
        (SRUN | {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1)),
        (SRUN | {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NODEID": "1", "SLURM_NNODES": "2"}, (1, 2, None)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2, None)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, (1, 2, 0)),
        (SRUN | {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"} | TWO_NODES, (5, 8, 1)),
    ],
)
def test_rank_and_world_size_come_from_one_launcher(
    variables: dict[str, str], place: tuple[int, int, int | None], identity: Under
) -> None:
    """The innermost launcher counts: torchrun below srun speaks for the rank."""
    me = identity(RL_OTEL_RUN_ID="r", **variables)
    assert (me.rank, me.world_size, me.local_rank) == place
    assert (me.role, me.owns_root) == ("trainer", False)


#: Starts two ranks with a command before the interpreter, and has each say its run.
LAUNCHER = """
    import os, subprocess, sys
    code = "from rl_otel._config import Config; from rl_otel._identity import identify; "
    code += "me = identify(Config()); print(me.run_id, me.shared, flush=True)"
    for rank in sys.argv[1].split():
        place = {"RANK": rank, "WORLD_SIZE": sys.argv[2], "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
        subprocess.run([*sys.argv[3:], sys.executable, "-c", code], env=os.environ | place, check=True)
"""


@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$@"; true', "sh"]])
def test_ranks_of_one_node_share_what_started_them(wrapper: list[str]) -> None:
    """Ranks of one node have what started them in common, behind a shell as well; another launch is another run."""
    launches = [process.run(LAUNCHER, "0 1", "2", *wrapper).stdout.splitlines() for _ in range(2)]
    (first, other), (second, _) = launches
    assert first == other
    assert re.fullmatch(r"launch-\d+-[0-9a-f]{8} True", first)
    assert first != second


def test_a_launcher_of_some_of_the_ranks_names_no_run() -> None:
    """Two agents on one host start two ranks each, of four: neither of them is what all have in common."""
    done = process.run(LAUNCHER, "0", "4", env={"MASTER_ADDR": "localhost"})
    assert done.stdout.endswith(" False\n")
    assert "set RL_OTEL_RUN_ID" in done.stderr


def test_without_proc_nothing_is_guessed(identity: Under, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the launcher's start cannot be read, its pid alone would name a later run as well."""
    monkeypatch.setattr(_identity.Path, "read_text", lambda _: (_ for _ in ()).throw(FileNotFoundError()))
    assert not identity(**FOUR_LOCAL_RANKS).shared


@pytest.mark.parametrize(
    ("variables", "role", "owns_root"),
    [
        ({}, "driver", True),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "trainer", True),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "trainer", False),
        ({"RL_OTEL_ROLE": "generator"}, "generator", False),
        ({"RL_OTEL_ROLE": "learner"}, "learner", True),
    ],
)
def test_one_process_owns_the_root(variables: dict[str, str], role: str, owns_root: bool, identity: Under) -> None:
    """The driver, else rank 0; never a process that serves the loop."""
    me = identity(RL_OTEL_RUN_ID="r", **variables)
    assert (me.role, me.owns_root) == (role, owns_root)


def test_a_forked_child_is_another_instance() -> None:
    """A child has its own pid and instance, in the same run."""
    parent = identify(Config(run_id="r"))
    pid, child = _fork(parent)
    assert child.pid == pid
    assert child.instance != parent.instance
    assert child.run_id == "r"


def _fork(parent: Identity) -> tuple[int, Identity]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        child = parent.forked()
        os.write(writer, f"{child.pid} {child.instance} {child.run_id}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    child_pid, instance, run_id = os.read(reader, 1000).decode().split()
    os.close(reader)
    os.close(writer)
    return pid, Identity(**(vars(parent) | {"pid": int(child_pid), "instance": instance, "run_id": run_id}))


@pytest.mark.parametrize("run_id", ["2030.01.01-run_7", "a", "A" * 100])
def test_a_run_id_that_names_a_folder_stays_as_it_is(run_id: str) -> None:
    """People find their run by the name they gave it."""
    assert clean(run_id) == run_id


@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_run_id_becomes_a_safe_name(run_id: str) -> None:
    """No slash, no leading dot, no length a file system refuses."""
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,110}", clean(run_id))


@pytest.mark.parametrize(("one", "other"), [("team/a", "team-a"), ("../x", "x"), ("é", "è"), ("A" * 101, "A" * 102)])
def test_cleaning_keeps_two_runs_apart(one: str, other: str) -> None:
    """What looks the same once cleaned is told apart by a hash."""
    assert clean(one) != clean(other)
