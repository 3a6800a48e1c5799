"""What of a large step is sent as the run goes on."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rl_otel
from rl_otel import _cli, semconv
from rl_otel._budget import Measure
from rl_otel._otlp import encoding_of
from rl_otel._record import End, Event, Foreign, Link
from rl_otel._ship import plan
from rl_otel._terminal import command
from tests.receiver import Receiver
from tests.shipping import arrived, copied, names, play, play_step, ship

pytestmark = pytest.mark.usefixtures("look_often")


def configure(receiver: Receiver, budget: int) -> None:
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run", trace_budget=budget)


@pytest.mark.once
def test_a_large_step_arrives_within_its_budget(receiver: Receiver) -> None:
    """Of 41,000 spans as many go as the back end opens, the slowest whole, and the totals are those of all."""
    configure(receiver, 3000)
    play_step(0, 512, 40)
    done = rl_otel.shutdown(timeout=60)
    total = 512 * 81 + 2
    assert (done.sent + done.kept, done.pending, done.dropped) == (total, 0, 0)
    assert done.sent == len(receiver.spans) <= 3000
    assert sum(len(request.body) for request in receiver.requests) <= 3000 * 400
    (rollout,) = [span for span in receiver.spans if span.name == "rollout"]
    said = rollout.attributes
    assert said[semconv.ROLLOUT_TRAJECTORIES] == 512
    assert said["rl.rollout.output_tokens"] == 512 * 40 * 20
    assert (said[semconv.ROLLOUT_SPANS_SHOWN], said[semconv.ROLLOUT_SPANS_KEPT]) == (done.sent - 2, done.kept)
    inside = {link.span_id: 0 for link in rollout.proto.links}
    assert len(inside) == 5
    for span in receiver.spans:
        if span.proto.parent_span_id in inside:
            inside[span.proto.parent_span_id] += 1
    assert set(inside.values()) == {80}


def test_a_small_step_arrives_whole(receiver: Receiver) -> None:
    """What fits is sent, each span once, and nothing is kept."""
    configure(receiver, 10_000)
    play_step(0, 8, 5)
    assert rl_otel.shutdown() == rl_otel.Delivery(sent=90)
    assert len(arrived(receiver)) == 90
    assert names(receiver) == {"step": 1, "rollout": 1, "trajectory": 8, "generate": 40, "env.step": 40}


def test_counts_add_up_at_every_moment(receiver: Receiver) -> None:
    """Ended is sent, pending, kept and dropped, also where nothing is decided yet."""
    configure(receiver, 100)
    with rl_otel.step(0), rl_otel.rollout():
        for group in range(30):
            play(group, 5)
            now = rl_otel.flush(timeout=60 if group % 10 == 0 else 0)
            assert now.sent + now.pending + now.kept + now.dropped == 11 * (group + 1)
            assert now.pending >= 10
    done = rl_otel.shutdown()
    assert (done.sent + done.kept, done.pending) == (332, 0)
    assert done.sent == len(arrived(receiver)) <= 100


def test_a_flush_does_not_wait_for_what_is_not_decided(receiver: Receiver) -> None:
    """Detail of a rollout that runs on is pending, and no reason to wait."""
    configure(receiver, 10_000)
    with rl_otel.step(0), rl_otel.rollout():
        play(0, 5)
        assert rl_otel.flush(timeout=60) == rl_otel.Delivery(sent=1, pending=10)


def test_the_temporary_folder_stays_where_something_was_kept(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has what the budget left out, and one line says where and how to send it; one that has nothing goes."""
    for budget, left in ((10_000, 0), (30, 1)):
        rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_id=f"run{budget}", trace_budget=budget)
        play_step(0, 8, 5)
        done = rl_otel.shutdown()
        assert bool(done.kept) == bool(left)
        assert len(list((tmp_path / "scratch").glob(f"rl-otel-*/run{budget}/*.journal"))) == left
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(f"rl_otel: {done.folder} has what was not sent: 0 spans pending, {done.kept} kept back, ")
    assert line.endswith(f"0 dropped; to send it: {command('ship', done.folder, '--all')}")
    assert _cli.main([*shlex.split(line)[-3:], "--force", "--endpoint", receiver.http]) == 0
    assert len(arrived(receiver)) == 2 * 90


@pytest.mark.once
@pytest.mark.parametrize("room", [0, 10_000, 4_000_000])
def test_a_replay_decides_alike(receiver: Receiver, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another reader of the same journal sends the same spans, byte for byte, whatever the first had in memory."""
    monkeypatch.setattr(plan, "_ROOM", room)
    configure(receiver, 300)
    for index in range(3):
        play_step(index, 40, 5)
    rl_otel.shutdown()
    folder = copied(Path("runs/run"), "copy")
    with Receiver() as other:
        assert ship(folder, other) == 0
        assert arrived(other) == arrived(receiver)


# --- Sizes ------------------------------------------------------------------------------------------------------------

_TIMES = st.integers(1_500_000_000_000_000_000, 2**62)
_TEXTS = st.text(max_size=300) | st.text(st.characters(codec="utf-8"), min_size=110, max_size=140)
_VALUES = st.one_of(
    _TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.lists(st.text(max_size=140), max_size=40),
    st.lists(st.integers(-5, 2**40), max_size=8),
    st.none(),
)
_ATTRIBUTES = st.dictionaries(st.text(max_size=140), _VALUES, max_size=12)
_IDS = st.just(b"t" * 16), st.just(b"s" * 8), st.sampled_from((b"", b"p" * 8))
_SPAN = (
    *_IDS,
    st.text(max_size=140),
    _TIMES,
    _TIMES,
    _ATTRIBUTES,
    st.just(1),
    st.integers(0, 2),
    st.text(max_size=140),
)
_LINKS = st.lists(st.builds(Link, st.just(b"t" * 16), st.just(b"s" * 8), _ATTRIBUTES), max_size=1)
_EVENTS = st.lists(st.builds(Event, st.text(max_size=9), _TIMES, _ATTRIBUTES), max_size=1)
_SPANS = st.builds(End, *_SPAN, _LINKS, _EVENTS) | st.builds(Foreign, *_SPAN, _LINKS, _EVENTS, st.integers(1, 5))


@given(_SPANS)
def test_a_size_is_never_below_the_real_one(span: End | Foreign) -> None:
    """What a span is taken to cost covers what it takes in a request, whatever is on it."""
    size = Measure({})(span)
    encoded = len(encoding_of("grpc").encode_span(span))
    assert size >= encoded + 1 + len(f"{encoded:b}") // 7 + 1


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_size_is_near_the_real_one(reason: str) -> None:
    """An ordinary span is not taken for much more than it is."""
    words = {"rl.step": 3, "rl.turn": 17, "gen_ai.request.model": "qwen3-8b", "gen_ai.usage.input_tokens": 2345}
    attributes = {**words, "gen_ai.usage.output_tokens": 345, "gen_ai.response.finish_reasons": [reason]}
    moment = 1_700_000_000_000_000_000
    span = End(b"t" * 16, b"s" * 8, b"p" * 8, "generate", moment, moment + 1, attributes)
    size = Measure({})(span)
    assert size <= 1.1 * len(encoding_of("grpc").encode_span(span))
