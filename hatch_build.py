"""Builds the wheel: with the modules that every call runs compiled by mypyc, where there is a C compiler.

The sources go into the wheel as they are, too. Without a compiler, on a Python that has no GIL or is not CPython, and
where something goes wrong, the wheel is one of pure Python, and so is an editable install.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: What pays: the way of a call on the host's thread. `docs/adr/0009` has the rules for such modules.
MODULES = (
    "_ids",
    "_overhead",
    "_spans/usual",
)


class Compile(BuildHookInterface):  # type: ignore[type-arg]
    """Adds compiled modules to the wheel."""

    def dependencies(self) -> list[str]:
        """Return what compiles, and what the sources have their types from; nothing where that cannot be."""
        return ["mypy[mypyc]>=1.19", "msgspec>=0.18", "opentelemetry-api>=1.26"] if why_not() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is an editable one."""
        if self.target_name != "wheel" or version == "editable":
            return
        reason = why_not()
        if reason is None:
            try:
                # Paths in the wheel follow from where the sources lie.
                built = compiled(Path(self.root), Path(self.root, ".cache", "compiled"))
            except (Exception, SystemExit) as error:  # mypy exits where it finds fault with a type
                reason = f"{type(error).__name__}: {error}"
            else:
                build_data["force_include"] |= {str(path): name for name, path in built.items()}
                build_data |= {"pure_python": False, "infer_tag": True}
        if reason is not None:
            self.app.display_warning(f"rl_otel is built as pure Python, which costs each call more: {reason}")


def why_not() -> str | None:
    """Return why nothing can be compiled here, None where it can."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "only CPython with its GIL runs compiled modules"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers are missing (Python.h)"
    return None


def compiled(root: Path, build: Path) -> dict[str, Path]:
    """Compile the modules of the sources at `root`, and return the files by their place in a wheel."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    shutil.rmtree(build, ignore_errors=True)
    before = Path.cwd()
    os.chdir(root)  # mypy names modules by where they lie from here
    try:
        options = [
            "--config-file=",
            "--ignore-missing-imports",
            "--follow-imports=silent",
            f"--cache-dir={build / 'mypy'}",
        ]
        sources = [f"rl_otel/{module}.py" for module in MODULES]
        extensions = mypycify([*options, *sources], target_dir=str(build / "c"), group_name="rl_otel")
        command = Distribution({"name": "rl_otel", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(build / "lib"), str(build / "temp")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    return {path.relative_to(build / "lib").as_posix(): path for path in (build / "lib").rglob("*.*") if path.is_file()}
