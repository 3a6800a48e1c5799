"""What is sent of a trace, when, and what stays in the journal."""

from __future__ import annotations

from typing import Any

import pytest

from rl_otel import semconv
from rl_otel._budget import in_share
from rl_otel._record import End
from tests.budgeted import Story, ended, full, played, selector, shown, step

# --- Under a budget that does not suffice -----------------------------------------------------------------------------


@pytest.mark.once
def test_a_step_of_41_000_spans_is_cut_to_a_budget_of_3_000() -> None:
    """C42, C43: all phases and trajectories arrive, and detail of whole trajectories until the budget is used up."""
    story = step(512, 80)
    select = selector(3000)
    sent = played(story.records, select)
    names = sent.named(story)

    assert len(ended(story.records)) == 512 * 81 + 3
    assert 2000 < len(names) <= 3000
    assert sent.size <= 3000 * 400
    assert {"step", "rollout", "train", *(f"t{n}" for n in range(512))} <= set(names)
    assert len(names) == 3 + 512 + 80 * len(full(story, names))
    assert select.held == 0
    assert select.kept + len(names) == len(ended(story.records))


def test_failed_slowest_and_extremes_keep_their_detail() -> None:
    """What the budget has goes to those that tell most: failed, slowest, the highest and the lowest reward."""
    slow = {f"t{n}": {"end": n - 70} for n in range(100, 105)}
    odd = {
        "t7": {"failed": True}, "t8": {semconv.TRAJECTORY_OUTCOME: "timeout"}, "t9": {"reward": 1.0},
        "t10": {"reward": -1.0}, **slow,
    }  # fmt: skip
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    for number in range(200):
        given = {"start": 0, "end": 10, "calls": 20, "reward": 0.0, **odd.get(f"t{number}", {})}
        story.play(f"t{number}", **given)
    story.end("rollout", 200)
    story.end("step", 200)
    names = played(story.records, selector(500)).named(story)

    assert full(story, names) <= set(odd)
    assert full(story, played(story.records, selector(1000)).named(story)) >= set(odd)


def test_many_failures_do_not_hide_the_slowest() -> None:
    """Where nearly all fail, the five that held the step up are shown all the same."""
    odd: dict[str, Any] = {f"t{n}": {"failed": True} for n in range(150)}
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    for number in range(160):
        story.play(f"t{number}", 0, 10 + number, 20, **odd.get(f"t{number}", {}))
    story.end("rollout", 200)
    story.end("step", 200)
    shown = full(story, played(story.records, selector(1000)).named(story))

    assert {f"t{n}" for n in range(155, 160)} <= shown
    assert {f"t{n}" for n in range(145, 150)} <= shown


def test_a_share_by_the_id_is_shown_whatever_it_was() -> None:
    """One trajectory in about sixteen is shown wherever there is room, the same ones each time."""
    share = [n for n in range(4096) if in_share(n.to_bytes(8, "big"))]
    assert 200 < len(share) < 312
    story = step(200, 20)
    names = played(story.records, selector(700)).named(story)
    lucky = {name for id_, name in story.names.items() if "." not in name and name[0] == "t" and in_share(id_)}
    assert lucky <= full(story, names)
    assert len(full(story, names)) < 20


def test_a_small_step_goes_out_whole() -> None:
    """Most steps need no cut: then everything is sent, and the rollout says so."""
    story = step(24, 20)
    select = selector()
    sent = played(story.records, select)

    assert sorted(sent.named(story)) == sorted(story.names[span.span] for span in ended(story.records))
    assert select.kept == 0
    assert shown(sent.one(story, "rollout")) == {
        "shown.full": 24, "shown.totals": 0, "shown.none": 0, "spans.shown": 24 * 21, "spans.kept": 0,
    }  # fmt: skip


def test_the_rollout_says_what_is_not_shown() -> None:
    """Trajectories in full, as totals and not at all, spans shown and kept: they add up to what there was."""
    story = step(100, 80)
    sent = played(story.records, selector(1000))
    figures = shown(sent.one(story, "rollout"))
    count = len(full(story, sent.named(story)))

    assert figures == {
        "shown.full": count, "shown.totals": 100 - count, "shown.none": 0,
        "spans.shown": 100 + 80 * count, "spans.kept": 80 * (100 - count),
    }  # fmt: skip


def test_trajectories_beyond_half_of_the_budget_wait_for_their_rollout() -> None:
    """The first leave as they end; of the rest the failed and the slowest come first, the others are not shown."""
    story = step(1000, 0, t990={"failed": True}, t991={"end": 15})
    sent = played(story.records, selector(200))
    names, figures = sent.named(story), shown(sent.one(story, "rollout"))

    assert sent.at[story.id("t0")] < sent.at[story.id("t990")]
    assert {*(f"t{n}" for n in range(50)), "t990", "t991", "rollout", "train", "step"} <= set(names)
    assert figures["shown.none"] == 1000 - (len(names) - 3)
    assert figures["spans.kept"] == figures["shown.none"]


def test_a_trajectory_shown_late_is_sent_once() -> None:
    """One whose own span had to wait may get its detail too; nothing of it is sent twice."""
    story = step(110, 1)
    names = played(story.records, selector(200)).named(story)

    assert len(set(names)) == len(names)
    assert full(story, names) & {f"t{n}" for n in range(105, 110)}
    assert {f"t{n}" for n in range(110)} <= set(names)


def test_of_many_phases_of_one_name_the_first_the_slowest_and_the_last_are_sent() -> None:
    """Past 64 phases of one name: the first 62 as they end, the slowest and the last when the step ends."""
    story = Story()
    story.begin("step", 0)
    for number in range(300):
        phase = {semconv.PHASE: "train"}
        story.add("train", number, number + (0.9 if number == 200 else 0.5), f"train {number}", "step", **phase)
    story.end("step", 300)
    select = selector()
    sent = played(story.records, select)

    assert sorted(sent.named(story)) == sorted([*(f"train {n}" for n in range(62)), "train 200", "train 299", "step"])
    assert sent.at[story.id("train 61")] == 62
    assert (select.kept, select.held) == (300 - 64, 0)


@pytest.mark.parametrize("count", [1, 62, 63, 64])
def test_up_to_64_phases_of_one_name_are_all_sent(count: int) -> None:
    """Nothing is left out of 64."""
    story = Story()
    story.begin("step", 0)
    for number in range(count):
        story.add("train", number, number + 1, f"train {number}", "step", **{semconv.PHASE: "train"})
    story.end("step", 300)
    assert len(played(story.records, selector()).spans) == count + 1


def test_later_rollouts_of_a_step_have_something_left() -> None:
    """The first rollout does not take all: the slowest of the next ones are shown too."""
    story = Story()
    story.begin("step", 0)
    for rollout in range(3):
        story.begin("rollout", rollout * 100, f"rollout {rollout}", "step")
        for number in range(64):
            end = rollout * 100 + 10 + (number == 5)
            story.play(f"r{rollout}t{number}", rollout * 100, end, 40, f"rollout {rollout}")
        story.end(f"rollout {rollout}", rollout * 100 + 50)
    story.end("step", 300)
    names = played(story.records, selector(2000)).named(story)
    assert {"r0t5", "r1t5", "r2t5"} <= full(story, names)


def test_the_step_itself_is_always_sent() -> None:
    """A budget of one span is spent on the root."""
    story = step(10, 4)
    select = selector(1)
    assert played(story.records, select).named(story) == ["step"]
    assert select.kept == len(ended(story.records)) - 1


def test_a_process_without_a_quota_sends_nothing_of_a_shared_step() -> None:
    """Of many ranks some write their journal only; a trace of their own is sent all the same."""
    story = step(10, 4)
    select = selector(quota=0)
    assert played(story.records, select).spans == []
    assert select.kept == len(ended(story.records))

    own = Story(b"\2" * 16)
    own.play("alone", 0, 10, 4, parent="")
    assert len(played(own.records, select).spans) == 5


# --- When -------------------------------------------------------------------------------------------------------------


def test_phases_and_trajectories_leave_as_they_end() -> None:
    """A running step can be watched: only calls wait for their rollout."""
    story = step(3, 2)
    sent = played(story.records, selector())
    position = {
        story.names[record.span]: number for number, record in enumerate(story.records) if isinstance(record, End)
    }
    for name in ("t0", "t1", "t2", "rollout", "train", "step"):
        assert sent.at[story.id(name)] == position[name]
    for call in ("t0.0", "t2.1"):
        assert sent.at[story.id(call)] == position["rollout"]


def test_a_straggler_of_a_long_rollout_is_shown_as_it_goes_on() -> None:
    """After 60 s one that took twice as long as nine in ten others leaves span by span; others wait."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    story.begin("trajectory", 0, "slow", "rollout")
    story.calls("slow", 0, 10, 3)
    story.begin("trajectory", 50, "young", "rollout")
    for number in range(10):
        story.play(f"t{number}", 0, 20, 2)
    story.add(semconv.GENERATE, 40, 59, "early", "slow")
    story.add(semconv.GENERATE, 59, 61, "mid", "slow")
    story.add(semconv.GENERATE, 61, 62, "calm", "young")
    story.add(semconv.GENERATE, 62, 63, "next", "slow")
    before = played(story.records, selector(), finish=False).at
    mid = story.records.index(next(r for r in story.records if getattr(r, "span", b"") == story.id("mid")))

    assert {before[story.id(name)] for name in ("slow.0", "slow.2", "early", "mid")} == {mid}
    assert before[story.id("next")] == mid + 2
    assert story.id("calm") not in before
    story.end("slow", 70)
    story.end("rollout", 71)
    sent = played(story.records, selector(), finish=False)
    assert shown(sent.one(story, "rollout"))["spans.shown"] == 10 * 3 + 7
    assert len(set(sent.named(story))) == len(sent.spans)


def test_a_trajectory_that_outlives_its_rollout_decides_when_it_ends() -> None:
    """Its calls after the rollout are not lost, and the next rollout does not count them."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, "r0", "step")
    story.begin("trajectory", 0, "late", "r0")
    story.calls("late", 0, 5, 2)
    story.end("r0", 10)
    story.begin("rollout", 10, "r1", "step")
    story.play("t", 10, 12, 1, "r1")
    story.add(semconv.GENERATE, 128, 129, "late.2", "late")
    story.end("late", 130)
    story.end("r1", 131)
    story.end("step", 140)
    sent = played(story.records, selector())

    assert len(sent.spans) == len(ended(story.records))
    assert sent.at[story.id("late.0")] == sent.at[story.id("late.2")] == sent.at[story.id("late")]
    assert shown(sent.one(story, "r0")) == {}
    assert shown(sent.one(story, "r1"))["spans.shown"] == 2


def test_a_trajectory_of_its_own_trace_is_sent_when_it_ends() -> None:
    """Asynchronous trajectories wait for no rollout."""
    story = Story()
    story.play("alone", 0, 10, 8, parent="")
    assert len(played(story.records, selector(), finish=False).spans) == 9


def test_a_process_that_does_not_own_the_rollout_decides_trajectory_by_trajectory() -> None:
    """Everything while there is plenty; then the failed, the share and those above nine in ten."""
    story = Story()
    for number in range(100):
        story.play(f"t{number}", 0, 10 + number % 7 * 0.1, 8, "elsewhere")
    story.play("slow", 0, 99, 8, "elsewhere")
    story.play("failed", 0, 1, 8, "elsewhere", failed=True)
    story.play("usual", 0, 1, 8, "elsewhere")
    names = played(story.records, selector(700), finish=False).named(story)

    assert {"t0", "t5", "slow", "failed"} <= full(story, names)
    assert "usual" in names
    assert "usual" not in full(story, names)


def test_what_never_ended_is_decided_when_the_run_is_over() -> None:
    """The calls of a trajectory that a crash left open are sent."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    story.play("t0", 0, 10, 4)
    story.begin("trajectory", 0, "open", "rollout")
    story.calls("open", 0, 10, 4)
    select = selector()
    assert played(story.records, select, finish=False).named(story) == ["t0"]
    assert select.held == 8
    assert len(select.finish()) == 8
    assert (select.held, select.kept) == (0, 0)
