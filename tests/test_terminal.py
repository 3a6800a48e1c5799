"""What reaches a terminal, and what a user is told to type there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rl_otel import _terminal
from rl_otel._terminal import Terminal, command
from tests import needs


class Screen:
    """A terminal that keeps what is written to it."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


LINES = ["Step   0 | Loss: 0.5 [bold]", "  -----", "  total: 1s", "    (process 1)" + "x" * 90]


@needs.rich
def test_a_terminal_with_rich_shows_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rich headings gain weight, and the text loses nothing: no markup, no wrapping."""
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    Terminal(screen).write(LINES)  # type: ignore[arg-type]
    assert "\x1b[1m" in screen.text
    assert re.sub(r"\x1b\[[0-9;]*m", "", screen.text).splitlines() == LINES


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rich is missing the lines are written as they are."""
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    screen = Screen()
    Terminal(screen).write(LINES)  # type: ignore[arg-type]
    assert screen.text.splitlines() == LINES


def test_a_terminal_of_another_encoding_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a narrow encoding lacks becomes a question mark."""
    monkeypatch.setattr(Screen, "encoding", "ascii")
    monkeypatch.setattr(Screen, "isatty", lambda self: False)
    screen = Screen()
    Terminal(screen).write(["größe"])  # type: ignore[arg-type]
    assert screen.text == "gr??e\n"


def test_control_characters_are_shown_as_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a run has named can colour the terminal, overwrite a line, or begin one."""
    monkeypatch.setattr(Screen, "isatty", lambda self: False)
    screen = Screen()
    Terminal(screen).write(["a\x1b[2Jb\rc\nd\x9be\u202ef\ud800g"])  # type: ignore[arg-type]
    assert screen.text == "a?[2Jb?c?d?e?f?g\n"


@pytest.mark.parametrize(("found", "tool"), [("/bin/rl-otel", "rl-otel"), (None, "bin/python -m rl_otel")])
def test_a_command_is_one_that_works_here(found: str | None, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `rl-otel` is on no path the interpreter stands in; what a shell would misread is quoted."""
    monkeypatch.setattr("shutil.which", lambda name: found)
    monkeypatch.setattr(sys, "executable", str(Path.cwd() / "bin/python"))
    assert command("report", Path("my runs/r"), "--step", "3") == f"{tool} report 'my runs/r' --step 3"


def test_a_command_can_be_told_where_the_working_directory_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is then named by its whole path."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(_terminal.Path, "cwd", lambda: (_ for _ in ()).throw(FileNotFoundError))
    assert command("report") == f"{sys.executable} -m rl_otel report"
