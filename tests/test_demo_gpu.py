"""The demo over the tests' GPU, as `make demo-gpu` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import needs
from tests.process import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs.torch, needs.gymnasium, needs.gcc, needs.pynvml, pytest.mark.timeout(180)]


def test_shows_the_memory_of_each_phase_and_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both columns are there, the training phase peaks highest, and the first line says that no GPU is used."""
    monkeypatch.setenv("RL_OTEL_PRINT", "1")
    arguments = ["--groups", "4", "--group-size", "4", "--steps", "1", "--run-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo_gpu", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No GPU is used.")
    assert re.search(r"^  Phase +Time +GPU +Peak Mem", done.stdout, re.M)
    peaks = dict(re.findall(r"^  Peak mem \((\w+)\): +([\d.]+) GiB$", done.stdout, re.M))
    assert {"rollout", "train", "optimizer", "weight_sync"} <= peaks.keys()
    assert max(peaks, key=lambda name: float(peaks[name])) == "train"
