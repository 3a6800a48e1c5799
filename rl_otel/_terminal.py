"""Lines on a terminal: with rich where it is installed, as they are into a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


class Terminal:
    """Writes lines to a stream. The text is the same with and without rich, which adds only weight."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._console = _console(stream) if is_terminal(stream) else None

    def write(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            if self._console is None:
                self._stream.write(_encodable(line, self._stream) + "\n")
            else:
                self._console.print(line, style=_style(line), markup=False, highlight=False, soft_wrap=True)


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
