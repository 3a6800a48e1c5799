"""Run folders and the journals in them: private to the user who writes them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

SUFFIX: Final = ".journal"


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can read, with what is missing above it.

    Raises:
        OSError: it cannot be made, or somebody else could lead us elsewhere with it.
    """
    if not path.parent.exists():
        make_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    for folder in (path.parent, path):
        if _is_trap(folder):
            raise PermissionError(f"{folder} belongs to another user")


def _is_trap(folder: Path) -> bool:
    """Whether another user made it: a link, or anything where everybody may make something, as in /tmp."""
    found = folder.lstat()
    if found.st_uid in (0, os.geteuid()):
        return False
    return stat.S_ISLNK(found.st_mode) or bool(folder.parent.stat().st_mode & stat.S_ISVTX)


def journal_path(folder: Path, host: str, pid: int, instance: str, segment: int) -> Path:
    """Return where a process writes its journal; sorted by name, segments are in order."""
    safe_host = re.sub(r"[^A-Za-z0-9.-]", "_", host)[:64] or "host"
    return folder / f"{safe_host}-{pid}-{instance[:8]}.{segment:05d}{SUFFIX}"


def journals(folder: Path) -> list[Path]:
    """Return the journal files of a run folder, sorted."""
    return sorted(p for p in folder.glob(f"*{SUFFIX}") if p.is_file())
