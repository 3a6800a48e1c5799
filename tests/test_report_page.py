"""The page `docs/report.md`: its examples are what is printed, and each of its words stands in one of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_otel import semconv
from rl_otel._figures import Phase, StepFigures, Trajectory, run, step
from rl_otel._table import run_lines, step_lines

S = 1_000_000_000
GIB = 1 << 30
PAGE = (Path(__file__).parent.parent / "docs" / "report.md").read_text()
ROOT = {semconv.LOSS: 0.0123, semconv.REWARD_MEAN: 0.61, semconv.SAMPLES: 9}


def phase(name: str, start: float, end: float, parent: str = "", **attributes: Any) -> Phase:
    return Phase(name, f"{name}{start}".encode(), parent.encode(), int(start * S), int(end * S), attributes)


def memory(gib: float, **more: Any) -> dict[str, Any]:
    return {semconv.GPU_PEAK: int(gib * GIB), semconv.GPU_PEAK_RATIO: gib / 80, **more}


def played(number: int) -> Trajectory:
    whole = (number + 1) * S
    parts = {"generate": whole * 3 // 4, "env": whole // 4, "other": 0}
    outcome = {0: semconv.ERROR, 1: semconv.ABORTED_OUTCOME, 2: semconv.TRUNCATED}.get(number, semconv.COMPLETED)
    return Trajectory(f"17/{number}", b"%d" % number, 0, whole, parts, outcome=outcome, output_tokens=200)


def a_step(index: int, start: float, length: float = 31) -> StepFigures:
    dropped = {semconv.TRAJECTORIES_DROPPED.format(reason="stale"): 3}
    engine = {semconv.GPU_RESERVED_PEAK: 15 * GIB, semconv.GPU_DEVICE_USED: 62 * GIB}
    phases = [
        phase("rollout", 0, 14, **memory(14, **engine), **{semconv.GPU_DURATION: 13.8}, **dropped),
        phase("wait", 14, 15),
        *(phase("train", at, at + 7, **memory(51, **{semconv.GPU_LOWER_BOUND: True})) for at in (15, 22)),
        phase("logprobs", 16, 18, "train15"),
        phase("checkpoint", 28, 30),
    ]
    began, end = int(start * S), int((start + length) * S)
    moved = [replace(each, start=each.start + began, end=each.end + began) for each in phases]
    return step(index, began, end, ROOT, phases=moved, trajectories=[played(number) for number in range(12)])


def examples() -> str:
    """Return the lines of a step, and of a run, that the page's blocks should be."""
    steps = [a_step(17, 4, 35), a_step(18, 39), a_step(19, 71, 33)]
    told = {semconv.REWARD_MEAN: 0.5, semconv.MODE: semconv.MODE_EVAL}
    evaluated = step(20, 105 * S, 107 * S, {}, phases=[phase("eval", 105, 107, **told)], trajectories=[])
    return "\n".join(step_lines(a_step(17, 0))) + "\n\n" + "\n".join(run_lines(run([*steps, evaluated], 0)))


def test_the_examples_are_what_is_printed() -> None:
    """Both blocks of the page are the lines that such a step and such a run print."""
    blocks = [block.strip("\n") for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)]
    assert "\n\n".join(blocks) == examples()


def test_each_word_stands_in_an_example() -> None:
    """What the tables of words explain, the examples show."""
    words = [word for cell in re.findall(r"^\| (`.*?) \|", PAGE, re.M) for word in re.findall(r"`(.+?)`", cell)]
    assert [word for word in words if word not in examples()] == []
    assert len(words) > 20
