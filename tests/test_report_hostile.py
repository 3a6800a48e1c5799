"""`rl-otel report` of journals that nobody has promised anything about: wrong values, impossible times, many files."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from rl_otel import _record, semconv
from rl_otel._journal import frame
from tests.journal_maker import BEGAN, Maker, one_step, span_of, trace_of
from tests.reporting import reported

RUN = Path("runs/r")


@pytest.mark.parametrize("wrong", ["x\x1b[2J", [1, "x"], None, -5, float("nan"), float("inf"), 1e300, (1 << 64) - 1])
def test_values_of_another_kind_are_left_out(wrong: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a journal holds under our names, the report is made of the rest, and no control character is in it."""
    ours = [value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)]
    durations = [semconv.TRAJECTORY_PART.format(part=part) for part in (*semconv.PARTS, semconv.OTHER)]
    names = [name for name in (*ours, *durations) if "." in name and name not in (semconv.PHASE, semconv.LATE)]
    hostile = dict.fromkeys((*names, semconv.TRAJECTORIES_DROPPED.format(reason="stale")), wrong)
    maker = Maker(RUN, **hostile)
    one_step(maker, 0)
    maker.end("eval", 9, 9.5, "eval", "step 0", **hostile)
    maker.start("trajectory", 9, "open", "step 0", **hostile)
    maker.trajectory("0/3", 1, 3, **hostile)
    maker.end("generate", 1, 2, "g", "0/1", **hostile)
    maker.end("generate", 1, 2, "direct", "rollout", **hostile)
    maker.begin_step(1, 11)
    maker.end("train", 11, 12, "train 3", "step 1", **hostile)
    maker.end("weight_sync.load", 11, 12, "load", "train 3", **{**hostile, semconv.SYNC_PART: "load"})
    maker.write(_record.Late(span_of("step 1"), hostile))
    maker.end("step", 11, 13, "step 1", **{**hostile, semconv.STEP_INDEX: 1})
    for arguments in ([], ["--step", "0"], ["--step", "1"]):
        code, lines, error = reported(capsys, str(RUN), *arguments)
        assert (code, error) == (0, "")
        assert all(line.isprintable() for line in lines)
        assert all(line.startswith("Step ") or "Loss" not in line for line in lines)


def test_a_record_of_an_impossible_moment_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """What began before 1970 or ends after 2262 is passed over like any garbage."""
    maker = Maker(RUN)
    one_step(maker, 0)
    ids = trace_of("step 0"), span_of("far"), span_of("step 0")
    for start, end in ((-1, BEGAN), (BEGAN, 1 << 63)):
        with maker.path.open("ab") as file:
            file.write(frame(_record.encode(_record.End(*ids, "far", start, end, {semconv.PHASE: "far"}))))
    code, lines, _ = reported(capsys, str(RUN))
    assert code == 0
    assert "far" not in "".join(lines)


def test_a_journal_that_was_copied_breaks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The same root from two files is one step."""
    one_step(Maker(RUN, "host-1-a"), 0)
    one_step(Maker(RUN, "copy-1-a"), 0)
    code, lines, error = reported(capsys, str(RUN))
    assert (code, error) == (0, "")
    assert [line for line in lines if line.startswith("Step ")] == ["Step   0 | Loss: 0.5000"]


def test_more_journals_than_a_process_may_open_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    """A run of a thousand processes is read though the system lets one have far fewer files open."""
    one_step(Maker(RUN, "driver-0-a"), 0)
    for number in range(100):
        worker = Maker(RUN, f"worker-{number}-b")
        worker.step_index, worker.trace = 0, "step 0"
        worker.trajectory(f"w/{number}", 1, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/dev/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 20, hard))
    try:
        code, lines, error = reported(capsys, str(RUN))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (code, error) == (0, "")
    assert any(line.startswith("  102 trajectories: p50 1.0s") for line in lines)
