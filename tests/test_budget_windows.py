"""The budget of trajectories that are traces of their own: a minute of them is as a step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel import semconv
from rl_otel._budget.rank import in_share
from tests.budgeted import Story, full, played, selector
from tests.shipping import arrived, names, ship

if TYPE_CHECKING:
    from rl_otel._budget import Selector
    from tests.receiver import Receiver


def number_of(story: Story) -> int:
    return int.from_bytes(story.trace, "big")


def alone(number: int, at: float, length: float = 1.0, calls: int = 9, *, failed: bool = False) -> Story:
    """A trajectory that is a trace of its own, with an id that is in no share."""
    story = Story(number.to_bytes(16, "big"))
    span = next(n for n in range(number * 1000, number * 1000 + 1000) if not in_share(n.to_bytes(8, "big")))
    story._ids["alone"] = span.to_bytes(8, "big")
    story.names[story._ids["alone"]] = "alone"
    story.play("alone", at, at + length, calls, parent="", failed=failed)
    return story


def shown(select: Selector, stories: list[Story]) -> tuple[list[int], list[int]]:
    """Return which of them leave at all, and which with all their calls."""
    sent = [(story, played(story.records, select, finish=False).named(story)) for story in stories]
    whole = [number_of(story) for story, names in sent if full(story, names)]
    return [number_of(story) for story, names in sent if "alone" in names], whole


def usual(numbers: range, at: float) -> list[Story]:
    """Trajectories that are each a little quicker than the one before: none is among the slowest."""
    return [alone(number, at + place / 10, 1 - place / 1000) for place, number in enumerate(numbers)]


def test_trajectories_of_a_minute_share_the_budget_of_a_step() -> None:
    """Each leaves with its totals; three quarters go to whoever comes first, the next minute has its own."""
    select = selector(100)
    for numbers, at in ((range(1, 31), 0), (range(31, 61), 100)):
        leave, whole = shown(select, usual(numbers, at))
        assert leave == list(numbers)
        assert whole == list(numbers)[: len(whole)]
        assert 50 <= len(whole) * 10 <= 75
    assert (select.kept % 9, select.held) == (0, 0)


def test_the_last_quarter_is_for_those_that_tell_more() -> None:
    """The failed and the slowest tenth are shown with all their calls as long as there is room, the usual are not."""
    select = selector(100)
    shown(select, usual(range(1, 12), 0))
    odd = [alone(30, 3, 0.5, failed=True), alone(31, 3, 0.5), alone(32, 4, 5.0), alone(33, 9, 0.5)]
    assert shown(select, odd) == ([30, 31, 32, 33], [30, 32])


def test_one_that_is_larger_than_all_shows_its_totals() -> None:
    """No single trajectory takes more than a trace may have."""
    select = selector(100)
    assert shown(select, [alone(1, 0, calls=120), alone(2, 1)]) == ([1, 2], [2])


@pytest.mark.usefixtures("look_often")
def test_the_detail_that_is_kept_is_sent_on_demand(receiver: Receiver) -> None:
    """Nothing is lost, and nothing is decided twice: a replay leaves alone what was kept until it is asked for."""
    rl_otel.configure(endpoint=receiver.http, run_dir="runs", run_id="run", trace_budget=20)
    for number in range(10):
        with rl_otel.trajectory(f"t{number}"):
            for _ in range(5):
                with rl_otel.generate():
                    pass
    done = rl_otel.shutdown(timeout=60)
    assert (done.sent + done.kept, done.pending, done.dropped) == (60, 0, 0)
    assert done.kept >= 10
    assert names(receiver)["trajectory"] == 10
    assert ship(Path("runs/run"), receiver) == 0
    assert len(arrived(receiver)) == done.sent
    assert ship(Path("runs/run"), receiver, "--trajectory", "t9") == 0
    (last,) = [span for span in receiver.spans if span.attributes.get("rl.trajectory.id") == "t9"]
    assert sum(span.proto.parent_span_id == last.proto.span_id for span in receiver.spans) == 5
    assert ship(Path("runs/run"), receiver, "--all") == 0
    assert names(receiver) == {"trajectory": 10, "generate": 50}


def test_of_many_waits_the_first_and_the_longest_are_shown() -> None:
    """A generator that waits after each trajectory fills no back end; the next minute begins anew."""
    select, left = selector(), []
    for number, length in enumerate([0.01] * 70 + [0.5, 0.2, 0.6] + [0.01]):
        story = Story((number + 1).to_bytes(16, "big"))
        at = 100.0 if number == 73 else number / 10
        story.add("wait", at, at + length, "wait", "", **{semconv.PHASE: "wait"})
        left += [number] * len(played(story.records, select, finish=False).spans)
    assert left == [*range(64), 70, 72, 73]
    assert select.kept == 7
