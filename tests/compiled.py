"""Libraries of `tests/standins/`, compiled once for all tests."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "standins"
CACHE = Path(__file__).parent.parent / ".cache" / "standins"


@cache
def folder(source: str, name: str) -> Path:
    """Return where a library of that name lies; compiled where that has not been done before."""
    path = SOURCES / source
    made = CACHE / f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    if not (made / name).exists():
        made.mkdir(parents=True, exist_ok=True)
        new = made / f"{os.getpid()}.so"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{name}", "-o"]
        subprocess.run([*command, str(new), str(path), "-ldl"], check=True)
        new.replace(made / name)  # at once: others may be compiling it too
    return made
