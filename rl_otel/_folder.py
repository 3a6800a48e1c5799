"""Where a process keeps its journal, and what it says of itself there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from rl_otel import _record, semconv
from rl_otel._config import Config
from rl_otel._identity import Identity
from rl_otel._journal import journals, read
from rl_otel._safety import say_once
from rl_otel._version import __version__

DEFAULT: Final = Path("rl-otel-runs")


class Folder(NamedTuple):
    """A run folder; `passing` where it only serves the sending, and goes when all is delivered."""

    path: Path
    passing: bool

    def remove(self, journal: Path) -> None:
        """Remove a journal whose spans are all delivered, and the folder with the last of them."""
        try:
            journal.unlink(missing_ok=True)
            self.path.rmdir()
        except OSError:
            pass  # another process of the run still has its journal there


def run_folder(config: Config, identity: Identity) -> Folder:
    """Return the folder of this run: where the user wants it, else a temporary one if spans are sent anyway."""
    if config.run_dir is not None:
        return Folder(config.run_dir / identity.run_id, passing=False)
    if config.sends:
        user = os.geteuid() if hasattr(os, "geteuid") else 0
        return Folder(Path(tempfile.gettempdir()) / f"rl-otel-{user}" / identity.run_id, passing=True)
    return Folder(DEFAULT / identity.run_id, passing=False)


def earlier_restarts(folder: Path, identity: Identity) -> int:
    """Return how often a process like this one has begun in `folder` before and is gone.

    A process alone has no launcher to count its restarts; without a count the ids of its steps would repeat.
    """
    found = 0
    for path in journals(folder) if folder.is_dir() else ():
        process = first_record(path)
        if process is not None and process.resource.get(semconv.ROLE) == identity.role and not _lives(process):
            found = max(found, process.restart + 1)
    return found


def first_record(path: Path) -> _record.Process | None:
    """Return who wrote a journal, None where it does not tell."""
    try:
        record = next((record for record, _ in read(path)), None)
    except OSError as error:
        say_once(f"read {path}", "rl_otel: cannot read %s: %s", path, error)
        return None
    return record if isinstance(record, _record.Process) else None


def _lives(process: _record.Process) -> bool:
    pid = process.resource.get(semconv.PROCESS_PID)
    if process.resource.get(semconv.HOST_NAME) != os.uname().nodename or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return pid != os.getpid()


def resource_of(config: Config, identity: Identity) -> dict[str, Any]:
    """Return the resource attributes of this process; what the user gave comes before what was found."""
    found: dict[str, Any] = {
        semconv.SERVICE_INSTANCE_ID: identity.instance,
        semconv.HOST_NAME: identity.host,
        semconv.PROCESS_PID: identity.pid,
        semconv.SDK_NAME: semconv.SCOPE,
        semconv.SDK_LANGUAGE: "python",
        semconv.SDK_VERSION: __version__,
        semconv.ROLE: identity.role,
        semconv.RANK: identity.rank,
        semconv.WORLD_SIZE: identity.world_size,
    }
    fixed = {
        semconv.SERVICE_NAME: config.service_name,
        semconv.RUN_ID: identity.run_id,
        semconv.RUN_RESTART: identity.restart,
    }
    return {**found, **config.resource, **fixed}
