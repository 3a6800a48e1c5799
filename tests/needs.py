"""What a test needs beyond the core: `@needs.torch`, or `pytestmark = needs.grpc`.

Where the part is missing the test is skipped with its reason; under `RL_OTEL_TEST_REQUIRE=1`, as in CI, it fails.
A marked test imports its part inside the test or a fixture, so that its file can be collected without it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from stack import programs

aiohttp = pytest.mark.needs(part="aiohttp")
cloudpickle = pytest.mark.needs(part="cloudpickle")
gcc = pytest.mark.needs(part="gcc")
grpc = pytest.mark.needs(part="grpc")
gymnasium = pytest.mark.needs(part="gymnasium")
httpx = pytest.mark.needs(part="httpx")
mpich = pytest.mark.needs(part="mpich")
namespaces = pytest.mark.needs(part="namespaces")
numpy = pytest.mark.needs(part="numpy")
openai = pytest.mark.needs(part="openai")
prometheus = pytest.mark.needs(part="prometheus")
pynvml = pytest.mark.needs(part="pynvml")
ray = pytest.mark.needs(part="ray")
requests = pytest.mark.needs(part="requests")
rich = pytest.mark.needs(part="rich")
stack = pytest.mark.needs(part="stack")
tensorboard = pytest.mark.needs(part="tensorboard")
torch = pytest.mark.needs(part="torch")
tqdm = pytest.mark.needs(part="tqdm")

#: Lets a process have hosts of its own, as network namespaces, also where it is not root's.
UNSHARE: Final = ("unshare", "--map-root-user", "--net", "--uts")

#: Programs of the stack, not modules.
_STACK = {"prometheus": (programs.PROMETHEUS,), "stack": programs.ALL}


def missing(part: str) -> str | None:
    """Return why a test that needs `part`, a module or programs, cannot run here, or None."""
    if part == "gcc":
        return None if shutil.which(part) else f"there is no {part}"
    if part == "namespaces":
        return None if _can_make_hosts() else "this user may not make network namespaces: unshare, ip"
    if part in _STACK:
        absent = [program.name for program in _STACK[part] if programs.find(program) is None]
        return f"not here: {', '.join(absent)}; build them: python -m stack build" if absent else None
    if not (_has_program("mpiexec.hydra") if part == "mpich" else importlib.util.find_spec(part)):
        return f"{part} is not installed: pip install -e '.[test]'"
    return None


def _has_program(name: str) -> bool:
    """Whether a program lies with the interpreter, as the index has it."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) is not None


def _can_make_hosts() -> bool:
    cable = "ip link add name cable type veth peer name eth0"
    try:
        return subprocess.run([*UNSHARE, "sh", "-c", cable], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def check(item: pytest.Item) -> None:
    """Skip `item`, or fail it where everything is required, if something that it needs is missing."""
    for mark in item.iter_markers("needs"):
        if reason := missing(mark.kwargs["part"]):
            stop = pytest.fail if os.environ.get("RL_OTEL_TEST_REQUIRE") == "1" else pytest.skip
            stop(reason)
