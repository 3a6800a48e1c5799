"""The programs of the stack: from PATH where they fit, else from a cache, else built with Go."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stack import golang

CONFIGS: Final = Path(__file__).parent.parent / "collector"

_JAEGER: Final = "v1.76.0"  # the same as 2.13; no newer one can be had as a module
_PROMETHEUS: Final = "v0.316.0"  # that is 3.16
_MANIFEST: Final = CONFIGS / "builder.yaml"
_COLLECTOR: Final = "v" + re.findall(r"^  version: (.*)$", _MANIFEST.read_text(), re.MULTILINE)[0]


@dataclass(frozen=True)
class Program:
    """One program, where it may come from, and whether one that was found will do."""

    name: str
    aliases: tuple[str, ...]  # on PATH
    key: str  # of its build; another one where the result would be
    build: Callable[[Path], None]  # into a folder
    fits: Callable[[Path], bool]
    minutes: int  # that building takes on two cores


def find(program: Program) -> Path | None:
    """Return where a program is, on PATH or in the cache, or None."""
    for alias in program.aliases:
        if (found := shutil.which(alias)) and program.fits(Path(found)):
            return Path(found)
    cached = cache() / program.key / program.name
    return cached if cached.exists() else None


def obtain(program: Program) -> Path:
    """Return where a program is, after building it if need be.

    Raises:
        BuildError: it is not there and cannot be built.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{program.key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would do the same work twice
        if found := find(program):
            return found
        if not shutil.which("go"):
            raise golang.BuildError(f"{program.name} cannot be built without Go: install it from https://go.dev/dl")
        print(f"Building {program.key}, once: some {program.minutes} minutes on two cores ...", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=cache()) as folder:
            program.build(Path(folder))
            Path(folder).rename(cache() / program.key)
            Path(folder).mkdir()  # for `with` to remove
    return cache() / program.key / program.name


def built(program: Program) -> bool:
    """Return whether a program comes from the cache: Jaeger's and Prometheus's pages are not in their Go modules."""
    found = find(program)
    return found is not None and found.is_relative_to(cache())


def cache() -> Path:
    """Return the folder of what was built, the same for all clones of the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rl-otel"


def _takes(*arguments: str) -> Callable[[Path], bool]:
    return lambda path: _run(path, *arguments).returncode == 0


def _is_3(path: Path) -> bool:
    return "version 3." in _run(path, "--version").stdout


def _run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=60)


def _build_collector(target: Path) -> None:
    golang.build_collector(target, _MANIFEST, _COLLECTOR)


def _build_jaeger(target: Path) -> None:
    golang.build_packages(target, "github.com/jaegertracing/jaeger", _JAEGER, ("cmd/jaeger",))


def _build_prometheus(target: Path) -> None:
    packages = ("cmd/prometheus", "cmd/promtool")
    golang.build_packages(target, "github.com/prometheus/prometheus", _PROMETHEUS, packages, tags="remove_all_sd")


COLLECTOR: Final = Program(
    "otelcol",
    ("otelcol-contrib", "otelcol"),
    f"otelcol-{_COLLECTOR}-{hashlib.sha256(_MANIFEST.read_bytes()).hexdigest()[:8]}",
    _build_collector,
    _takes("validate", f"--config={CONFIGS / 'collector.yaml'}"),
    minutes=6,
)
JAEGER: Final = Program(
    "jaeger",
    ("jaeger",),
    f"jaeger-{_JAEGER}",
    _build_jaeger,
    _takes("validate", f"--config={CONFIGS / 'jaeger.yaml'}"),
    minutes=7,
)
PROMETHEUS: Final = Program(
    "prometheus", ("prometheus",), f"prometheus-{_PROMETHEUS}", _build_prometheus, _is_3, minutes=3
)
PROMTOOL: Final = Program("promtool", ("promtool",), PROMETHEUS.key, _build_prometheus, _is_3, minutes=3)
ALL: Final = (COLLECTOR, JAEGER, PROMETHEUS, PROMTOOL)
