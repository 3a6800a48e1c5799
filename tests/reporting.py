"""`rl-otel report` as a test calls it."""

from __future__ import annotations

import pytest

from rl_otel._cli import main


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    """Run the verb and return its exit code, its lines and what it wrote to standard error."""
    code = main(["report", *arguments])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err
