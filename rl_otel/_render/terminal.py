"""Lines on a terminal: with rich where it is installed, as they are into a file or a pipe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO


class Terminal:
    """Writes lines to a stream. The text is the same with and without rich, which adds only weight."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rich = _console(stream)

    def write(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            if self._rich is None:
                self._stream.write(_encodable(line, self._stream) + "\n")
            else:
                self._rich.print(line, style=_style(line), markup=False, highlight=False, soft_wrap=True)


def _console(stream: TextIO) -> Any:
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream)


def _style(line: str) -> str:
    if not line.startswith(" "):
        return "bold"
    return "dim" if line.strip(" -") == "" or line.lstrip().startswith("(") else ""


def _encodable(line: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return line.encode(encoding, "replace").decode(encoding)
