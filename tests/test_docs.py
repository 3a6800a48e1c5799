"""Documentation is code: its blocks run, its tables are what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rl_otel
from rl_otel import semconv
from rl_otel._config import KNOBS
from rl_otel._journal import journals, read
from rl_otel._record import End

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = ("README.md", "CONTRIBUTING.md", "collector/README.md")
TRACING = (ROOT / "docs" / "tracing.md").read_text()


def blocks(text: str) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def stand_ins() -> dict[str, Any]:
    """Return what a reader's own program would bring to the README's blocks."""
    turns = iter(range(1, 1000))
    return {
        "write": lambda: "left",
        "act": lambda action: (0.5, next(turns) % 3 == 0),
        "learn": lambda samples: 0.25,
        "update": lambda: None,
    }


def ended(folder: Path) -> list[End]:
    """Return the spans of the one run in `folder`."""
    (run,) = folder.iterdir()
    return [record for path in journals(run) for record, _ in read(path) if isinstance(record, End)]


def test_readme_blocks_record_what_they_show() -> None:
    """The README's blocks run as they stand and record steps, trajectories and their calls."""
    loop, trajectory, others, batched = blocks(README)
    program = stand_ins()
    for block in (trajectory, loop, others, batched):
        exec(compile(block, "README.md", "exec"), program)
    callbacks = program["Callbacks"]()
    callbacks.on_step_begin(4)
    callbacks.on_step_end(0.5)
    rl_otel.shutdown()

    spans = ended(Path("rl-otel-runs"))
    count = {name: sum(span.name == name for span in spans) for name in {span.name for span in spans}}
    phases = {"rollout": 4, "train": 3, "optimizer": 3, "reward": 3}
    assert count == {"step": 5, "trajectory": 12, "generate": 37, "env.step": 36, **phases}
    assert [span.attributes["rl.step"] for span in spans if span.name == "step"] == [0, 1, 2, 3, 4]
    assert {span.attributes["rl.trajectory.reward"] for span in spans if span.name == "trajectory"} == {1.5}
    last = [span for span in spans if span.name == "generate"][-1].attributes
    assert (last["gen_ai.usage.output_tokens"], last["rl.generate.sequences"]) == (4, 3)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:RL_)?OTEL_[A-Z_]+)`", README))))
def test_readme_names_variables_that_exist(name: str) -> None:
    """A variable that the README names is one that the settings know."""
    assert name in {variable for knob in KNOBS for variable in knob.variables}


def test_links_lead_somewhere() -> None:
    """A relative link in a README, CONTRIBUTING or docs leads to a file."""
    for page in (*(ROOT / name for name in PAGES), *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_words_table_is_the_vocabulary() -> None:
    """The table of words in docs/tracing.md has a row for each word, with its attribute and type."""
    shown = set(
        re.findall(r"^\| ([a-z_, ]+) \| `(\w+)` \| `([\w.{}]+)` \| (\w+)(, or a list of it)? \|$", TRACING, re.M)
    )
    names = {
        semconv.ENV_STEP: "env_step, env_reset",
        semconv.ROLLOUT: "rollout, eval",
        semconv.WEIGHT_SYNC: "weight_sync, its parts",
    }
    twins = {semconv.EVAL, semconv.ENV_RESET}
    known = {
        (names.get(span, span), name, word.attribute, word.type.__name__, ", or a list of it" if word.many else "")
        for span, words in semconv.WORDS.items()
        if span not in twins
        for name, word in words.items()
    }
    assert shown == known


def test_every_opener_is_documented() -> None:
    """Each public opener stands in the table of spans."""
    table = TRACING[: TRACING.index("## What `record` takes")]
    helpers = {
        "Delivery",
        "__version__",
        "add",
        "bind",
        "configure",
        "context",
        "current",
        "flush",
        "shutdown",
        "steps",
    }
    assert [name for name in rl_otel.__all__ if name not in helpers and not re.search(rf"`{name}\b", table)] == []


def test_gpu_attributes_are_documented() -> None:
    """The table of docs/gpu.md has a row for each GPU attribute, and no other."""
    shown = re.findall(r"^\| `(rl\.gpu\.[a-z_.]+)` \|", (ROOT / "docs" / "gpu.md").read_text(), re.M)
    assert sorted(shown) == sorted(v for v in vars(semconv).values() if isinstance(v, str) and v.startswith("rl.gpu."))
