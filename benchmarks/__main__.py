"""Prints what tracing costs, every figure beside the OpenTelemetry SDK's from the same run: `make bench`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.compiled import ROOT, home
from benchmarks.peers import Missing
from benchmarks.rows import CASES, ROWS
from benchmarks.run import Failed, rounds
from benchmarks.table import lines


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds, without the other tracers")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (default 5)")
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=[case.name for case in CASES], help="%(choices)s")
    parser.add_argument("--pure", action="store_true", help="the sources as they are, not an install of the wheel")
    args = parser.parse_args()
    cases = [case for case in CASES if args.only is None or case.name in args.only]
    number = args.rounds or (2 if args.quick else 5)
    ours, what = _ours(pure=args.pure)
    print(machine(number), what, "Medians of the rounds, in brackets the lowest and the highest.", sep="\n", flush=True)
    try:
        measured, remarks = rounds(cases, number, ours, quick=args.quick, tell=_tell)
    except Failed as failure:
        sys.exit(str(failure))
    _tell("")
    known = [row for row in ROWS if row.case in {case.name for case in cases}]
    print("", *lines(known, measured), "", *remarks, sep="\n")


def _ours(*, pure: bool) -> tuple[Path, str]:
    """Return where the rl_otel lies that is measured, and what it is."""
    if pure:
        return ROOT, "rl_otel is pure Python."
    _tell("installing the wheel of rl_otel")
    try:
        return home(), "rl_otel is compiled, as its wheel installs it."
    except Missing as reason:
        return ROOT, f"rl_otel is pure Python: {reason}."


def machine(number: int) -> str:
    """Return what ran where, in one line."""
    sdk, load = version("opentelemetry-sdk"), os.getloadavg()[0]
    system = f"{platform.system()}, Python {platform.python_version()}, OpenTelemetry SDK {sdk}"
    return f"{os.cpu_count()} cores, {_processor()}, {system}, {number} rounds, load {load:.1f} before"


def _processor() -> str:
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in known if line.startswith("model name")), platform.machine())


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
