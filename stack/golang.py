"""Programs built with Go from its module proxy, with progress on standard error."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

_BUILDER: Final = "go.opentelemetry.io/collector/cmd/builder"
#: s between two words of progress, and what stands between them.
_EVERY, _END = (1.0, "\r") if sys.stderr.isatty() else (30.0, "\n")


class BuildError(Exception):
    """A program could not be built; the message says why."""


def build_packages(target: Path, module: str, version: str, packages: tuple[str, ...], tags: str = "") -> None:
    """Build programs of a module into `target`.

    It is done in a module of our own: what replaces other modules in its go.mod is refused by `go install`.
    """
    programs = [f"{module}/{package}" for package in packages]
    with tempfile.TemporaryDirectory(prefix="rl-otel-build-") as folder:
        _module(folder, *(f"{program}@{version}" for program in programs))
        for program in programs:
            _compile(folder, target / Path(program).name, program, tags)


def build_collector(target: Path, manifest: Path, version: str) -> None:
    """Build a collector of the parts in `manifest` into `target`, by the collector's own builder."""
    with tempfile.TemporaryDirectory(prefix="rl-otel-build-") as folder:
        _module(folder, f"{_BUILDER}@{version}")
        sources = f"--output-path={folder}/sources"
        _go(folder, "tool", "builder", f"--config={manifest}", "--skip-compilation", sources)
        _compile(f"{folder}/sources", target / "otelcol", ".")


def _module(folder: str, *tools: str) -> None:
    _go(folder, "mod", "init", "stack.invalid/build")
    _go(folder, "get", "-tool", *tools)


def _compile(folder: str, program: Path, package: str, tags: str = "") -> None:
    arguments = [f"-tags={tags}", package]
    total = len(_go(folder, "list", "-deps", *arguments).splitlines())
    command = ["go", "build", "-v", "-ldflags=-s -w", f"-o={program}", *arguments]
    said, last = [], time.monotonic()
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:  # one for each package that was not compiled before
            said.append(line)
            if time.monotonic() - last > _EVERY:
                last = time.monotonic()
                print(f"  {program.name}: {len(said)} of {total} packages", end=_END, file=sys.stderr, flush=True)
    if said and _END == "\r":
        print(file=sys.stderr)
    _check(command, process.returncode, "".join(said))


def _go(folder: str, *arguments: str) -> str:
    command = ["go", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    _check(command, done.returncode, done.stderr)
    return done.stdout


def _check(command: list[str], code: int, said: str) -> None:
    if code:
        raise BuildError("\n  ".join([f"`{' '.join(command)}` failed:", *said.splitlines()[-20:]]))
