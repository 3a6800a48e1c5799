"""`rl-otel report RUN [--step N]`: the tables a run printed, from its run folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rl_otel._analysis import Analysis, StepReport
from rl_otel._read import RUNS, Run, find_run
from rl_otel._render import open_lines, open_summary, slowest_lines
from rl_otel._table import run_lines, step_lines
from rl_otel._terminal import Terminal

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EPILOG = """\
exit codes:
  0  something was reported
  1  nothing to report: no step has ended, or none has that number
  2  wrong usage, or no run at that path

next:
  rl-otel report RUN --step 3       why step 3 took so long
  rl-otel export RUN --step 3 > step.json
                                    the same step for Jaeger's upload
"""


def add_to(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "report",
        help="print the step tables and the summary of a run",
        description="Print each step's table and the summary of a run, finished, running or killed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="RUN", nargs="?", type=Path, default=RUNS, help="run folder (./%(default)s)")
    parser.add_argument("--step", metavar="N", type=int, help="one step, its slowest trajectories and what is open")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Report on a run and return the exit code."""
    folder = find_run(arguments.folder, "report")
    recorded = Run(folder)
    analysis = Analysis(recorded, arguments.step)
    terminal = Terminal(sys.stdout)
    shown = (
        _all_steps(analysis, terminal, folder) if arguments.step is None else _one_step(analysis, terminal, arguments)
    )
    _complain(recorded)
    if not shown:
        _nothing(analysis, folder, arguments.step)
    return 0 if shown else 1


def _all_steps(analysis: Analysis, terminal: Terminal, folder: Path) -> int:
    shown = 0
    for report in analysis.steps():
        terminal.write(step_lines(report.figures))
        shown += 1
    if analysis.figures is not None and shown:
        terminal.write(run_lines(analysis.figures))
    for unfinished in analysis.unfinished:
        terminal.write(open_summary(unfinished, str(folder)))
    return shown


def _one_step(analysis: Analysis, terminal: Terminal, arguments: argparse.Namespace) -> int:
    shown = 0
    for report in analysis.steps():
        if report.figures.index == arguments.step:
            terminal.write(_detailed(report))
            shown += 1
    for unfinished in analysis.unfinished:
        if unfinished.index == arguments.step:
            terminal.write(open_lines(unfinished))
            shown += 1
    return shown


def _detailed(report: StepReport) -> list[str]:
    return [*step_lines(report.figures), *slowest_lines(report), f"  Trace: {report.trace_id.hex()}"]


def _complain(recorded: Run) -> None:
    for problem in recorded.problems:
        sys.stderr.write(f"rl-otel report: {problem}\n")
    if recorded.lost:
        sys.stderr.write(f"rl-otel report: {recorded.lost} spans never reached a journal and are missing here\n")


def _nothing(analysis: Analysis, folder: Path, step: int | None) -> None:
    if step is not None and analysis.numbers is not None:
        first, last = analysis.numbers
        found = (
            f"no step {step} in {folder}; it has steps {first} to {last}. Try: rl-otel report {folder} --step {last}"
        )
    elif step is not None:
        found = f"no step {step} in {folder}, where no step has ended yet. Try: rl-otel report {folder}"
    else:
        found = f"no step has ended in {folder} yet; try again once the run has gone on, or look at another run"
    sys.stderr.write(f"rl-otel report: {found}\n")
