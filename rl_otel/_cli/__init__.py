"""`rl-otel`: one file a verb. Reads run folders, and needs neither torch nor OpenTelemetry for it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rl_otel._cli import export, gpu_monitor, report, ship
from rl_otel._cli.common import complain
from rl_otel._read import NoRun
from rl_otel._version import __version__

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_VERBS = (report, export, ship, gpu_monitor)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    parser, verbs = _parsers()
    arguments, unknown = parser.parse_known_args(argv)
    if arguments.run is None:
        parser.print_help(sys.stderr)
        return 2
    if unknown:
        verbs.choices[arguments.verb].error(f"unknown arguments: {' '.join(unknown)}")
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe has seen enough; what is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (NoRun, OSError) as error:
        complain(arguments.verb, str(error))
        return 2
    return code


def _parsers() -> tuple[argparse.ArgumentParser, _SubParsersAction[argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="rl-otel",
        description="Read what rl_otel recorded of a run: where each step's time went, and what held it up.",
        epilog="Begin with: rl-otel report",
    )
    parser.add_argument("--version", action="version", version=f"rl-otel {__version__}")
    parser.set_defaults(run=None)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for verb in _VERBS:
        verb.add_to(verbs)
    return parser, verbs
