"""rl_otel as a wheel installs it, with compiled modules, in a folder of its own that the measured processes see."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from benchmarks.peers import Missing, install

ROOT = Path(__file__).parent.parent


def home() -> Path:
    """Return the folder to import rl_otel from, installed anew when a source has changed.

    Raises:
        Missing: it does not install here, or not compiled.
    """
    sources = [*sorted((ROOT / "rl_otel").rglob("*.py")), ROOT / "hatch_build.py", ROOT / "pyproject.toml"]
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    name = f"rl_otel-{sys.implementation.cache_tag}"
    folder = install(str(ROOT), f"{name}-{version}")
    for other in folder.parent.glob(f"{name}-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    if not list(folder.glob("rl_otel__mypyc*")):
        raise Missing("the wheel of rl_otel is not compiled here")
    return folder
