"""Lines on a terminal: with rich where it is installed, as they are into a file or a pipe."""

from __future__ import annotations

import io
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Terminal:
    """Writes lines to a stream. The text is the same with and without rich, which adds only weight.

    Whatever names a run has given: what would move the cursor or cannot be shown becomes a question mark.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._console = _console(stream) if is_terminal(stream) else None

    def write(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in map(printable, lines):
            if self._console is None:
                self._stream.write(_encodable(line, self._stream) + "\n")
            else:
                self._console.print(line, style=_style(line), markup=False, highlight=False, soft_wrap=True)


def printable(line: str) -> str:
    """Return a line without control characters."""
    return "".join(character if character.isprintable() else "?" for character in line)


def command(verb: str, *arguments: str | Path) -> str:
    """Return the line that a user can type here to run a verb of `rl-otel`."""
    # A virtual environment that is not activated has it on no path.
    tool = ["rl-otel"] if shutil.which("rl-otel") else [_python(), "-m", "rl_otel"]
    return shlex.join([*tool, verb, *map(str, arguments)])


def _python() -> str:
    try:
        return str(Path(sys.executable).relative_to(Path.cwd()))
    except (OSError, ValueError):  # somewhere else, or the working directory is gone
        return sys.executable or "python3"


def load() -> None:
    """Load now what takes a while, so that the first table does not stop the run."""
    if on_terminal() and (console := _console(io.StringIO())) is not None:
        console.print("", style="bold")


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return is_terminal(sys.stdout)


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal, as far as what the host has put in its place can tell."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # None, a stand-in that can only write, or closed
        return False


def _console(stream: Any) -> Any:
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream)


def _style(line: str) -> str:
    if not line.startswith(" "):
        return "bold"
    return "dim" if line.strip(" -") == "" or line.lstrip().startswith("(") else ""


def _encodable(line: str, stream: Any) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return line.encode(encoding, "replace").decode(encoding)
