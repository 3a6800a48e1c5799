"""What the verbs share: the run they are about, and how they complain."""

from __future__ import annotations

import gc
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rl_otel._read import find_run, newest_run
from rl_otel._terminal import printable

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_verb(
    verbs: _SubParsersAction[ArgumentParser],
    run: Callable[[Namespace], int],
    *,
    help_: str,
    description: str,
    epilog: str,
    about: str | None = "run folder",
) -> ArgumentParser:
    """Add a verb, named as the module of its `run`, with the argument that says which run it is `about`, if any."""
    verb = run.__module__.rpartition(".")[2].replace("_", "-")
    parser = verbs.add_parser(
        verb, help=help_, description=description, epilog=epilog, formatter_class=RawDescriptionHelpFormatter
    )
    if about is not None:
        parser.add_argument("folder", metavar="RUN", nargs="?", type=Path, help=f"{about} (default: the newest run)")
    parser.set_defaults(run=run)
    return parser


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


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let Python look for garbage seldom: what is read of a run has no cycles, and much of it stays for a while."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
