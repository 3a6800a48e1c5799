"""The page `docs/slow-step.md`: its calls answer, with the demo's traces in the real Jaeger."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import needs
from tests.stack.running import Stack, by_id, get
from tests.test_demo import SHORT, Run, command, finish, said, start
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [needs.stack, needs.torch, needs.gymnasium, pytest.mark.timeout(300)]

PAGE = (Path(__file__).parent.parent / "docs" / "slow-step.md").read_text()
CALLS = re.findall(r"^    (curl .*)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Stack]]:
    folder = tmp_path_factory.mktemp("sent")
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        process = start(folder, "--steps", "2", *SHORT, OTEL_EXPORTER_OTLP_ENDPOINT=stack.endpoint)
        yield finish(process, folder), stack


@pytest.fixture
def slowest(sent: tuple[Run, Stack]) -> tuple[str, str, str]:
    """The id of the slowest trajectory, the number of its step and the id of its trace, as the demo printed them."""
    run, stack = sent
    words = said(run, "Slowest trajectory").split()
    spans = by_id(command("export", run.folder, "--step", words[3].rstrip(",")))
    (trace,) = {span.proto.trace_id.hex() for span in spans.values()}
    until(lambda: len(stack.trace(trace)) == len(spans))
    return words[0], words[3].rstrip(","), trace


def called(call: str, stack: Stack, trajectory: str, step: str, trace: str) -> Any:
    """Return what one of the page's calls answers, with the values of this run."""
    port = f":{stack.ports['JAEGER_PORT']}/"
    for shown, ours in {"17/3": trajectory, '"17"': f'"{step}"', "<trace id>": trace, ":16686/": port}.items():
        call = call.replace(shown, ours)
    words = shlex.split(call)
    data = dict(word.split("=", 1) for flag, word in pairwise(words) if flag in ("-d", "--data-urlencode"))
    return get(next(word for word in words if word.startswith("http")), data)


@pytest.mark.parametrize("call", CALLS)
def test_each_call_finds_the_step(sent: tuple[Run, Stack], slowest: tuple[str, str, str], call: str) -> None:
    """The trace of the slowest trajectory's step is among what the call finds."""
    answer = called(call, sent[1], *slowest)
    assert slowest[2] in {trace["traceID"] for trace in answer["data"]}


def test_the_links_of_the_rollout_lead_to_the_slowest(sent: tuple[Run, Stack], slowest: tuple[str, str, str]) -> None:
    """The first reference of the rollout that is a link is the slowest trajectory."""
    (trace,) = sent[1].jaeger(f"/api/traces/{slowest[2]}")["data"]
    (rollout,) = (span for span in trace["spans"] if span["operationName"] == "rollout")
    links = [reference["spanID"] for reference in rollout["references"] if reference["refType"] == "FOLLOWS_FROM"]
    first = next(span for span in trace["spans"] if span["spanID"] == links[0])
    assert {tag["key"]: tag["value"] for tag in first["tags"]}["rl.trajectory.id"] == slowest[0]
    assert len(links) == 5
