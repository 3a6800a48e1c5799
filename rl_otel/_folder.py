"""Where a process keeps its journal, and what it says of itself there."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from rl_otel import _record, semconv
from rl_otel._config import Config, run_dir
from rl_otel._identity import Identity
from rl_otel._journal import base_of, journals, read, remove
from rl_otel._life import lives
from rl_otel._safety import say, say_once
from rl_otel._version import __version__

DEFAULT: Final = Path("rl-otel-runs")
OLD: Final = 7 * 24 * 3600.0  # s after which nobody comes back to what was left in a passing folder


class Folder(NamedTuple):
    """A run folder; `passing` where it only serves the sending, and goes when all is delivered."""

    path: Path  # absolute, for the host may change its working directory
    passing: bool

    @property
    def shown(self) -> str:
        """The path as people type it: from the working directory where it lies below that."""
        try:
            return str(self.path.relative_to(Path.cwd()))
        except (ValueError, OSError):
            return str(self.path)

    def remove(self, base: Path) -> None:
        """Remove the files of a process whose spans are all delivered, and the folder with the last of them."""
        try:
            remove(base)
        except OSError:
            pass  # another process of the run still has its journal there

    def remove_old(self) -> None:
        """Where this is a passing folder, remove those beside it that were left a week ago by processes now gone."""
        try:
            runs = list(self.path.parent.iterdir()) if self.passing else []
        except OSError:
            return  # nothing was ever left there
        for run in runs:
            if run != self.path and not run.is_symlink() and _is_old(run):
                for base in {base_of(journal) for journal in journals(run)}:
                    Folder(run, passing=True).remove(base)


def run_folder(config: Config, identity: Identity) -> Folder:
    """Return the folder of this run: its parent's, where the user wants it, else a temporary one for the sending."""
    parent = identity.parent
    # A worker may have been started in another working directory.
    if parent is not None and not (config.run_dir is not None and config.run_dir.is_absolute()):
        return Folder(Path(parent.folder), parent.passing)
    if config.run_dir is not None:
        return Folder((config.run_dir / identity.run_id).absolute(), passing=False)
    if config.sends:
        return Folder((_passing() / identity.run_id).absolute(), passing=True)
    return Folder((DEFAULT / identity.run_id).absolute(), passing=False)


def places() -> list[Path]:
    """Return the folders in which run folders are made: where the environment says, here, and where passing ones go."""
    return [*filter(None, [run_dir()]), DEFAULT, _passing()]


def _passing() -> Path:
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    return Path(tempfile.gettempdir()) / f"rl-otel-{user}"


def earlier_restarts(folder: Path, identity: Identity) -> int:
    """Return how often a process like this one has begun in `folder` before.

    A process alone has no launcher to count its restarts; without a count the ids of its steps would repeat.
    """
    found = 0
    for path in journals(folder):
        process = first_record(path)
        if process is None or process.resource.get(semconv.ROLE) != identity.role:
            continue
        found = max(found, process.restart + 1)
        if lives(process) and process.resource.get(semconv.PROCESS_PID) != identity.pid:
            say(
                "run id again",
                "rl_otel: run %s is being recorded by another process in the same role: this one counts as its restart "
                "%d. Set RL_OTEL_RUN_ID anew for each run, RL_OTEL_ROLE for each kind of process of one run",
                identity.run_id,
                found,
            )
    return found


def first_record(path: Path) -> _record.Process | None:
    """Return who wrote a journal, None where it does not tell."""
    try:
        record = next((record for record, _ in read(path)), None)
    except OSError as error:
        say_once(f"read {path}", "rl_otel: cannot read %s: %s", path, error)
        return None
    return record if isinstance(record, _record.Process) else None


def _is_old(run: Path) -> bool:
    """Whether nobody needs a run folder any longer. A living process touches its journal every few seconds."""
    try:
        if time.time() - max(path.stat().st_mtime for path in (run, *run.iterdir())) < OLD:
            return False
    except OSError:  # another user's, or gone meanwhile
        return False
    return not any(process is not None and lives(process) for process in map(first_record, journals(run)))


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
