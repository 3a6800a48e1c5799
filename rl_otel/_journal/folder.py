"""Run folders and the journals in them: private to the user who writes them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

SUFFIX: Final = ".journal"


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can read; one that exists must be no link of another user's.

    Raises:
        OSError: it cannot be made, or belongs to somebody else.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
        if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
            raise PermissionError(f"{path} is a link that belongs to another user") from None


def journal_path(folder: Path, host: str, pid: int, instance: str, segment: int) -> Path:
    """Return where a process writes its journal; sorted by name, segments are in order."""
    safe_host = re.sub(r"[^A-Za-z0-9.-]", "_", host)[:64] or "host"
    return folder / f"{safe_host}-{pid}-{instance[:8]}.{segment:05d}{SUFFIX}"


def journals(folder: Path) -> list[Path]:
    """Return the journal files of a run folder, sorted."""
    return sorted(p for p in folder.glob(f"*{SUFFIX}") if p.is_file())
