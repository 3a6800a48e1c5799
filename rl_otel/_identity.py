"""Who this process is in which run: run id, restart, rank, role, instance.

Processes of a run never talk about it: each derives the same run id from what all of them were given, by the user, the
elastic launcher, Slurm, or on one node by having the same parent.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rl_otel._config import index, variable
from rl_otel._inherited import Inherited, inherited
from rl_otel._life import PARENT, STARTED, stat
from rl_otel._safety import say

if TYPE_CHECKING:
    from rl_otel._config import Config

DRIVER: Final = "driver"
TRAINER: Final = "trainer"
MONITOR: Final = "monitor"  # watches the GPUs of a node, and has no loop
WORKER: Final = "worker"  # of some process of the run, which did not say what it is for

#: Roles that serve the loop: one of them never owns a step's root, whatever rank it has among its own.
SERVING: Final = frozenset({"generator", "env", "reward", MONITOR})

_LONGEST: Final = 100  # characters of a run id: it names a folder
_NO_STEP: Final = (
    0xFFFF_FFF0  # from here on Slurm's step ids mean a batch script or a shell, not something srun started
)
_REQUEUE: Final = 1000  # what one requeue of the job adds to the restart, above all restarts by the elastic launcher


@dataclasses.dataclass(frozen=True)
class Identity:
    """One process of one run."""

    run_id: str
    restart: int
    rank: int
    world_size: int
    local_rank: int | None  # None where the launcher does not say
    role: str
    host: str
    pid: int
    instance: str  # a UUID, new for each process
    owns_root: bool  # writes the root span of each step
    shared: bool  # the run id came from something that all processes of the run have
    local_size: int | None = None  # ranks on this node; None where the launcher does not say
    node: int | None = None  # this node among those of the run; the same
    nodes: int | None = None
    child: bool = False  # of a process of the run; of others like it no rank tells it apart
    parent: Inherited | None = None  # the run that it was left, where it records that one

    @property
    def serves(self) -> bool:
        """Whether it works for the loop, and is no part of it."""
        return self.role in SERVING

    def forked(self) -> Identity:
        """Return the identity of a forked child; its steps join those of the parent, which owns the root."""
        return dataclasses.replace(self, pid=os.getpid(), instance=str(uuid.uuid4()), owns_root=False, child=True)


def identify(config: Config) -> Identity:
    """Return who this process is."""
    place, host = _place(), socket.gethostname()
    left = inherited(host)
    shared = config.run_id or _elastic() or _slurm() or (left.run_id if left is not None else _launcher(place))
    if not shared and place.world_size > 1:
        say(
            "run id",
            "rl_otel: nothing tells the %d processes of this run that they belong together; set RL_OTEL_RUN_ID to the "
            "same text in all of them",
            place.world_size,
        )
    run_id = clean(shared or _own())
    parent = left if left is not None and left.run_id == run_id else None
    # A worker of a rank has that one's variables; a rank that some driver has started has its own.
    works = parent is not None and (place.rank, place.world_size) in ((0, 1), (parent.rank, parent.world_size))
    role = config.role or (WORKER if works else TRAINER if place.world_size > 1 else DRIVER)
    return Identity(
        run_id=run_id,
        restart=_restart(parent) if config.restart is None else config.restart,
        rank=place.rank,
        world_size=place.world_size,
        local_rank=place.local_rank,
        role=role,
        host=host,
        pid=os.getpid(),
        instance=str(uuid.uuid4()),
        owns_root=place.rank == 0 and role not in SERVING and parent is None,
        shared=shared is not None,
        local_size=place.local_size,
        node=place.node,
        nodes=place.nodes,
        child=parent is not None,
        parent=parent,
    )


def clean(run_id: str) -> str:
    """Return `run_id` as the name of a folder; what had to change is told apart by a hash at the end."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).strip(".-")[:_LONGEST]
    return name if name == run_id else f"{name or 'run'}-{_digest(run_id)}"


class _Place(NamedTuple):
    said_by: str = ""  # the variable that gave the rank
    rank: int = 0
    world_size: int = 1
    local_rank: int | None = None
    local_size: int | None = None  # ranks on this node
    node: int | None = None
    nodes: int | None = None


#: Variables of each launcher, in the order of a place.
_TORCH: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
_SLURM: Final = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NODEID", "SLURM_NNODES")
_OPENMPI: Final = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
_MPICH: Final = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def _place() -> _Place:
    """Return the place that the first launcher with a rank and a world size gives."""
    # A batch script sees SLURM_NTASKS as well: only below srun is it the number of processes like this one.
    for names in (_TORCH, *([_SLURM] if _slurm_step() else []), _OPENMPI, _MPICH):
        rank, size, *more = (index(name) if name else None for name in names)
        if rank is None or size is None:
            continue
        if rank < size:
            return _Place(names[0], rank, size, *more)
        say(names[0], "rl_otel: ignoring %s=%d: it is not below %s=%d", names[0], rank, names[1], size)
    return _Place()


def _elastic() -> str | None:
    run_id = variable("TORCHELASTIC_RUN_ID")
    return None if run_id == "none" else run_id  # what torchrun sets where nobody named the run


def _slurm() -> str | None:
    job, step = variable("SLURM_JOB_ID"), _slurm_step()
    if not job or not step:
        return None
    return f"{variable('SLURM_CLUSTER_NAME') or 'slurm'}-{job}.{step}"


def _slurm_step() -> str | None:
    step = index("SLURM_STEP_ID")
    return str(step) if step is not None and step < _NO_STEP else None


def _launcher(place: _Place) -> str | None:
    """Return a name for the process that started all ranks, if that is one process on this node."""
    if place.local_size is not None:
        local = place.local_size == place.world_size
    else:
        local = variable("MASTER_ADDR") in ("localhost", "127.0.0.1", "::1")
    # A process alone has a name of its own, but not below an elastic launcher, which may start it again.
    if not local or (place.world_size == 1 and variable("TORCHELASTIC_RUN_ID") is None):
        return None
    try:
        pid = _above_ranks(os.getppid(), place.said_by)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return f"launch-{pid}-{_digest(f'{boot} {pid} {stat(pid)[STARTED]}')}"
    except (OSError, IndexError, ValueError):
        return None


def _above_ranks(pid: int, name: str) -> int:
    """Return the first of a process and those above it that has not this rank: who has it wraps it, as a shell does."""
    given = f"{name}={variable(name)}".encode()
    while pid > 1 and given in _environment(pid):
        pid = int(stat(pid)[PARENT])
    return pid


def _environment(pid: int) -> list[bytes]:
    """Return the variables that a process was started with; of another user's none."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:
        return []


def _own() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def _restart(parent: Inherited | None) -> int:
    if parent is not None:
        return parent.restart
    elastic, requeued = index("TORCHELASTIC_RESTART_COUNT"), index("SLURM_RESTART_COUNT") or 0
    return requeued if elastic is None else elastic + requeued * _REQUEUE


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
