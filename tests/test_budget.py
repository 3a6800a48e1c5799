"""What is sent of a trace, when, and what stays in the journal."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import Any

import pytest

from rl_otel import semconv
from rl_otel._budget import Budget, Held, Measure, Selector, in_share
from rl_otel._budget.candidates import Candidates
from rl_otel._budget.purse import Purse
from rl_otel._budget.refs import Refs
from rl_otel._otlp import Request, encoding_of
from rl_otel._record import LOCAL, SAMPLED, End, Foreign, Late, Lost, Process, Start
from tests.budgeted import RESOURCE, TRACE, S, Story, ended, played, selector


def step(trajectories: int, calls: int, **odd: dict[str, Any]) -> Story:
    """A step with one rollout; `odd` says of some trajectories (t3=…) what is different about them."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    for number in range(trajectories):
        story.play(f"t{number}", **{"start": 0, "end": 10, "calls": calls, **odd.get(f"t{number}", {})})
    story.end("rollout", 20)
    story.add("train", 20, 30, "train", "step", **{semconv.PHASE: "train"})
    story.end("step", 30)
    return story


def full(story: Story, sent: list[str]) -> set[str]:
    """Return the trajectories of which every call was sent."""
    calls: dict[str, set[str]] = {}
    for name in story.names.values():
        if "." in name:
            calls.setdefault(name.partition(".")[0], set()).add(name)
    return {trajectory for trajectory, names in calls.items() if names <= set(sent)}


def shown(span: Any) -> dict[str, int]:
    """Return what a rollout says of what is shown of it."""
    names = ("shown.full", "shown.totals", "shown.none", "spans.shown", "spans.kept")
    return {name: span.attributes[key] for name in names if (key := f"rl.rollout.{name}") in span.attributes}


# --- Under a budget that does not suffice -----------------------------------------------------------------------------


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


# --- What is inside what ----------------------------------------------------------------------------------------------


def test_calls_inside_calls_share_the_fate_of_their_trajectory() -> None:
    """A judge inside a reward, another library's request inside a call: none without the others."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    for number in range(40):
        story.begin("trajectory", 0, f"t{number}", "rollout")
        story.foreign(3, f"t{number}.http", f"t{number}.judge")
        story.add(semconv.GENERATE, 2, 4, f"t{number}.judge", f"t{number}.reward")
        story.foreign(5, f"t{number}.score", f"t{number}.reward")
        story.add(semconv.REWARD, 1, 6, f"t{number}.reward", f"t{number}")
        story.end(f"t{number}", 10)
    story.end("rollout", 20)
    story.end("step", 20)
    select = selector(100)
    names = played(story.records, select).named(story)

    calls = Counter(name.partition(".")[0] for name in names if "." in name)
    assert set(calls.values()) == {4}
    assert 1 < len(calls) < 20
    assert select.kept + len(names) == len(ended(story.records))


def test_an_agent_inside_a_trajectory_shares_its_fate() -> None:
    """The inner trajectory's own span leaves as it ends, its calls with those of the outer one."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    story.begin("trajectory", 0, "outer", "rollout")
    story.play("inner", 1, 2, 3, "outer")
    story.calls("outer", 3, 4, 2)
    story.end("outer", 5)
    story.end("rollout", 6)
    story.end("step", 7)
    sent = played(story.records, selector())

    assert sent.at[story.id("inner")] < sent.at[story.id("outer")] < sent.at[story.id("inner.0")]
    assert shown(sent.one(story, "rollout")) == {
        "shown.full": 1, "shown.totals": 0, "shown.none": 0, "spans.shown": 7, "spans.kept": 0,
    }  # fmt: skip
    assert len(sent.spans) == 9


def test_a_call_that_ends_after_its_trajectory_is_sent_with_it() -> None:
    """What is marked late still belongs to its trajectory while that is undecided."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    for number in range(60):
        story.play(f"t{number}", 0, 10, 4)
    for number in range(60):
        story.add(semconv.ENV_STEP, 9, 11, f"t{number}.late", f"t{number}")
    story.end("rollout", 20)
    story.end("step", 20)
    calls = Counter(n.partition(".")[0] for n in played(story.records, selector(200)).named(story) if "." in n)
    assert set(calls.values()) == {5}


def test_calls_directly_under_a_rollout_are_sent_when_it_ends() -> None:
    """A batched engine has no trajectories; its rollout says how many spans there are, and nothing of trajectories."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    story.calls("rollout", 0, 10, 6)
    story.end("rollout", 20)
    story.end("step", 20)
    sent = played(story.records, selector())
    assert len(sent.spans) == 8
    assert shown(sent.one(story, "rollout")) == {"spans.shown": 6, "spans.kept": 0}


def test_a_trajectory_beneath_another_librarys_span_counts_for_the_open_rollout() -> None:
    """A span that stands between is known only when it ends; the trajectory does not wait for it."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    story.play("t0", 0, 10, 2, parent="between")
    story.foreign(12, "between", "rollout")
    story.end("rollout", 20)
    story.end("step", 20)
    sent = played(story.records, selector())
    assert len(sent.spans) == 6
    assert shown(sent.one(story, "rollout"))["shown.full"] == 1


def test_spans_of_other_libraries_outside_a_step_leave_at_once() -> None:
    """A server of the environment has no rollout to wait for."""
    story = Story()
    story.foreign(1, "query", "request")
    story.foreign(2, "request", "caller elsewhere")
    assert played(story.records, selector(), finish=False).named(story) == ["query", "request"]


def test_what_another_exporter_sends_is_neither_sent_nor_counted() -> None:
    """It only tells to which trajectory what is inside it belongs."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    story.begin("trajectory", 0, "t0", "rollout")
    story.add(semconv.GENERATE, 1, 2, "call", "local")
    story.foreign(3, "local", "t0", flags=SAMPLED | LOCAL)
    story.end("t0", 5)
    story.end("rollout", 6)
    story.end("step", 6)
    select = selector()
    assert sorted(played(story.records, select).named(story)) == ["call", "rollout", "step", "t0"]
    assert select.kept == 0


def test_what_is_not_sampled_is_kept() -> None:
    """A step that the sampler leaves out is in the journal alone."""
    story = step(2, 2)
    for record in story.records:
        if isinstance(record, Start | End | Foreign):
            record.flags = 0
    select = selector()
    assert played(story.records, select).spans == []
    assert select.kept == len(ended(story.records))


def test_late_values_are_held_with_their_span() -> None:
    """A span whose values came late is read back with them."""
    story = step(1, 1)
    call = next(n for n, r in enumerate(story.records) if isinstance(r, End))
    select = selector()
    sends = [
        each
        for number, record in enumerate(story.records)
        for each in select.take(record, (0, number, 9), (0, 1000, 9) if number == call else None)
    ]
    assert [each for each in sends if isinstance(each, Held)] == [Held((0, call, 9), (0, 1000, 9))]


def test_a_span_that_cannot_be_measured_is_passed_on() -> None:
    """Who sends it drops and counts it; nothing else suffers."""

    def refuse(span: object, length: int | None) -> int:
        raise ValueError(span)

    select = Selector(selector()._budget, refuse)
    story = step(2, 2)
    assert len(played(story.records, select).spans) == len(ended(story.records))


# --- Bytes ------------------------------------------------------------------------------------------------------------


def test_what_other_libraries_call_themselves_is_part_of_the_size() -> None:
    """A size is never less than what the span and its scope take in a request."""
    measure = Measure(RESOURCE)
    spans = [Foreign(TRACE, bytes([n] * 8), b"", "é", 1, 2, {}, scope=f"é{n}" * 99, scope_version="é") for n in (1, 2)]
    request = Request(encoding_of("grpc"), RESOURCE)
    for span in spans:
        request.add(span)
    assert len(request.body()) <= measure.envelope + sum(map(measure, spans))


def test_each_request_costs_the_resource_of_each_service() -> None:
    """The first span of a request pays for one service, the first detail for the other two, the next request again."""
    purse = Purse(Budget(1000, 10_000, 10_000, envelope=100, window=5 * S, batch=10))
    costs = []
    for spans, now, detail in ((1, 0, False), (1, 1, False), (3, 1, True), (5, 2, True), (1, 3, True), (1, 9, False)):
        before = purse.size
        assert purse.pay(spans, spans, now * S, detail=detail)
        costs.append(purse.size - before - spans)
    assert costs == [100, 0, 200, 0, 300, 100]


def test_what_ended_after_its_trajectory_weighs_with_it() -> None:
    """Spans that join a trajectory count among its spans and bytes."""
    candidates, late = Candidates(), {b"t" * 8: Refs(), b"u" * 8: Refs()}
    late[b"t" * 8].add(Held((0, 1, 2)), 30)
    candidates.add(End(TRACE, b"t" * 8, b"", semconv.TRAJECTORY, 0, 1, {}), (Held((0, 3, 4)), 5), Refs(), 0)
    candidates.join(late)
    assert (list(candidates.spans), list(candidates.sizes), list(late)) == ([2], [35], [b"u" * 8])
    assert list(candidates.held(0)) == [(Held((0, 3, 4)), 5), (Held((0, 1, 2)), 30)]


# --- Many -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trajectories", "calls"), [(512, 194), (20_000, 4)], ids=["long", "short"])
def test_a_hundred_thousand_spans_in_one_step_are_held_in_eight_megabytes(trajectories: int, calls: int) -> None:
    """Held are numbers, not spans, however they are divided among trajectories."""
    select = Selector(selector()._budget, lambda span, length: 400)
    ends = [End(TRACE, bytes(8), bytes(8), name, 0, S, {}) for name in (semconv.GENERATE, semconv.TRAJECTORY)]
    number = 0
    tracemalloc.start()
    try:
        for name, span, parent in (("step", b"s" * 8, b""), ("rollout", b"r" * 8, b"s" * 8)):
            select.take(Start(TRACE, span, parent, name, 0, {semconv.PHASE: name}), (0, 0, 1))
        for trajectory in range(trajectories):
            span = (trajectory + 1).to_bytes(8, "big")
            select.take(Start(TRACE, span, b"r" * 8, semconv.TRAJECTORY, 0, {}), (0, 0, 1))
            ends[0].parent, ends[1].span, ends[1].parent = span, span, b"r" * 8
            for each in (*[ends[0]] * calls, ends[1]):
                number += 1
                select.take(each, (number >> 16, number * 300, 300))
        held, _ = tracemalloc.get_traced_memory()
        assert select.held >= trajectories * calls
        assert held < 8e6
        select.take(End(TRACE, b"r" * 8, b"s" * 8, "rollout", 0, S, {semconv.PHASE: "rollout"}), (0, 0, 1))
        select.take(End(TRACE, b"s" * 8, b"", "step", 0, S, {}), (0, 0, 1))
        assert tracemalloc.get_traced_memory()[0] < 0.5e6
    finally:
        tracemalloc.stop()


def test_a_trace_that_is_over_leaves_nothing_but_what_it_spent() -> None:
    """Thousands of traces one after another are followed, and what is late has no second budget."""
    select = selector(10)
    for number in range(1500):
        story = Story((number + 1).to_bytes(16, "big"))
        story.play("alone", 0, 1, 1, parent="")
        assert len(played(story.records, select, finish=False).spans) == 2
    assert len(select._traces) == 0
    assert len(select._purses) == 1024
    assert select.spent((1500).to_bytes(16, "big"))[0] == 2
    late = Story((1500).to_bytes(16, "big"))
    late.calls("alone", 1, 2, 100)
    assert len(played(late.records, select, finish=False).spans) < 8


def test_a_trace_beyond_the_most_that_are_followed_is_decided_early() -> None:
    """Of 1,025 traces that are open the one that was quiet for longest is decided, not lost."""
    select, stories = selector(), []
    for number in range(1025):
        story = Story((number + 1).to_bytes(16, "big"))
        story.begin("trajectory", 0, "alone")
        story.calls("alone", 0, 1, 2)
        stories += story.records
    sent = played(stories, select, finish=False)
    assert [(span.trace, span.name) for span in sent.spans] == [((1).to_bytes(16, "big"), "generate")] * 2
    assert select.held == 2 * 1024


def test_a_record_that_is_no_span_passes() -> None:
    """What a process says of itself, and late values that were merged already, are not spans."""
    select = selector()
    for record in (Process(1, "run", 0, {}, 0, 0), Late(b"s" * 8, {}), Lost({"queue": 1})):
        assert select.take(record, (0, 0, 1)) == []
    assert (select.kept, select.held) == (0, 0)
