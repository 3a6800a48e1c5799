"""`rl-otel report` and `export` as a test calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_otel._cli import main
from tests import otlp


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    """Run the verb and return its exit code, its lines and what it wrote to standard error."""
    code = main(["report", *arguments])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def exported(run: Path, *arguments: str) -> list[otlp.ReceivedSpan]:
    """Export a run to `step.json`, and return the spans in it."""
    file = Path("step.json")
    assert main(["export", str(run), "--output", str(file), *arguments]) == 0
    message = otlp.from_json(file.read_bytes())
    return [
        otlp.ReceivedSpan(span, otlp.values(resource.resource.attributes), (scope.scope.name, scope.scope.version))
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
