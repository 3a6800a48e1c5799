"""What is printed while a run goes on: by whom, when, and without breaking what the host has on its terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import rl_otel
from rl_otel._terminal import command
from rl_otel.testing import capture
from tests import needs, process

TWO_STEPS = """
import rl_otel
rl_otel.configure(run_dir="runs")
for i in range(2):
    with rl_otel.step(i), rl_otel.train():
        pass
"""


def test_nothing_is_printed_without_a_terminal() -> None:
    """A run whose output goes to a file or a pipe has nothing of ours in it."""
    done = process.run(TWO_STEPS)

    assert (done.stdout, done.stderr) == ("", "")


def test_with_a_switch_each_step_and_the_summary_are_printed() -> None:
    """`RL_OTEL_PRINT=1` prints a table as each step ends, and the summary when the process does."""
    done = process.run(TWO_STEPS.replace("pass", "print('training')"), env={"RL_OTEL_PRINT": "1"})

    heads = [line for line in done.stdout.splitlines() if not line.startswith("  ")]
    summary = "Training Summary (2 steps): medians leave out the first, which warms up"
    assert heads[:-1] == ["training", "Step   0", "training", "Step   1", summary]
    assert heads[-1].startswith(f"To read it again: {command('report')} runs/")
    assert done.stderr == ""


@pytest.mark.once
@pytest.mark.parametrize("rank", ["1", "3"])
def test_one_process_of_a_run_prints(rank: str) -> None:
    """Of four ranks only the first prints, even with the switch."""
    env = {"RL_OTEL_PRINT": "1", "RANK": rank, "WORLD_SIZE": "4", "RL_OTEL_RUN_ID": "shared"}

    assert process.run(TWO_STEPS, env=env).stdout == ""
    assert "Training Summary" in process.run(TWO_STEPS, env={**env, "RANK": "0"}).stdout


@pytest.mark.once
@pytest.mark.parametrize(("switch", "printed"), [("", True), ("0", False)])
def test_on_a_terminal_it_is_printed(switch: str, printed: bool) -> None:
    """A terminal gets the tables unless `RL_OTEL_PRINT=0`."""
    code, shown = process.on_terminal(TWO_STEPS, env={"RL_OTEL_PRINT": switch})

    assert code == 0
    assert ("Step   1" in shown) == printed
    assert ("Training Summary (2 steps):" in shown) == printed


def test_a_run_without_steps_prints_no_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who records no step has nothing to sum up."""
    monkeypatch.setenv("RL_OTEL_PRINT", "1")
    with capture(), rl_otel.train():
        pass

    assert capsys.readouterr().out == ""


@pytest.mark.once
@needs.rich
def test_what_a_terminal_takes_is_loaded_before_the_first_step() -> None:
    """Rich takes a while to load: `configure()` does it where tables will be printed, and nowhere else."""
    script = """
        import sys
        import rl_otel
        rl_otel.configure(run_dir="runs")
        print("rich" in sys.modules)
    """
    assert process.on_terminal(script)[1] == "True\n"
    assert process.on_terminal(script, env={"RL_OTEL_PRINT": "0"})[1] == "False\n"
    assert process.run(script).stdout == "False\n"


@pytest.mark.once
@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\rb", "a\u202eb"])
def test_control_characters_in_names_reach_no_output(name: str) -> None:
    """Phases and ids come from data: what would colour, overwrite or turn round the line becomes a question mark."""
    script = f"""
        import rl_otel
        rl_otel.configure(run_dir="runs")
        with rl_otel.step(0), rl_otel.rollout(), rl_otel.phase({name!r}):
            for k in range(2):
                with rl_otel.trajectory(f"{{k}}" + {name!r}):
                    pass
    """
    shown = process.run(script, env={"RL_OTEL_PRINT": "1"}).stdout
    assert "    a?" in shown
    assert set(shown) - {"\n"} == {character for character in shown if character.isprintable()}


@pytest.mark.once
@needs.tqdm
def test_a_progress_bar_keeps_its_line() -> None:
    """The table never continues a bar's line: tqdm clears its bars first, and draws them again beneath."""
    code, shown = process.on_terminal(
        """
        import rl_otel
        from tqdm import tqdm
        rl_otel.configure(run_dir="runs")
        for i in tqdm(range(3), desc="training", mininterval=0, miniters=1):
            with rl_otel.step(i), rl_otel.train():
                pass
        """
    )

    assert code == 0
    lines = [as_seen(line) for line in shown.split("\n")]
    assert [line for line in lines if line.startswith("Step")] == ["Step   0", "Step   1", "Step   2"]
    assert [line[:14] for line in lines if "training:" in line] == ["training: 100%"]


def as_seen(line: str) -> str:
    """Return what a terminal shows of a line in which carriage returns went back to its beginning."""
    seen = ""
    for piece in re.sub(r"\x1b\[[0-9;]*m", "", line).split("\r"):
        seen = piece + seen[len(piece) :]
    return seen.rstrip()


@pytest.mark.parametrize(
    "broken",
    [
        "sys.stdout.close()",
        "sys.stdout = None",
        "sys.stdout = open('/dev/full', 'w')",
        "sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding='ascii', errors='strict')",
        "sys.stdout = type('Tee', (), {'write': lambda self, text: len(text)})()",
        "sys.stdout = type('Raises', (), {'write': lambda self, text: 1 / 0, 'flush': None, 'encoding': 'no such'})()",
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_broken_output_breaks_no_run(broken: str, when: str) -> None:
    """Closed, missing, full, ASCII or somebody's stand-in: the run goes on and ends well, and its journal is whole."""
    before, after = (broken, "") if when == "before" else ("", broken)
    done = process.run(
        f"""
        import io, os, sys
        import rl_otel
        {before}
        rl_otel.configure(run_dir="runs", run_id="run")
        {after}
        with rl_otel.step(0), rl_otel.phase("Größe"):
            pass
        report = rl_otel.shutdown()
        assert (report.kept, report.dropped) == (2, 0), report
        os._exit(7)  # what the interpreter itself makes of such an output is not ours
        """,
        env={"RL_OTEL_PRINT": "1"},
        check=False,
    )

    assert done.returncode == 7, done.stderr
    assert len(list(Path("runs/run").glob("*.journal"))) == 1


def test_an_ascii_output_gets_what_it_can_show() -> None:
    """Where the encoding lacks a letter there is a question mark, and no error."""
    script = TWO_STEPS.replace("rl_otel.train()", "rl_otel.phase('Größe')")
    done = process.run(script, env={"RL_OTEL_PRINT": "1", "PYTHONIOENCODING": "ascii:strict"})

    assert "  Gr??e:" in done.stdout
    assert "Training Summary" in done.stdout


def test_a_terminal_that_cannot_say_what_it_is_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for standard output with no more than `write` neither prints nor stops the recording."""
    written: list[str] = []
    stand_in = type("Tee", (), {"write": lambda _, text: written.append(text)})()
    monkeypatch.setattr(sys, "stdout", stand_in)
    with capture() as traces, rl_otel.step(0):
        pass

    assert written == []
    assert len(traces.spans) == 1
