"""Run folders and the journals in them: private to the user who writes them.

A process's files lie beside each other under one name, its base: `<host>-<pid>-<instance>`, then what each is.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

SUFFIX: Final = ".journal"
SENT: Final = ".sent"
OWN: Final = ".own"
LOCK: Final = ".lock"

#: For what is opened to be written: never behind another user's link, never left open in a program that is started.
PRIVATE: Final = os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
MODE: Final = 0o600


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


def base_path(folder: Path, host: str, pid: int, instance: str) -> Path:
    """Return what the names of all files of a process begin with."""
    safe_host = re.sub(r"[^A-Za-z0-9.-]", "_", host)[:64] or "host"
    return folder / f"{safe_host}-{pid}-{instance[:8]}"


def base_of(journal: Path) -> Path:
    """Return the base of the process that wrote a journal file."""
    return journal.with_name(journal.name.rsplit(".", 2)[0])


def segment_path(base: Path, segment: int) -> Path:
    """Return the file of a segment; sorted by name, those of a process are in order."""
    return base.with_name(f"{base.name}.{segment:05d}{SUFFIX}")


def segments(base: Path) -> list[int]:
    """Return the numbers of a process's segments that are on disk, in order."""
    numbers = (path.name[len(base.name) + 1 : -len(SUFFIX)] for path in _found(base.parent, f"{base.name}.*{SUFFIX}"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def journals(folder: Path) -> list[Path]:
    """Return the journal files of a run folder, sorted."""
    return sorted(path for path in _found(folder, f"*{SUFFIX}") if path.is_file())


def _found(folder: Path, pattern: str) -> list[Path]:
    """Return what is in a folder; nothing where nobody can look, as behind a name that is too long."""
    try:
        return list(folder.glob(pattern))
    except OSError:
        return []


def remove(base: Path) -> None:
    """Remove all files of a process, and the run folder with the last of them.

    Raises:
        OSError: one cannot be removed; also where another process of the run still has its files there.
    """
    # Killed in the middle, or with another at the door, nothing is left that looks as if it had not been sent.
    for suffix in (SUFFIX, SENT, OWN, LOCK):
        for path in base.parent.glob(f"{base.name}*{suffix}"):
            path.unlink(missing_ok=True)
    base.parent.rmdir()
