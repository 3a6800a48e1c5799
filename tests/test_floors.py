"""The house: what may import what, who reads the environment, how long things get.

The floors themselves are contracts of import-linter in `pyproject.toml`; `make check` holds them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = sorted((ROOT / "rl_otel").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

HEAVY = ("torch", "numpy", "pynvml", "ray", "grpc", "google", "msgspec", "requests", "rich", "opentelemetry.sdk")
READS = ("rl_otel._read", "rl_otel._cli.report", "rl_otel._cli.export")
READS_ENVIRONMENT = {"_config.py", "_identity.py", "context.py"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def loaded(statement: str) -> set[str]:
    """Return the modules in a fresh process after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    )


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import rl_otel` costs next to nothing, in every process that happens to import it."""
    modules = loaded("import rl_otel")
    assert modules.isdisjoint(HEAVY)
    assert modules.isdisjoint(READS)


@pytest.mark.parametrize("module", READS)
def test_reading_a_run_loads_neither_torch_nor_opentelemetry(module: str) -> None:
    """`rl-otel report` starts at once, and works where neither is installed."""
    assert loaded(f"import {module}").isdisjoint({"torch", "numpy", "opentelemetry", "grpc", "google.protobuf"})


@pytest.mark.parametrize("path", OURS, ids=relative)
def test_few_modules_read_the_environment(path: Path) -> None:
    """Settings are read in `_config`, the launcher's variables in `_identity`, nowhere else."""
    readers = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
    }
    assert not readers or path.name in READS_ENVIRONMENT


@pytest.mark.parametrize("path", OURS, ids=relative)
def test_files_and_functions_stay_short(path: Path) -> None:
    """A file has 400 lines at most, a function body 40."""
    assert len(path.read_text().splitlines()) <= 400
    long = {f.name: n for f in functions(path) if (n := (f.end_lineno or 0) - f.body[0].lineno + 1) > 40}
    assert long == {}


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_each_test_says_what_it_shows(path: Path) -> None:
    """A test's docstring is the behaviour in one sentence."""
    silent = [f.name for f in functions(path) if f.name.startswith("test_") and not ast.get_docstring(f)]
    assert silent == []
