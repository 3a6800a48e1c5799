"""Two hosts, an agent on the one and the gateway on the other, and a cable between them that is pulled in mid run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rl_otel import _cli
from tests import needs
from tests.stack.hosts import scenario
from tests.stack.running import by_id

if TYPE_CHECKING:
    from pathlib import Path


@needs.stack
@needs.namespaces
@pytest.mark.once
@pytest.mark.timeout(300)
def test_a_cut_between_agent_and_gateway_loses_nothing(tmp_path: Path) -> None:
    """What a rank records meanwhile waits at its agent; in the end each step is one whole trace of both hosts."""
    result = scenario(tmp_path)
    assert result["out"] == 0
    file = tmp_path / "hosts.json"
    assert _cli.main(["export", str(tmp_path / "hosts"), "--output", str(file)]) == 0
    expected = {
        span.hex(): [each.proto.trace_id.hex(), each.resource["host.name"]]
        for span, each in by_id(file.read_bytes()).items()
    }
    assert result["spans"] == expected
    places = {tuple(place) for place in expected.values()}
    assert len({trace for trace, _ in places}) == 9
    assert len(places) == 2 * 9
    assert all("pending=0" in said and "dropped=0" in said for said in result["said"])
