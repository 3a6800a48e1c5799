"""The page `docs/asynchronous.md`: its program runs as it stands, and tells what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl_otel._analysis import Analysis
from rl_otel._cli import main
from rl_otel._read import Run
from rl_otel._table import step_lines
from rl_otel.testing import Traces
from tests import process

PAGE = (Path(__file__).parent.parent / "docs" / "asynchronous.md").read_text()


def test_its_program_is_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step and each trajectory is a trace; what is trained on is linked to, waits and staleness are told."""
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    process.run(program)
    traces = Traces(Path("runs/asynchronous"))
    assert {span.name for span in traces.roots} == {"step", "trajectory", "wait", "weight_sync"}
    played = {span.span_id: span for span in traces.all("trajectory")}
    trained = [link.span.hex() for train in traces.all("train") for link in train.links]
    assert len(trained) == len(set(trained)) == 10 * 8
    assert set(trained) <= played.keys()
    assert {span.attributes["rl.role"] for span in played.values()} == {"generator"}
    full = [span for span in traces.all("wait") if span.attributes["rl.wait.reason"] == "buffer_full"]
    assert {(wait.attributes["rl.buffer.name"], wait.attributes["rl.buffer.capacity"]) for wait in full} == {("gen", 4)}

    steps = list(Analysis(Run(Path("runs/asynchronous"))).steps())
    sentence = " ".join(" ".join(step_lines(steps[-1].figures)).split()).partition("total: ")[2].partition(" ")[2]
    pattern = (
        r"8 trajectories trained on, staleness \S+( to \d+ \(mean [\d.]+\))?; waited \S+ for batch(; generator.*)?"
    )
    assert re.fullmatch(pattern, sentence)
    (shown,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert re.fullmatch(pattern, shown)
    assert [step.figures.staleness and step.figures.staleness.count for step in steps] == [8] * 10
    (verb,) = re.findall(r"`rl-otel (report runs/asynchronous --step \d+)`", PAGE)
    assert main(verb.split()) == 0
    assert "\n  Slowest trajectories this step trained on:\n" in capsys.readouterr().out
