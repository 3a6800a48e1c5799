"""`rl-otel`: one file a verb. Reads run folders, and needs neither torch nor OpenTelemetry for it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rl_otel._cli import export, report
from rl_otel._read import NoRun
from rl_otel._version import __version__

_VERBS = (report, export)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.run is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except NoRun as error:
        sys.stderr.write(f"rl-otel {arguments.verb}: {error}\n")
        return 2
    except BrokenPipeError:
        # The reader of a pipe has seen enough; what is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        sys.stderr.write(f"rl-otel {arguments.verb}: {error}\n")
        return 2
    return code


def _parser() -> argparse.ArgumentParser:
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
    return parser
