"""What openers are given: numbers that are none, or not whole ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from tests.test_misuse import lines

if TYPE_CHECKING:
    from rl_otel.testing import Traces


@pytest.mark.parametrize("index", ["many", float("nan"), [1], object()])
def test_an_index_that_is_no_number_counts_on(traces: Traces, caplog: pytest.LogCaptureFixture, index: Any) -> None:
    """A step whose index cannot be read gets the next number, and a line that says so."""
    with rl_otel.step(4):
        pass
    with rl_otel.step(index):
        pass
    assert [span.attributes["rl.step"] for span in traces.all("step")] == [4, 5]
    assert lines(caplog) == [f"rl_otel: step({index!r}): not a number, counting on instead"]


@pytest.mark.parametrize(("index", "number"), [(1.5, 1), (True, 1), (-0.5, 0)])
def test_an_index_that_is_no_whole_number_is_rounded_with_one_line(
    traces: Traces, caplog: pytest.LogCaptureFixture, index: Any, number: int
) -> None:
    """What the trainer calls its step is altered only with a word about it."""
    with rl_otel.step(index), rl_otel.train():
        pass
    assert traces.one("step").attributes["rl.step"] == number
    assert lines(caplog) == [f"rl_otel: step({index!r}) is recorded as step {number}"]


@pytest.mark.parametrize("index", [7.0, 7, "7"])
def test_an_index_that_is_a_whole_number_is_not_worth_a_word(
    traces: Traces, caplog: pytest.LogCaptureFixture, index: Any
) -> None:
    """Seven is seven, whatever it is written as."""
    with rl_otel.step(index):
        pass
    assert traces.one("step").attributes["rl.step"] == 7
    assert lines(caplog) == []


@pytest.mark.parametrize(
    ("opener", "told"),
    [
        (lambda: rl_otel.trajectory("t", sample="third"), "trajectory(sample='third'): not a whole number, left out"),  # type: ignore[arg-type]
        (lambda: rl_otel.trajectory("t", attempt=[1, 2]), "trajectory(attempt=[1, 2]): not a whole number, left out"),  # type: ignore[arg-type]
        (
            lambda: rl_otel.generate(policy_version="new"),
            "generate(policy_version='new'): not a whole number, left out",
        ),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_a_wrong_type_is_left_out_with_one_line(
    traces: Traces, caplog: pytest.LogCaptureFixture, opener: Any, told: str
) -> None:
    """The span is recorded without it, and the line names the opener, the argument and the value."""
    with opener():
        pass
    assert len(traces.spans) == 1
    assert lines(caplog) == [f"rl_otel: {told}"]
