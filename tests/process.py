"""Python scripts in a process of their own: what happens on import, after a fork, at exit, or to a whole process."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parent.parent


def run(
    script: str, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60.0, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run `script` with warnings as errors and return how it ended, with what it wrote.

    Its environment is that of the test, which `conftest.py` has cleaned, with `env` on top.

    Raises:
        AssertionError: it ended with another code than 0, and `check` is true.
        subprocess.TimeoutExpired: it ran longer than `timeout` seconds.
    """
    done = subprocess.run(
        _command(script, *arguments),
        env=_environment(env),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
    return done


def start(script: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `script` as `run` does, with pipes to its input and from its output, and do not wait for it."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        _command(script, *arguments), env=_environment(env), stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def on_terminal(script: str, *, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run `script` with a terminal for its output; return its exit code and what the terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen(_command(script), env=_environment(env), stdout=theirs, stderr=theirs) as started:
        os.close(theirs)
        shown = b"".join(_until_closed(ours))
        os.close(ours)
    return started.returncode, shown.decode().replace("\r\n", "\n")


def _until_closed(descriptor: int) -> Iterator[bytes]:
    try:
        while chunk := os.read(descriptor, 65536):
            yield chunk
    except OSError:  # so it ends when nobody holds the other side any more
        return


def _command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments]


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(env or {})}
