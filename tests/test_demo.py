"""The demo, run as a reader runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import mean, variance
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests import needs
from tests.otlp import from_json, values
from tests.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [needs.torch, needs.gymnasium, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent
SHORT = ["--groups", "4", "--group-size", "4"]  # trajectory 13 of every 16 is slow: the second of the last group


class Run(NamedTuple):
    """A run of the demo that has ended."""

    out: str
    errors: str
    folder: Path

    @property
    def rewards(self) -> list[float]:
        return [float(reward) for reward in re.findall(r"^Step .* Reward: (\S+)", self.out, re.MULTILINE)]


def python(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RL_OTEL_"))}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return python("examples/grpo.py", "--run-dir", folder, *arguments, RL_OTEL_PRINT="1", **environment)


def finish(process: subprocess.Popen[str], folder: Path) -> Run:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    (run,) = folder.iterdir()
    return Run(out, errors, run)


def command(*arguments: str | Path) -> str:
    process = python("-m", "rl_otel", *arguments)
    out, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    return out


@pytest.fixture(scope="module")
def back_end() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, back_end: Receiver) -> tuple[Run, Run]:
    """Two runs at once: one to look at, and a shorter one that sends."""
    folders = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("sent")
    processes = (
        start(folders[0], "--steps", "8", *SHORT),
        start(folders[1], "--steps", "2", *SHORT, OTEL_EXPORTER_OTLP_ENDPOINT=back_end.http),
    )
    return finish(processes[0], folders[0]), finish(processes[1], folders[1])


@pytest.fixture
def demo(runs: tuple[Run, Run]) -> Run:
    return runs[0]


@pytest.fixture
def sent(runs: tuple[Run, Run]) -> Run:
    return runs[1]


def spans_of(exported: str) -> list[Any]:
    resources = from_json(exported).resource_spans
    return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]


def said(run: Run, what: str) -> str:
    found = re.search(rf"^ *{what}: (.*)$", run.out, re.MULTILINE)
    assert found, what
    return found[1]


def test_ends_well(demo: Run) -> None:
    """It ends with 0 and says nothing on standard error."""
    assert demo.errors == ""


def test_prints_a_table_for_each_step_and_the_summary(demo: Run) -> None:
    """Eight steps print eight tables in order, then one summary with the evaluation of the last step."""
    assert re.findall(r"^Step +(\d+) \|", demo.out, re.MULTILINE) == [str(index) for index in range(8)]
    assert demo.out.count("  16 trajectories") == 8
    assert demo.out.count("Training Summary (8 steps):") == 1
    assert re.search(r"^  Evaluation: .*reward [+-]\d\.\d{3}", demo.out, re.MULTILINE)


def test_so_few_steps_have_no_first_and_last_five(demo: Run) -> None:
    """Of a run in which they would be partly the same steps, the mean reward of all is printed."""
    [printed] = re.findall(r"^Reward: (.*)$", demo.out, re.MULTILINE)
    assert abs(float(printed) - mean(demo.rewards)) < 0.001


def test_report_prints_the_same(demo: Run) -> None:
    """`rl-otel report` on the run folder prints, character for character, what the run printed."""
    tables, end = demo.out.split("To read it again: ")
    assert command("report", demo.folder) == tables
    assert said(demo, "Run folder") == str(demo.folder)
    assert f"report {demo.folder}" in end


def test_every_trajectory_is_there(demo: Run) -> None:
    """The export of the run has each span that the loop opened, and nothing else."""
    spans = spans_of(command("export", demo.folder))
    counts = Counter(span.name for span in spans)
    assert counts["trajectory"] == counts["env.reset"] == 8 * 16 + 4
    assert (
        counts["generate"]
        == counts["env.step"]
        == sum(values(span.attributes)["rl.trajectory.turns"] for span in spans if span.name == "trajectory")
    )
    phases = ("step", "rollout", "advantage", "weight_sync", "eval")
    assert [counts[name] for name in phases] == [8, 8, 8, 8, 1]
    assert counts["train"] == counts["optimizer"]


def test_exported_step_holds_the_slowest_trajectory(demo: Run) -> None:
    """The step file is one trace; its slowest trajectory is the one that was named, and ran in the slow sandbox."""
    spans = spans_of(Path(said(demo, "Its step as a trace")).read_text())
    assert len({span.trace_id for span in spans}) == 1
    slowest = max(
        (span for span in spans if span.name == "trajectory"),
        key=lambda span: span.end_time_unix_nano - span.start_time_unix_nano,
    )
    words = said(demo, "Slowest trajectory").split()
    assert values(slowest.attributes)["rl.trajectory.id"] == words[0]
    assert values(slowest.attributes)["rl.custom.sandbox"] == 13
    seconds = (slowest.end_time_unix_nano - slowest.start_time_unix_nano) / 1e9
    assert float(words[-1].rstrip("s")) == pytest.approx(seconds, abs=0.05)


def test_sends_where_an_endpoint_is_set(sent: Run, back_end: Receiver) -> None:
    """With an endpoint in the environment the back end gets every span of the run folder, and the run says so."""
    assert sent.errors == ""
    exported = spans_of(command("export", sent.folder))
    assert said(sent, "Sent") == f"{len(exported)} spans, 0 pending, 0 dropped"
    assert {span.proto.span_id for span in back_end.spans} == {span.span_id for span in exported}


def test_a_seed_gives_the_same_run(demo: Run, sent: Run) -> None:
    """Two runs of one seed earn the same rewards, whatever order their threads finish in."""
    assert len(sent.rewards) == 2
    assert sent.rewards == demo.rewards[:2]


def test_learns(tmp_path: Path) -> None:
    """For each of three seeds the last five steps' mean reward is above the first five's by three standard errors."""
    folders = [tmp_path / str(seed) for seed in range(3)]
    processes = [start(folder, "--seed", folder.name) for folder in folders]
    for process, folder in zip(processes, folders, strict=True):
        run = finish(process, folder)
        first, last = run.rewards[:5], run.rewards[-5:]
        standard_error = ((variance(first) + variance(last)) / 5) ** 0.5
        assert len(run.rewards) == 24
        assert mean(last) - mean(first) > 3 * standard_error, run.rewards
