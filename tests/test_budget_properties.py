"""What holds of the budget whatever the trace looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import semconv
from rl_otel._budget import Budget, Joined, Refs, quota, size_of, spot_of
from rl_otel._identity import Identity
from rl_otel._journal import place_of as at
from rl_otel._otlp import Writer, encoding_of
from rl_otel._record import End
from tests.budgeted import TRACE, Story, ended, played, selector

pytestmark = pytest.mark.once

_NAMES = (semconv.GENERATE, semconv.ENV_STEP, semconv.REWARD, "foreign")


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Draw a step as any trainer could write it: rollouts, trajectories at once, inside each other, left open."""
    story, at = Story(), 0.0
    opened = ["step"]
    story.begin("step", 0)
    randoms = draw(st.randoms(use_true_random=False))
    for spans in range(draw(st.integers(1, 400))):
        at += randoms.choice((0.001, 0.1, 3.0, 40.0))
        kind = randoms.choice(("rollout", "trajectory", "trajectory", "end", "train", "late", *["call"] * 8))
        inside = randoms.choice(opened[-8:])
        if kind == "rollout":
            story.begin(randoms.choice(("rollout", "eval")), at, f"rollout {spans}", "step")
            opened.append(f"rollout {spans}")
        elif kind == "trajectory":
            story.begin("trajectory", at, f"t {spans}", inside)
            opened.append(f"t {spans}")
        elif kind == "end" and inside != "step":
            opened.remove(inside)
            story.end(inside, at, status=randoms.choice((0, 0, 0, 2)), **_said(inside, randoms))
        elif kind == "train":
            story.add("train", at - 0.5, at, f"train {spans}", "step", **{semconv.PHASE: "train"})
        else:
            _call(story, at, f"call {spans}", _parent(kind, inside, spans, randoms), randoms)
    for span in reversed(opened[1:]):
        if randoms.random() < 0.8:
            story.end(span, at, **_said(span, randoms))
    if randoms.random() < 0.9:
        story.end("step", at)
    return story


def _said(span: str, randoms: Any) -> dict[str, Any]:
    reward = {semconv.TRAJECTORY_REWARD: randoms.choice((0.0, 0.5, 1.0))}
    return reward if span.startswith("t ") and randoms.random() < 0.5 else {}


def _parent(kind: str, inside: str, spans: int, randoms: Any) -> str:
    """Inside what is open, inside a call that ends later, or inside something that is over."""
    return f"call {spans + randoms.randint(1, 3)}" if kind == "late" else inside


def _call(story: Story, at: float, span: str, parent: str, randoms: Any) -> None:
    name = randoms.choice(_NAMES)
    if name == "foreign":
        story.foreign(at, span, parent)
    else:
        story.add(name, at - 0.1, at, span, parent, **{semconv.CUSTOM + "x": "y" * randoms.choice((0, 30, 900))})


budgets = st.sampled_from([60, 100, 300, 10_000])


@given(stories(), budgets, st.sampled_from([8, 512]))
def test_never_above_the_budget_and_nothing_lost(story: Story, spans: int, batch: int) -> None:
    """Spans and bytes, as really encoded with their resources, stay below; what is not sent is kept, once each."""
    select = selector(spans, batch=batch)
    sent = played(story.records, select, batch=batch)
    live = Budget.of(spans).live

    assert len(sent.spans) <= spans
    assert len({span.span for span in sent.spans}) == len(sent.spans)
    assert sent.size <= live
    assert len(sent.spans) + select.kept == len(ended(story.records))
    assert select.held == 0
    counted = select.spent(TRACE)
    assert counted[0] == len(sent.spans)
    assert sent.size <= counted[1] or not sent.spans


@given(stories(), budgets)
def test_shown_and_kept_add_up(story: Story, spans: int) -> None:
    """Each rollout's figures are those of the trajectories that ended in it, and its spans are all of them."""
    sent = played(story.records, selector(spans))
    for span in sent.spans:
        if span.name in (semconv.ROLLOUT, semconv.EVAL):
            said = {key: value for key, value in span.attributes.items() if key.startswith("rl.rollout.s")}
            how = [said.get(semconv.ROLLOUT_SHOWN.format(how=each), 0) for each in ("full", "totals", "none")]
            shown, kept = (said.get(key, 0) for key in (semconv.ROLLOUT_SPANS_SHOWN, semconv.ROLLOUT_SPANS_KEPT))
            assert how[0] + how[1] <= shown or not said
            assert how[1] + how[2] <= kept or not said
            assert sum(how) <= shown + kept
    assert all(semconv.ROLLOUT_SPANS_SHOWN not in record.attributes for record in ended(story.records))


@given(stories(), budgets)
def test_a_replay_decides_alike(story: Story, spans: int) -> None:
    """After a crash the journal is read again from its beginning: the same spans leave, with the same attributes."""
    first, again = played(story.records, selector(spans)), played(story.records, selector(spans))
    assert first == again


@given(stories(), budgets, st.sampled_from([500, 5000, 10**9]))
def test_what_is_at_hand_decides_nothing(story: Story, spans: int, room: int) -> None:
    """With room for some or all that is held, the same spans leave at the same moments, in the same order."""
    select, roomy = selector(spans), selector(spans, room=room)
    sent, again = played(story.records, select), played(story.records, roomy)
    assert sent == again
    assert (select.kept, select.spent(TRACE)) == (roomy.kept, roomy.spent(TRACE))
    assert roomy._counts.room == room


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(0, 20), st.integers(200, 900), st.randoms())
def test_the_slowest_and_the_failed_are_there_whenever_any_detail_is(
    failures: list[bool], calls: int, spans: int, randoms: Any
) -> None:
    """Nobody's calls are sent in part, and no others' before those of all that failed and of the five slowest."""
    durations = list(range(1, len(failures) + 1))
    randoms.shuffle(durations)
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    for number, failed in enumerate(failures):
        story.play(f"t{number}", 100 - durations[number], 100, calls, failed=failed)
    story.end("rollout", 100)
    story.end("step", 100)
    names = set(played(story.records, selector(spans)).named(story))

    counts = [sum(f"t{number}.{call}" in names for call in range(calls)) for number in range(len(failures))]
    assert set(counts) <= {0, calls}
    slowest = sorted(range(len(failures)), key=durations.__getitem__)[-5:]
    first = {*slowest, *(number for number, failed in enumerate(failures) if failed)}
    if any(count for number, count in enumerate(counts) if number not in first):
        assert all(counts[number] == calls for number in first)


@st.composite
def worlds(draw: st.DrawFn) -> list[Identity]:
    """Draw all ranks of a run: on nodes of any sizes, filled one after the other or in turn, as the launcher tells."""
    sizes = draw(st.lists(st.integers(1, 16), min_size=1, max_size=40))
    places = [(node, local) for node, size in enumerate(sizes) for local in range(size)]
    if draw(st.booleans()):
        places.sort(key=lambda place: place[1])
    world = Identity("r", 0, 0, len(places), None, "trainer", "host", 1, "i", owns_root=True, shared=True)
    ranks = [replace(world, rank=rank, owns_root=rank == 0) for rank in range(len(places))]
    told = draw(st.sampled_from(["nodes", "sizes", "nothing"]))
    if told == "nodes":
        return [
            replace(who, local_rank=local, node=node, nodes=len(sizes))
            for who, (node, local) in zip(ranks, places, strict=True)
        ]
    return [replace(who, local_size=sizes[0]) for who in ranks] if told == "sizes" else ranks


@given(st.integers(0, 20_000), worlds())
def test_quotas_are_never_more_than_the_budget(spans: int, ranks: list[Identity]) -> None:
    """Over all ranks the parts stay within the whole, at most sixteen send, and the owner has half or more."""
    parts = [quota(spans, who) for who in ranks]
    assert sum(parts) <= spans
    assert sum(part > 0 for part in parts) <= 16
    assert parts[0] * 2 >= spans
    assert len(ranks) > 1 or parts == [spans]
    if len(ranks) <= 16 and spans >= 30:
        assert all(parts)
    if ranks[0].node is not None and len(ranks) > 16:
        assert all(who.local_rank == 0 for who, part in zip(ranks, parts, strict=True) if part)


def test_quotas_of_a_few_worlds() -> None:
    """Half for the owner, equal parts for the others; of many ranks the first of each node, of many nodes some."""

    def parts(world: int, local: int | None = None, **more: Any) -> dict[int, int]:
        one = Identity("r", 0, 0, world, None, "trainer", "host", 1, "i", owns_root=True, shared=True, local_size=local)
        ranks = [replace(one, rank=rank, owns_root=rank == 0, **more) for rank in range(world)]
        return {who.rank: part for who in ranks if (part := quota(3200, who))}

    assert parts(1) == {0: 3200}
    assert parts(2) == {0: 1600, 1: 1600}
    assert parts(5) == {0: 1600, 1: 400, 2: 400, 3: 400, 4: 400}
    assert parts(32, 8) == {0: 1600, 8: 533, 16: 533, 24: 533}
    assert list(parts(512, 8)) == list(range(0, 512, 32))
    serving = Identity("r", 0, 0, 1, None, "generator", "host", 1, "i", owns_root=False, shared=True)
    assert quota(3200, serving) == 100
    assert quota(3200, replace(serving, world_size=8)) == 100
    rank = replace(serving, role="trainer", world_size=2, rank=1)
    assert (quota(3200, rank), quota(3200, rank.forked())) == (1600, 100)


PIECE = Writer(encoding_of("grpc"), {})(End(TRACE, b"s" * 8, b"", "", 0, 1, {}), 7)
spots = st.tuples(st.integers(0, 2**20), st.integers(0, 2**40 - 1), st.integers(0, 2**26))


@given(st.lists(st.tuples(spots, st.booleans()) | st.just(PIECE)))
def test_what_is_held_tells_where_it_is_and_how_large(helds: list[Any]) -> None:
    """Of a span that is not at hand one integer tells segment, offset and size; of one that is, it does itself."""
    refs, expected = Refs(), []
    for held in helds:
        if held is PIECE:
            refs.append(PIECE)
            expected.append((7, None, PIECE.size))
        else:
            (segment, offset, size), late = held
            spot = spot_of(at(segment, offset), size)
            refs.append(Joined(spot, (3,)) if late else spot)
            expected.append((segment, at(segment, offset), size))
    assert [size_of(held) for held in refs] == [size for _, _, size in expected]
    assert refs.size == sum(size for _, _, size in expected)
    assert refs.segments == {segment for segment, _, _ in expected}
    assert refs.places == {place for _, place, _ in expected if place is not None}


def test_the_default_budget_is_four_of_four_and_a_half_megabytes() -> None:
    """10,000 spans of 400 bytes live and 450 in all; fewer spans have bytes in proportion, down to what a few need."""
    assert (Budget.of(10_000).live, Budget.of(10_000).total) == (4_000_000, 4_500_000)
    assert (Budget.of(1000).live, Budget.of(1000).total) == (400_000, 450_000)
    assert (Budget.of(1).spans, Budget.of(1).live) == (1, 16_384)
    assert (Budget.of(0).spans, Budget.of(0).live, Budget.of(0).total) == (0, 0, 0)
