"""Runs cases in fresh processes, all sides in turn, against one receiver."""

from __future__ import annotations

import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.compiled import ROOT
from benchmarks.peers import Missing, home
from benchmarks.receiver import receiver
from benchmarks.rows import OURS, PEERS, SDK, Case, Round

_QUEUE = "131072"  # what the SDK's default queue of 2,048 would lose of a burst cannot be compared

_IMPORTS = {
    ("import", "API"): "import opentelemetry.trace",
    ("import", SDK): "import opentelemetry.sdk.trace",
    ("import", OURS): "import rl_otel",
    ("ready", SDK): "from benchmarks.tracers import Sdk; Sdk()",
    ("ready", OURS): "from benchmarks.tracers import RlOtel; RlOtel()",
}


class Failed(Exception):
    """A measured process did not end well."""


def rounds(
    cases: list[Case], number: int, ours: Path, *, quick: bool, tell: Callable[[str], None]
) -> tuple[list[Round], list[str]]:
    """Measure all cases that often, with the rl_otel in `ours`; return the rounds, and what to say about them.

    Raises:
        Failed: a process of ours or of the SDK did not end well.
    """
    compileall.compile_dir(ours / "rl_otel", quiet=1)
    wanted = {tracer for case in cases for tracer in case.tracers}
    homes, remarks = _homes(peer for peer in PEERS if peer in wanted and not quick)
    with receiver() as endpoint, tempfile.TemporaryDirectory() as run_dir:
        env = _environment(endpoint, run_dir)

        def measure(case: Case, tracer: str, index: int) -> Mapping[str, float]:
            tell(f"round {index + 1} of {number}: {case.name}, {tracer}")
            path = os.pathsep.join(map(str, [*([homes[tracer]] if tracer in homes else []), ROOT]))
            amount = case.quick if quick else case.amount
            return _figures(case.name, tracer, amount, env | {"PYTHONPATH": path}, ours)

        measured: list[Round] = [
            {
                (case.name, tracer): measure(case, tracer, index)
                for case in cases
                for tracer in _turns(case, homes, index)
            }
            for index in range(number)
        ]
    return measured, remarks + _incomplete(measured)


def _turns(case: Case, homes: Mapping[str, Path], index: int) -> list[str]:
    """Return who takes part, in the order of this round: nobody always goes first."""
    sides = [tracer for tracer in case.tracers if tracer not in PEERS or tracer in homes]
    first = index % len(sides)
    return sides[first:] + sides[:first]


def _figures(case: str, tracer: str, amount: int, env: dict[str, str], ours: Path) -> Mapping[str, float]:
    statement = _IMPORTS.get((case, tracer))
    if statement is None:
        return dict(json.loads(_python(["-m", "benchmarks.cases", case, tracer, str(amount)], env, ours)))
    timed = (
        f"import os, time; began = time.perf_counter(); {statement}; "
        "print((time.perf_counter() - began) * 1000, flush=True); os._exit(0)"
    )
    # What disturbs an import makes it longer, never shorter.
    return {"import": min(float(_python(["-c", timed], env, ours)) for _ in range(amount))}


def _python(arguments: list[str], env: dict[str, str], ours: Path) -> str:
    # Python looks first where it is started.
    done = subprocess.run([sys.executable, *arguments], env=env, cwd=ours, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        raise Failed(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def _environment(endpoint: str, run_dir: str) -> dict[str, str]:
    ours = ("OTEL_", "RL_OTEL_", "NEMO_LENS_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
        "NO_PROXY": "127.0.0.1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_BSP_MAX_QUEUE_SIZE": _QUEUE,
        "RL_OTEL_RUN_DIR": run_dir,
        "RL_OTEL_PRINT": "0",
    }


def _homes(peers: Iterable[str]) -> tuple[dict[str, Path], list[str]]:
    homes, remarks = {}, []
    for peer in peers:
        try:
            homes[peer] = home(peer)
        except Missing as reason:
            remarks.append(str(reason))
    return homes, remarks


def _incomplete(measured: list[Round]) -> list[str]:
    """Say where the sides did not do the same."""
    remarks = []
    for case, tracer in measured[0]:
        runs = [figures[case, tracer] for figures in measured]
        if tracer == "none" or "share" not in runs[0]:
            continue
        share, attributes = (statistics.mean(run[name] for run in runs) for name in ("share", "attributes"))
        if (share, attributes) != (1.0, 6.0):
            remarks.append(f"{case}, {tracer}: {share:.1%} of the spans arrived, with {attributes:.2f} attributes each")
    return remarks
