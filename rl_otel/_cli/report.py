"""`rl-otel report RUN [--step N]`: the tables a run printed, from its run folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rl_otel._analysis import Analysis
from rl_otel._cli.common import add_verb, chosen_run, complain, seldom_collected
from rl_otel._read import Also, Run
from rl_otel._render import (
    again_lines,
    detail_lines,
    missing_lines,
    open_lines,
    open_summary,
    outside_lines,
    run_rank_lines,
    table_lines,
    wasted_lines,
)
from rl_otel._table import run_lines
from rl_otel._terminal import Terminal, command

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EPILOG = """\
exit codes:
  0  something was reported
  1  nothing to report: no step has begun, or none has that number
  2  wrong usage, or no run at that path

next:
  rl-otel report RUN --step 3       why step 3 took so long
  rl-otel export RUN --step 3 > step.json
                                    the same step for Jaeger's upload
"""

_SERVES = "If these processes serve another run, start them with its RL_OTEL_RUN_ID and RL_OTEL_RUN_DIR"


def add_to(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = add_verb(
        verbs,
        run,
        help_="print the step tables and the summary of a run",
        description="Print each step's table and the summary of a run, finished, running or killed.",
        epilog=_EPILOG,
    )
    parser.add_argument("--step", metavar="N", type=int, help="one step, its slowest trajectories and what is open")
    parser.add_argument(
        "--also",
        metavar="FILE.jsonl",
        type=Path,
        action="append",
        default=[],
        help="spans of inference servers, as a collector's file exporter wrote them (may be given several times)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Report on a run and return the exit code."""
    recorded = Run(chosen_run("report", arguments.folder))
    also = Also(arguments.also, recorded.problems)
    analysis = Analysis(recorded, arguments.step, also)
    terminal = Terminal(sys.stdout)
    with seldom_collected():
        if arguments.step is None:
            shown = _all_steps(analysis, terminal, recorded)
        else:
            shown = _one_step(analysis, terminal, arguments.step)
    if arguments.also and also.strange:
        recorded.problems.append(f"{also.strange} spans of other traces than those of this run's steps are left out")
    for problem in (*recorded.problems, *missing_lines(analysis, recorded)):
        complain("report", problem)
    if not shown:
        complain("report", _nothing(analysis, recorded, arguments.step))
    return 0 if shown else 1


def _all_steps(analysis: Analysis, terminal: Terminal, recorded: Run) -> bool:
    ended = False
    for report in analysis.steps():
        terminal.write(table_lines(report))
        ended = True
    if analysis.figures is not None and ended:
        again = again_lines(analysis, len({source.restart for source in recorded.sources}) - 1)
        wasted = wasted_lines(analysis.waste.wasted())
        terminal.write([*run_lines(analysis.figures), *run_rank_lines(analysis), *wasted, *again])
    terminal.write(outside_lines(analysis.outside))
    for unfinished in analysis.unfinished:
        terminal.write(open_summary(unfinished, recorded.folder))
    return bool(ended or analysis.outside or analysis.unfinished)


def _one_step(analysis: Analysis, terminal: Terminal, step: int) -> bool:
    shown = False
    for report in analysis.steps():
        if report.figures.index == step:
            terminal.write(detail_lines(report))
            shown = True
    for unfinished in analysis.unfinished:
        if unfinished.index == step:
            terminal.write(open_lines(unfinished))
            shown = True
    return shown


def _nothing(analysis: Analysis, recorded: Run, step: int | None) -> str:
    folder = recorded.folder
    if not recorded.sources:
        return f"no journal in {folder} can be read"
    if step is not None and analysis.numbers is not None:
        first, last = analysis.numbers
        try_last = command("report", folder, "--step", str(last))
        return f"no step {step} in {folder}; it has steps {first} to {last}. Try: {try_last}"
    if step is not None:
        return f"no step {step} in {folder}, where no step has ended. Try: {command('report', folder)}"
    if any(source.lives() for source in recorded.sources):
        return f"no step has begun in {folder} yet; try again once the run has gone on. {_SERVES}"
    return f"no step began in {folder}, and its processes do not run here; look at another run. {_SERVES}"
