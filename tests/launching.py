"""Real launchers: ranks of a script, as people start them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.process import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Of one node, without a name for the run: its id is `none`, and no port is taken before it is free.
UNNAMED = ("--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")


class Ended(NamedTuple):
    """How a launch ended, and what it and its ranks wrote."""

    code: int
    out: str
    errors: str


def torchrun(script: str, ranks: int, *options: str, arguments: Sequence[str] = (), **env: str) -> Ended:
    """Run a script, or the file of that name, under torchrun on one node."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *options]
    return launch([*command, _file(script), *arguments], env)


def mpirun(program: str, script: str, ranks: int, *options: str, **env: str) -> Ended:
    """Run a script under one of the implementations of MPI."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return launch([program, "-n", str(ranks), *options, sys.executable, _file(script)], allowed | env)


def launch(command: Sequence[str], env: Mapping[str, str], timeout: float = 240.0) -> Ended:
    """Run a command to its end, with rl_otel where this repository has it."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def _file(script: str) -> str:
    if "\n" not in script:
        return script
    Path("rank.py").write_text(textwrap.dedent(script))
    return "rank.py"
