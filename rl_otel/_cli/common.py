"""What the verbs share: the run they are about, and how they complain."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from rl_otel._read import find_run, newest_run
from rl_otel._terminal import printable


def add_run(parser: ArgumentParser, what: str = "run folder") -> None:
    """Add the argument that says which run."""
    parser.add_argument("folder", metavar="RUN", nargs="?", type=Path, help=f"{what} (default: the newest run)")


def chosen_run(verb: str, path: Path | None) -> Path:
    """Return the folder of the run that the user means; where nothing was said the newest, which a line tells.

    Raises:
        NoRun: there is none, or more than one.
    """
    if path is not None:
        return find_run(path, verb)
    folder = newest_run(verb)
    complain(verb, f"no RUN given, so the newest: {folder}")
    return folder


def complain(verb: str, sentence: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(printable(f"rl-otel {verb}: {sentence}") + "\n")
