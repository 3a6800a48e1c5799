"""Other tracers, where they install: each into a folder of its own that only its own processes see."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

_FOLDER = Path(__file__).parent.parent / ".cache" / "bench"


class Missing(Exception):
    """A peer cannot be had here; the message is the reason."""


def home(peer: str) -> Path:
    """Return the folder to import `peer` from, installed on first use.

    Raises:
        Missing: it does not install here.
    """
    return install(peer, f"{peer}-{sys.implementation.cache_tag}")


def install(what: str, name: str) -> Path:
    """Install `what` into a folder of that name, unless that is there; what it depends on is what everybody here uses.

    Raises:
        Missing: it does not install here.
    """
    folder = _FOLDER / name
    if not folder.exists():
        made = subprocess.run(
            [*_installer(), "--quiet", "--no-deps", "--target", folder, what],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise Missing(f"{what} does not install here: {_reason(made.stderr)}")
    return folder


def _installer() -> list[str]:
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]


def _reason(text: str) -> str:
    """Return the sentence of an installer's complaint that says most."""
    plain = text.encode("ascii", "ignore").decode()  # no boxes and arrows
    told = [line.strip() for line in plain.splitlines() if line.strip()]
    most = next((line for line in told if "Python" in line), told[-1] if told else "no reason given")
    return textwrap.shorten(most, 120)
