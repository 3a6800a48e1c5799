"""What `rl-otel report` tells of a run of several ranks: which of them held up the others, and what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import _figures, semconv
from rl_otel._split import union
from rl_otel._table import numbered
from tests.journal_maker import Maker
from tests.reporting import reported

RUN = Path("runs/r")
PAGE = Path(__file__).parent.parent / "docs" / "ranks.md"


def rank(number: int, world: int, role: str = "trainer", restart: int = 0) -> Maker:
    """Return the journal of a rank, on a host of its own."""
    place: dict[str, Any] = {semconv.RANK: number, semconv.WORLD_SIZE: world, semconv.ROLE: role}
    return Maker(RUN, f"host{number}-{number + 1}-{role[0] * 8}-{restart}", restart, **place)


def step(maker: Maker, index: int, at: float, data: float, barrier: float, *, marks: bool = True, **more: Any) -> None:
    """Write a step of a rank: data for some seconds, then train until a second after all are at the barrier."""
    number = maker.process[semconv.RANK]
    maker.trace, maker.step_index = f"step {index}", index
    span, parent = (f"step {index}", "") if number == 0 else (f"step {index} of {number}", f"step {index}")
    said = {semconv.RANK: number} if number else {}
    maker.start("step", at, span, parent, **said)
    maker.end("data", at, at + data, f"data {index} {number}", span)
    train = f"train {index} {number}"
    maker.start("train", at + data, train, span)
    if marks:
        collective = {semconv.WAIT_REASON: semconv.WAIT_COLLECTIVE}
        maker.end("wait", at + data, at + barrier, f"wait {index} {number}", train, **collective)
    maker.end("train", at + data, at + barrier + 1, train, span)
    maker.end("step", at, at + barrier + 1, span, parent, **said, **more)


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    code, lines, error = reported(capsys, str(RUN), *arguments)
    assert (code, error) == (0, "")
    assert all(len(line) <= 80 for line in lines if "open" not in line)
    return lines


def table(lines: list[str], head: str) -> list[str]:
    """Return the lines from one on until the first that is less indented than its own."""
    at = next(number for number, line in enumerate(lines) if line.startswith(f"  {head}"))
    rest = lines[at:]
    return rest[: next((number for number, line in enumerate(rest) if not line.startswith("  ")), len(rest))]


@pytest.mark.parametrize("marks", [True, False])
def test_the_slow_rank_is_named_not_those_that_wait_for_it(marks: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 2 is slow in data before a barrier: it is blamed for data, whether the waiting is marked or not."""
    for number in range(4):
        maker = rank(number, 4)
        for index in range(3):
            step(maker, index, index * 10, 5.0 if number == 2 else 1.0 + number / 10, 5.0, marks=marks)
    lines = lines_of(capsys)
    train = "1.00s    1.00s    1.00s" if marks else "1.00s    4.70s    5.00s  rank 0"
    waits = ["    wait collective:            0.00s    3.70s    4.00s  rank 2 waited least"] if marks else []
    expected = [
        "  4 ranks                         min   median      max  slowest",
        "  --------------------------------------------------------------",
        "  data:                         1.00s    1.10s    5.00s  rank 2",
        f"  train:                        {train}",
        *waits,
        "  other:                        0.00s    0.00s    0.00s",
        "  Held up by rank 2: 3.9s above the median, most of it in data",
    ]
    assert table(lines, "4 ranks")[: len(expected)] == expected
    if marks:
        assert "\n".join(expected) in PAGE.read_text()
    run = table(lines, "4 ranks, 3 steps")
    assert "  data:                         3.00s    3.30s   15.00s  rank 2" in run
    assert "  Held up by rank 2 in 3 steps" in run


def test_nobody_is_blamed_where_it_cannot_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Of two ranks of which one waits unmarked, either may have been slow; ranks that are alike have no slow one."""
    for number in range(2):
        maker = rank(number, 2)
        step(maker, 0, 0, 4.0 if number else 1.0, 4.0, marks=False)
        step(maker, 1, 10, 4.0, 4.0)
    lines = lines_of(capsys)
    assert len(table(lines, "2 ranks, 2 steps")) > 4
    assert not [line for line in lines if "Held up" in line]


def test_nobody_is_slowest_by_what_the_table_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    """A phase that took all ranks the same time to the hundredth of a second names none of them."""
    for number in range(2):
        step(rank(number, 2), 0, 0, 1.0 + number / 1000, 2.0)
    assert table(lines_of(capsys), "2 ranks")[2] == "  data:                         1.00s    1.00s    1.00s"


def test_a_phase_that_one_rank_alone_has_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 0 writes a checkpoint while the others wait: they spent no time in it, and it held them up."""
    for number in range(4):
        maker = rank(number, 4)
        if number == 0:
            maker.step_index = 0
            maker.trace = "step 0"
            maker.end("checkpoint", 1, 4, "checkpoint", "step 0")
        step(maker, 0, 0, 1.0 if number else 4.0, 4.0)
    rows = table(lines_of(capsys, "--step", "0"), "4 ranks")
    assert "  checkpoint:                   0.00s    0.00s    3.00s  rank 0" in rows


def test_processes_of_another_role_are_no_ranks_of_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    """Generators that join the step are not compared with the trainer."""
    step(rank(0, 1), 0, 0, 1.0, 2.0)
    for number in range(1, 3):
        step(rank(number, 3, "generator"), 0, 0, 3.0, 9.0)
    assert not [line for line in lines_of(capsys) if "ranks" in line]


# --- what is not there, or late ---------------------------------------------------------------------------------------


def test_the_root_never_came(capsys: pytest.CaptureFixture[str]) -> None:
    """Where rank 0's journal is missing, the lowest rank there is tells of each step, and who is missing is named."""
    for number in (1, 2):
        maker = rank(number, 4)
        for index in range(80):
            step(maker, index, index * 10, float(number), 3.0, **{semconv.LOSS: 0.5})
    code, lines, error = reported(capsys, str(RUN))
    assert code == 0
    assert [line for line in lines if line.startswith("Step ")] == [f"Step {n:>3} | Loss: 0.5000" for n in range(80)]
    assert lines.count("  (told by rank 1: the step of rank 0 has not ended, or is not here)") == 80
    assert "  data:                         1.00s    1.00s    2.00s  rank 2" in table(lines, "2 ranks")
    left = "ranks 0 and 3 of 4 trainers left no journal here: copy those of other hosts into runs/r"
    assert error == f"rl-otel report: {left}\n"


def test_the_root_has_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """Where rank 0 was killed in a step that the others have ended, both are said."""
    maker = rank(0, 3)
    maker.begin_step(0, 0)
    maker.start("train", 1, "train", "step 0")
    for number in (1, 2):
        step(rank(number, 3), 0, 0, 1.0, 3.0)
    lines = lines_of(capsys)
    assert "  (told by rank 1: the step of rank 0 has not ended, or is not here)" in lines
    (opened,) = [line for line in lines if line.startswith("Step 0 has ")]
    assert opened.startswith("Step 0 has ended, but step, train are still open in it, for ")


def test_a_rank_that_never_ended_its_step_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A rank that died in a step is in no figure of it, and named as open."""
    for number in range(3):
        maker = rank(number, 4)
        for index in range(3):
            step(maker, index, index * 10, 1.0, 3.0)
    dead = rank(3, 4)
    dead.trace, dead.step_index = "step 1", 1
    dead.start("step", 10, "step 1 of 3", "step 1", **{semconv.RANK: 3})
    lines = lines_of(capsys)
    assert [line for line in lines if line.startswith("Step ")][:3] == ["Step   0", "Step   1", "Step   2"]
    assert any("but step of rank 3 is still open in it" in line for line in lines)


@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_ends_much_later_is_in_its_step(late: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The owner's spans, or another rank's, may come a minute after all the others."""
    for number in range(3):
        maker = rank(number, 3)
        for index in range(4):
            step(maker, index, index * 4 + (60 if number == late else 0), 1.0, 3.0)
    lines = lines_of(capsys)
    assert [line for line in lines if line.startswith("Step ")] == [f"Step {index:>3}" for index in range(4)]
    assert len([line for line in lines if line.startswith("  3 ranks  ")]) == 4
    assert not [line for line in lines if "told by" in line]


# --- arithmetic -------------------------------------------------------------------------------------------------------

_MOMENTS = st.integers(0, 1000)


@given(st.lists(st.tuples(st.sampled_from(["data", "train", "wait"]), _MOMENTS, _MOMENTS), max_size=12))
def test_work_waiting_and_other_are_the_whole_step(drawn: list[tuple[str, int, int]]) -> None:
    """Whatever overlaps: of a rank's step nothing is both work and waiting, and what is neither is other."""
    phases = [
        _figures.Phase(
            name,
            number.to_bytes(8, "big"),
            b"",
            min(times),
            max(times),
            {semconv.WAIT_REASON: semconv.WAIT_COLLECTIVE} if name == "wait" else {},
        )
        for number, (name, *times) in enumerate(drawn)
    ]
    ranks = _figures.RankTimes()
    ranks.add(0, phases, 0, 1000)
    ranks.add(1, [], 0, 1000)
    found = ranks.figures()
    assert found is not None
    mine = {row.path: row.max for row in found.rows}
    waits = [(phase.start, phase.end) for phase in phases if phase.name == "wait"]
    everything = union((phase.start, phase.end) for phase in phases)
    for name in ("data", "train"):
        group = [(phase.start, phase.end) for phase in phases if phase.name == name]
        assert mine.get((name,), 0) == union([*group, *waits]) - union(waits)
    assert mine["other",] == 1000  # of the rank that has no phase
    assert next(row for row in found.rows if row.path == ("other",)).min == 1000 - everything


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0 and 1"),
        ([0, 1, 2, 7], "ranks 0 to 2 and 7"),
        ([1, 2, 4, 6, 7, 8], "ranks 1, 2, 4 and 6 to 8"),
        (list(range(0, 40, 2)), "ranks 0, 2, 4, 6, 8, 10, 12 and others"),
    ],
)
def test_numbers_in_a_row_are_told_together(numbers: list[int], told: str) -> None:
    """A sentence names numbers as people do, and not hundreds of them."""
    assert numbered("rank", numbers) == told
