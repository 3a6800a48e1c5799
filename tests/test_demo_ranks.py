"""The demo under torchrun: unchanged but for the launch, and read as one run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from rl_otel import semconv
from rl_otel.testing import Traces
from tests import needs
from tests.launching import torchrun
from tests.process import ROOT
from tests.reporting import reported

pytestmark = [needs.torch, needs.gymnasium, pytest.mark.once, pytest.mark.timeout(400)]


def test_two_ranks_of_the_demo_are_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Two ranks play maps of their own and learn together: one run folder, one trace a step, one report."""
    arguments = ["--steps", "2", "--groups", "4", "--group-size", "4", "--run-dir", "runs"]
    ended = torchrun(str(ROOT / "examples" / "grpo.py"), 2, arguments=arguments, RL_OTEL_PRINT="1")
    assert ended.code == 0, ended.errors
    (folder,) = Path("runs").iterdir()
    assert len(re.findall("^Step ", ended.out, re.MULTILINE)) == 2  # of rank 0 alone
    assert f"Run folder: {folder}\n" in ended.out
    traces = Traces(folder)
    assert [root.name for root in traces.roots] == ["step", "step"]
    for root in traces.roots:
        (joined,) = [child for child in root.children if child.name == "step"]
        assert joined.attributes[semconv.RANK] == 1
        for rank in (root, joined):
            (rollout,) = [child for child in rank.children if child.name == "rollout"]
            assert len([child for child in rollout.children if child.name == "trajectory"]) == 16
            optimizers = [child for child in rank.children if child.name == "optimizer"]
            assert len(optimizers) == len([child for child in rank.children if child.name == "train"])
    ids = Counter(span.attributes[semconv.TRAJECTORY_ID] for span in traces.all("trajectory"))
    assert len(ids) == 2 * 2 * 16
    code, lines, error = reported(capsys, str(folder))
    assert (code, error) == (0, "")
    assert len([line for line in lines if line.startswith("  32 trajectories")]) == 2
    assert len([line for line in lines if line.startswith("  2 ranks ")]) == 2
    assert len([line for line in lines if line.startswith("  2 ranks, 2 steps ")]) == 1
