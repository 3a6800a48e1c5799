"""Which services run: started, watched and ended, and remembered in a file, so that only what was started is ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stack.services import Service

START: Final = 120.0  # s that a service may take until it serves; a busy machine needs some
STOP: Final = 30.0  # s until it is killed


class StartError(Exception):
    """A service did not start; the message says why."""


class Process(NamedTuple):
    """A process that was started."""

    pid: int
    began: str  # with the pid, no other process has it
    health: str


def remembered(data: Path) -> dict[str, Process]:
    """Return what was started below `data` and still runs, by the names of the services."""
    file = data / "running.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    processes = {name: Process(*values) for name, values in known.items()}
    return {name: process for name, process in processes.items() if lives(process)}


def lives(process: Process) -> bool:
    """Return whether a process still runs, and is not another one under its number."""
    return _began(process.pid) == process.began


def serves(process: Process) -> bool:
    """Return whether a service answers that it is well."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), direct.open(process.health, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def start(service: Service, program: Path, ports: Mapping[str, int], data: Path) -> Process:
    """Start a service and return once it serves.

    Raises:
        StartError: a port is taken, or it ended or did not serve in time.
    """
    for name in service.ports:
        _expect_free(name, ports[name])
    log = data / f"{service.name}.log"
    with log.open("a") as out:
        popen = subprocess.Popen(
            [program, *service.arguments],
            env={**os.environ, **service.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C in this terminal is not meant for it
        )
    process = Process(popen.pid, _began(popen.pid), service.health)
    _remember(data, {**remembered(data), service.name: process})
    if not _until(lambda: popen.poll() is not None or serves(process), START) or popen.returncode is not None:
        tail = "\n  ".join(log.read_text(errors="replace").splitlines()[-8:])
        raise StartError(f"{service.name} did not start; the end of {log}:\n  {tail}")
    return process


def stop(name: str, data: Path) -> None:
    """End a service: by SIGTERM, after half a minute by SIGKILL."""
    running = remembered(data)
    process = running.pop(name)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        if _until(lambda: not lives(process), STOP):
            break
    _remember(data, running)


def _remember(data: Path, running: Mapping[str, Process]) -> None:
    fresh = data / "running.json.new"
    fresh.write_text(json.dumps(running))
    fresh.replace(data / "running.json")


def _began(pid: int) -> str:
    """Return when a process began, as the system tells it; empty where none of that number runs."""
    if not Path("/proc/self/stat").exists():  # as on macOS
        return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], stdout=-1, text=True, check=False).stdout.strip()
    with contextlib.suppress(OSError):
        # The program's name, in brackets, may hold anything; after it come the state and, 19 fields on, the start.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""


def _expect_free(name: str, port: int) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            raise StartError(f"Port {port} is taken; choose another by {name}") from error


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
