"""What shares whose fate, what weighs how much, and what a budget holds in memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest

from rl_otel import semconv
from rl_otel._budget import Budget, Joined, Measure, Refs, Selector, place_of, spot_of
from rl_otel._budget.candidates import Candidates
from rl_otel._budget.purse import Purse
from rl_otel._journal import place_of as at
from rl_otel._otlp import Piece, Request, Writer, encoding_of
from rl_otel._record import LOCAL, SAMPLED, End, Foreign, Late, Lost, Process, Start
from tests.budgeted import RESOURCE, TRACE, S, Story, ended, played, selector, shown, step

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
        for each in select.take(record, number, (1000, 1001) if number == call else ())
    ]
    ((late, joined),) = [(each.late, place_of(each)) for each in sends if isinstance(each, Joined)]
    assert (late, joined) == ((1000, 1001), call)


def test_a_span_that_cannot_be_measured_is_passed_on() -> None:
    """Who sends it drops and counts it; nothing else suffers."""

    def refuse(span: object, segment: int) -> Piece:
        raise ValueError(span)

    select = Selector(selector()._budget, refuse)
    story = step(2, 2)
    assert len(played(story.records, select).spans) == len(ended(story.records))


# --- Bytes ------------------------------------------------------------------------------------------------------------


def test_what_other_libraries_call_themselves_is_part_of_the_size() -> None:
    """A size is never less than what the span and its scope take in a request."""
    measure = Measure(RESOURCE)
    spans = [Foreign(TRACE, bytes([n] * 8), b"", "é", 1, 2, {}, scope=f"é{n}" * 99, scope_version="é") for n in (1, 2)]
    write = Writer(encoding_of("grpc"), RESOURCE)
    request = Request(write.encoding, [write(span) for span in spans])
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
    candidates, late = Candidates(), {b"t" * 8: Refs([spot_of(1, 30)]), b"u" * 8: Refs()}
    candidates.add(End(TRACE, b"t" * 8, b"", semconv.TRAJECTORY, 0, 1, {}), spot_of(3, 5), Refs(), 0)
    candidates.join(late)
    assert (list(candidates.spans), list(candidates.sizes), list(late)) == ([2], [35], [b"u" * 8])
    assert candidates.held(0) == [spot_of(3, 5), spot_of(1, 30)]


# --- Many -------------------------------------------------------------------------------------------------------------


@pytest.mark.once
@pytest.mark.parametrize(("trajectories", "calls"), [(512, 194), (20_000, 4)], ids=["long", "short"])
def test_a_hundred_thousand_spans_in_one_step_are_held_in_eight_megabytes(trajectories: int, calls: int) -> None:
    """Held are numbers, not spans, however they are divided among trajectories."""
    piece = Piece(bytes(8), 0, Writer(encoding_of("grpc"), {})(End(TRACE, b"s" * 8, b"", "", 0, 1, {})).place, b"", 400)
    select = Selector(selector()._budget, lambda span, segment: piece)
    ends = [End(TRACE, bytes(8), bytes(8), name, 0, S, {}) for name in (semconv.GENERATE, semconv.TRAJECTORY)]
    number = 0
    tracemalloc.start()
    try:
        for name, span, parent in (("step", b"s" * 8, b""), ("rollout", b"r" * 8, b"s" * 8)):
            select.take(Start(TRACE, span, parent, name, 0, {semconv.PHASE: name}), 0)
        for trajectory in range(trajectories):
            span = (trajectory + 1).to_bytes(8, "big")
            select.take(Start(TRACE, span, b"r" * 8, semconv.TRAJECTORY, 0, {}), 0)
            ends[0].parent, ends[1].span, ends[1].parent = span, span, b"r" * 8
            for each in (*[ends[0]] * calls, ends[1]):
                number += 1
                select.take(each, at(number >> 16, number * 300))
        held, _ = tracemalloc.get_traced_memory()
        assert select.held >= trajectories * calls
        assert held < 8e6
        select.take(End(TRACE, b"r" * 8, b"s" * 8, "rollout", 0, S, {semconv.PHASE: "rollout"}), 0)
        select.take(End(TRACE, b"s" * 8, b"", "step", 0, S, {}), 0)
        assert tracemalloc.get_traced_memory()[0] < 0.5e6
    finally:
        tracemalloc.stop()


def test_a_trace_that_is_over_leaves_nothing_but_what_it_spent() -> None:
    """Thousands of traces one after another are followed, and what is late has no second budget."""
    select = selector(10)
    for number in range(1500):
        story = Story((number + 1).to_bytes(16, "big"))
        story.play("alone", number * 60, number * 60 + 1, 1, parent="")
        assert len(played(story.records, select, finish=False).spans) == 2
    assert len(select._traces) == 0
    assert len(select._purses) == 1024
    assert select.spent((1500).to_bytes(16, "big"))[0] == 2
    late = Story((1500).to_bytes(16, "big"))
    late.calls("alone", 1499 * 60 + 1, 1499 * 60 + 2, 100)
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
        assert select.take(record, 0) == []
    assert (select.kept, select.held) == (0, 0)
