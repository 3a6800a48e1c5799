"""The context on its way: what is written, what is believed, and where spans go under it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import rl_otel
from rl_otel import context
from rl_otel._budget import in_share
from tests import metrics

if TYPE_CHECKING:
    from rl_otel.testing import Traces

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def parts(carrier: Any) -> tuple[str, str, str]:
    """Return trace, span and flags of a carrier."""
    _, trace_id, span_id, flags = carrier["traceparent"].split("-")
    return trace_id, span_id, flags


def told(carrier: Any) -> dict[str, str]:
    """Return what our member of tracestate says."""
    member = next(each for each in carrier["tracestate"].split(",") if each.startswith("rl_otel="))
    version, *fields = member.removeprefix("rl_otel=").split(";")
    return {"version": version, **dict(field.split(":") for field in fields)}


def spell(kind: str = "trajectory", **fields: object) -> dict[str, str]:
    """Return a carrier of a span elsewhere."""
    more = "".join(f";{key}:{value}" for key, value in fields.items())
    return {"traceparent": PARENT, "tracestate": f"rl_otel=1;k:{kind}{more}"}


# --- inject -----------------------------------------------------------------------------------------------------------


def test_with_nothing_open_nothing_is_written(recording: None) -> None:
    """A carrier is as it was where no span is open."""
    headers = {"x": "y"}
    assert context.inject(headers) is headers
    assert headers == {"x": "y"}
    assert context.inject() == {}


def test_a_carrier_tells_what_a_child_has_to_know(traces: Traces) -> None:
    """Ids, step, kind of span, mode, policy version and its weight sync, and what the loop does, go along."""
    with rl_otel.step(12) as step:
        with rl_otel.weight_sync() as sync:
            sync.record(policy_version=7)
        with rl_otel.eval() as evaluation, rl_otel.trajectory("t"), rl_otel.generate() as generation:
            carrier = context.inject()
    assert parts(carrier)[:2] == (step.trace_id, generation.span_id)
    assert told(carrier) == {
        "version": "1",
        "k": "generate",
        "t": "1",
        "s": "12",
        "m": "eval",
        "v": "7",
        "w": f"{sync.trace_id}-{sync.span_id}",
        "p": "eval",
        **({} if parts(carrier)[2] == "01" else {"f": "1"}),
    }
    assert evaluation.attributes["rl.mode"] == "eval"


def test_our_member_stays_below_256_characters(traces: Traces) -> None:
    """However long names and numbers are, other services may keep what is ours."""
    most, least = 2**63 - 1, -(2**63)
    with rl_otel.step(least), rl_otel.weight_sync() as sync:
        sync.record(policy_version=most)
    for name in ("p" * 300, "Zwölf Boxkämpfer " * 10, "a,b=c;d:e"):
        with rl_otel.step(least), rl_otel.phase(name), rl_otel.eval(), rl_otel.trajectory():
            pass
        with rl_otel.step(least), rl_otel.phase(name):
            state = context.inject()["tracestate"]
            assert len(state) < 256
            assert state.isascii()
            with context.use({"traceparent": PARENT, "tracestate": state}), rl_otel.train():
                pass
    assert {span.attributes["rl.step"] for span in traces.all("train")} == {least}


def test_numbers_beyond_64_bits_go_along_as_the_nearest(traces: Traces) -> None:
    """A step or a policy version that no back end could take does not cost the child its place."""
    with rl_otel.step(10**30) as step, rl_otel.weight_sync() as sync:
        sync.record(policy_version=10**30)
    with rl_otel.step(10**30):
        carrier = context.inject()
    with context.use(carrier), rl_otel.generate():
        pass
    assert traces.one("generate").attributes["rl.policy.version"] == 2**63 - 1
    assert told(carrier)["s"] == told(carrier)["v"] == str(2**63 - 1)
    assert step.index == 2**63 - 1


def test_baggage_is_written_when_asked_alone(recording: None) -> None:
    """Run id and step go to whoever is called only where the caller says so, beside what is in the baggage."""
    with rl_otel.step(3):
        assert "baggage" not in context.inject()
        assert context.inject(baggage=True)["baggage"] == "rl.run.id=r1,rl.step=3"
        assert context.inject({"baggage": "a=b"}, baggage=True)["baggage"] == "a=b,rl.run.id=r1,rl.step=3"


def test_only_a_share_of_the_trajectories_asks_servers_for_their_spans(traces: Traces) -> None:
    """The sampled flag is that of the trajectory's share, for the calls in it and what they call in turn."""
    with rl_otel.step(0), rl_otel.rollout():
        for i in range(100):
            with rl_otel.trajectory(i) as trajectory, rl_otel.generate():
                carrier = context.inject()
                expected = "01" if in_share(bytes.fromhex(trajectory.span_id)) else "00"
                assert parts(carrier)[2] == expected
                with context.use(carrier):
                    assert parts(context.inject())[2] == expected
                    with rl_otel.env_step():
                        assert parts(context.inject())[2] == expected
    assert {record.flags for record in traces.records if hasattr(record, "flags")} == {1}


def test_at_most_two_thousand_calls_of_a_step_ask_for_spans(recording: None) -> None:
    """Calls that no trajectory is around are counted: what servers record is bounded in each step."""
    for i in range(2):
        with rl_otel.step(i), rl_otel.rollout(), rl_otel.generate():
            flags = [parts(context.inject())[2] for _ in range(2100)]
        assert flags == ["01"] * 2000 + ["00"] * 100


def test_a_step_that_is_not_sampled_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that the sampler leaves out goes on with flag 00, and so does what is opened under it elsewhere."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0), rl_otel.rollout():
        carrier = context.inject()
        assert parts(carrier)[2] == "00"
        assert "f" not in told(carrier)
    with context.use(carrier), rl_otel.trajectory() as trajectory:
        assert not trajectory.get_span_context().trace_flags.sampled


def test_a_span_of_another_library_is_injected_as_its_propagator_does(traces: Traces) -> None:
    """Where another library's trace is current, the carrier is what OpenTelemetry's propagator writes."""
    tracer = trace.get_tracer("theirs")
    with tracer.start_as_current_span("GET"):
        theirs: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(theirs)
        assert context.inject() == theirs
    with rl_otel.step(0), rl_otel.rollout() as rollout, tracer.start_as_current_span("inside ours") as inner:
        carrier = context.inject()
        assert parts(carrier)[:2] == (rollout.trace_id, f"{inner.get_span_context().span_id:016x}")
        assert told(carrier)["k"] == "rollout"


def test_a_carrier_that_takes_nothing_stops_nobody(recording: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping that cannot be written to is returned as it is."""
    monkeypatch.setattr("rl_otel._safety.strict", False)
    frozen = (("a", "b"),)
    with rl_otel.step(0):
        assert context.inject(frozen) is frozen


# --- use --------------------------------------------------------------------------------------------------------------


def test_spans_under_a_carrier_are_children_of_the_span_it_came_from(traces: Traces) -> None:
    """They are in its trace and step, and in its mode."""
    with rl_otel.step(4), rl_otel.eval() as evaluation:
        carrier = json.loads(json.dumps(context.inject()))
    with context.use(carrier), rl_otel.trajectory("t"), rl_otel.generate():
        pass
    assert traces.tree() == "step\n  eval\n    trajectory\n      generate"
    trajectory, generation = traces.one("trajectory"), traces.one("generate")
    assert trajectory.trace_id == evaluation.trace_id
    for span in (trajectory, generation):
        assert (span.attributes["rl.step"], span.attributes["rl.mode"]) == (4, "eval")


@pytest.mark.parametrize(
    "carrier",
    [
        spell(),
        {key.upper(): value for key, value in spell().items()},
        {key: [value] for key, value in spell().items()},
        [(key.encode(), value.encode()) for key, value in spell().items()],
        {key.encode(): value.encode() for key, value in spell().items()},
        {"Host": "x", "Traceparent": PARENT, "TraceState": "rl_otel=1;k:trajectory", 7: object()},
    ],
)
def test_carriers_come_in_many_shapes(traces: Traces, carrier: Any) -> None:
    """Headers in any case, with lists as values or bytes as in ASGI, and variables of an environment are read alike."""
    with context.use(carrier), rl_otel.generate():
        pass
    generation = traces.one("generate")
    assert (generation.trace_id, generation.parent_id) == (TRACE, SPAN)


def test_headers_of_real_libraries_are_read(traces: Traces) -> None:
    """What the standard library parses of a request is a carrier."""
    from email.parser import Parser

    headers = Parser().parsestr("".join(f"{key.title()}: {value}\r\n" for key, value in spell().items()))
    with context.use(headers), rl_otel.generate():
        pass
    assert traces.one("generate").parent_id == SPAN


@pytest.mark.parametrize(
    ("carrier", "why"),
    [
        ({"traceparent": PARENT[:-1]}, "torn"),
        ({"traceparent": ""}, "torn"),
        ({"traceparent": PARENT.upper()}, "torn"),
        ({"traceparent": "01" + PARENT[2:]}, "another version"),
        ({"traceparent": "ff" + PARENT[2:]}, "another version"),
        ({"traceparent": PARENT + "-more"}, "another version"),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, "zero"),
        ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, "zero"),
        ({"traceparent": PARENT + "\r\nX-Evil: 1"}, "control"),
        ({"traceparent": [PARENT, PARENT.replace("b7", "b8")]}, "several"),
        ({"traceparent": 17}, "no text"),
        ({"traceparent": PARENT, "tracestate": "a=b\r\nc=d"}, "control"),
        ({"traceparent": PARENT, "tracestate": "a=" + "x" * 9000}, "more than"),
        ({"traceparent": PARENT, "baggage": "x" * 10_000_000}, "more than"),
        ({"Traceparent": PARENT.encode(), b"BAGGAGE": b"x" * 10_000_000}, "more than"),
        ({"traceparent": PARENT, "tracestate": "rl_otel=2;k:step"}, "version of rl_otel"),
        ({"traceparent": PARENT, "tracestate": "rl_otel=1;k:nonsense"}, "torn"),
        ({"traceparent": PARENT, "tracestate": "rl_otel=1"}, "torn"),
        (spell(s="1" * 30), "torn"),
        (spell(s="9" * 19), "64 bits"),
        (spell(s=1, n=0), "torn"),
        (spell(w=f"{'0' * 32}-{SPAN}"), "zero"),
        (spell(w="abc"), "torn"),
        (spell(m="train"), "torn"),
        ({"traceparent": PARENT, "tracestate": "rl_otel=1;k:step,rl_otel=1;k:step"}, "several"),
        (17, "cannot be read"),
        ("traceparent", "cannot be read"),
    ],
)
def test_a_carrier_that_is_wrong_is_ignored_whole(
    traces: Traces, caplog: pytest.LogCaptureFixture, carrier: Any, why: str
) -> None:
    """What runs under it is a trace of its own, and one line says why, without a word of the carrier's."""
    with caplog.at_level(logging.WARNING, "rl_otel"):
        assert context.extract(carrier) is None
        with context.use(carrier), rl_otel.trajectory("t"):
            pass
    assert traces.one("trajectory").parent_id == ""
    [line] = caplog.messages
    assert why in line
    assert "Evil" not in line


def test_a_carrier_that_is_not_even_an_object_is_ignored(recording: None, caplog: pytest.LogCaptureFixture) -> None:
    """Proxies of web frameworks raise where no request is, whatever they are asked."""

    class Unbound:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("working outside of a request")

    with context.use(Unbound()):
        assert context.extract(Unbound()) is None
    [line] = caplog.messages
    assert "cannot be read" in line


def test_wrong_carriers_are_counted_in_one_line_a_minute(
    recording: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is flooded with them says so once a minute, and how many there were."""
    clock = [1000.0]
    monkeypatch.setattr("rl_otel._safety.time.monotonic", lambda: clock[0])
    for _ in range(50):
        context.extract({"traceparent": "x"})
    clock[0] += 61
    context.extract({"traceparent": "x"})
    assert len(caplog.messages) == 2
    assert all(re.search(r"is ignored, [0-9]+ so far: its traceparent is torn", line) for line in caplog.messages)
    assert "49 more like this" in caplog.messages[1]


@pytest.mark.parametrize("carrier", [None, {}, {"x": "y"}, []])
def test_a_carrier_that_tells_nothing_changes_nothing(
    traces: Traces, caplog: pytest.LogCaptureFixture, carrier: Any
) -> None:
    """A request without a context is an ordinary one: no line, and what is open here stays around."""
    with rl_otel.step(0), rl_otel.rollout(), context.use(carrier), rl_otel.generate():
        assert context.extract(carrier) is None
    assert traces.tree() == "step\n  rollout\n    generate"
    assert caplog.messages == []


def test_members_of_others_go_on(traces: Traces) -> None:
    """What other vendors have in tracestate is handed on by spans of ours inside, behind ours."""
    carrier = spell()
    carrier["tracestate"] = f"a=1, {carrier['tracestate']},b@c=2"
    with context.use(carrier):
        assert context.inject()["tracestate"].endswith(",a=1,b@c=2")
        with rl_otel.generate():
            assert context.inject()["tracestate"].endswith(",a=1,b@c=2")
            theirs: dict[str, str] = {}
            with trace.get_tracer("theirs").start_as_current_span("GET"):
                TraceContextTextMapPropagator().inject(theirs)
            assert theirs["traceparent"].split("-")[1] == TRACE


def test_a_parent_that_is_not_ours_is_a_parent_too(traces: Traces) -> None:
    """Under a carrier of another library spans are in its trace; a step stays a root, and links to it."""
    with context.use({"traceparent": PARENT, "tracestate": "a=1"}):
        with rl_otel.generate():
            pass
        with rl_otel.step(0):
            pass
    assert traces.one("generate").parent_id == SPAN
    step = traces.one("step")
    assert step.parent_id == ""
    assert [(link.trace.hex(), link.span.hex()) for link in step.links] == [(TRACE, SPAN)]


def test_spans_of_other_libraries_are_children_of_the_remote_span(traces: Traces) -> None:
    """A server's own instrumentation under a carrier is in the same place as ours."""
    with context.use(spell()), trace.get_tracer("theirs").start_as_current_span("query"):
        pass
    assert (traces.one("query").trace_id, traces.one("query").parent_id) == (TRACE, SPAN)


def test_a_carrier_within_a_carrier(traces: Traces) -> None:
    """The innermost counts; when it is left, the one around it does."""
    inner = {"traceparent": PARENT.replace("b7ad", "b7ae"), "tracestate": "rl_otel=1;k:trajectory;s:2"}
    with context.use(spell(s=1)):
        with context.use(inner), rl_otel.generate():
            pass
        with rl_otel.env_step():
            pass
    assert (traces.one("generate").parent_id[:4], traces.one("generate").attributes["rl.step"]) == ("b7ae", 2)
    assert (traces.one("env.step").parent_id[:4], traces.one("env.step").attributes["rl.step"]) == ("b7ad", 1)


def test_use_decorates_functions_of_every_kind(traces: Traces) -> None:
    """Each call of a function, coroutine, generator or async generator runs under the carrier."""
    carrier = spell()

    @context.use(carrier)
    def plain() -> None:
        with rl_otel.env_step("plain"):
            pass

    @context.use(carrier)
    async def coroutine() -> None:
        with rl_otel.env_step("coroutine"):
            pass

    @context.use(carrier)
    def generator() -> Any:
        with rl_otel.env_step("generator"):
            yield 1

    @context.use(carrier)
    async def async_generator() -> Any:
        with rl_otel.env_step("async generator"):
            yield 1

    async def both() -> None:
        await coroutine()
        assert [each async for each in async_generator()] == [1]

    plain()
    for _ in generator():
        with rl_otel.env_step("consumer"):
            pass
    asyncio.run(both())
    parents = {span.attributes["rl.environment.name"]: span.parent_id for span in traces.all("env.step")}
    assert parents.pop("consumer") == ""
    assert parents == dict.fromkeys(["plain", "coroutine", "generator", "async generator"], SPAN)


def test_a_decorator_without_brackets_is_refused() -> None:
    """`@use` above a function is a mistake that is found where it is written."""
    with pytest.raises(TypeError, match=r"context\.use"):

        @context.use
        def function() -> None:
            raise AssertionError


async def test_tasks_at_once_each_have_their_carrier(traces: Traces) -> None:
    """A hundred requests at once in one loop, each under a carrier of its own: none is mixed up."""

    async def serve(i: int) -> None:
        carrier = {"traceparent": f"00-{TRACE}-{i + 1:016x}-01", "tracestate": f"rl_otel=1;k:trajectory;s:{i}"}
        with context.use(carrier):
            await asyncio.sleep(0)
            with rl_otel.env_step():
                await asyncio.sleep(0)

    await asyncio.gather(*map(serve, range(100)))
    found = {span.attributes["rl.step"]: int(span.parent_id, 16) for span in traces.all("env.step")}
    assert found == {i: i + 1 for i in range(100)}


def test_raw_threads_under_a_carrier_are_never_under_a_wrong_one(traces: Traces) -> None:
    """A thread that was not told is a trace of its own; one that enters the carrier itself is in its trace."""
    carrier = spell(s=5)

    def told_itself() -> None:
        with context.use(carrier), rl_otel.env_step("told"):
            pass

    def not_told() -> None:
        with rl_otel.env_step("not told"):
            pass

    with context.use(carrier):
        threads = [threading.Thread(target=each) for each in (told_itself, told_itself, not_told, not_told)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    parents = sorted((span.attributes["rl.environment.name"], span.parent_id) for span in traces.all("env.step"))
    assert parents == [("not told", "")] * 2 + [("told", SPAN)] * 2


def test_one_handle_that_is_entered_twice_ends_where_it_is_entered_again(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    """One inside itself is left when it is entered anew, with a line; used in a row it is a place each time."""
    place = context.use(spell())
    with place, place, rl_otel.env_step("inside"):
        pass
    with rl_otel.env_step("left"):
        pass
    with place, rl_otel.env_step("again"):
        pass
    parents = {span.attributes["rl.environment.name"]: span.parent_id for span in traces.all("env.step")}
    assert parents == {"inside": SPAN, "left": "", "again": SPAN}
    assert caplog.messages == ["rl_otel: context.use entered twice; make a new one for each `with`"]


def test_a_generator_that_is_left_open_does_not_keep_its_carrier_current(traces: Traces) -> None:
    """A generator with `use` inside that is closed in another context lets go of it all the same."""
    import contextvars

    def endless() -> Any:
        with context.use(spell()):
            while True:
                yield

    generator = endless()
    next(generator)
    contextvars.copy_context().run(generator.close)
    with rl_otel.env_step():
        pass
    assert traces.one("env.step").parent_id == ""


# --- places and figures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "opener"),
    [
        ("step", rl_otel.train),
        ("step", rl_otel.rollout),
        ("train", lambda: rl_otel.phase("mine")),
        ("phase", rl_otel.optimizer),
        ("rollout", rl_otel.trajectory),
        ("eval", rl_otel.generate),
        ("trajectory", rl_otel.env_step),
        ("trajectory", rl_otel.reward),
        ("env.step", lambda: rl_otel.generate(purpose="judge")),
    ],
)
def test_a_span_in_its_place_is_so_under_a_carrier(
    traces: Traces, caplog: pytest.LogCaptureFixture, kind: str, opener: Any
) -> None:
    """What belongs into a span of that kind is opened under a carrier of it without a word."""
    with context.use(spell(kind, s=1)), opener() as span:
        pass
    assert next(each for each in traces.spans if each.span_id == span.span_id).parent_id == SPAN
    assert caplog.messages == []


def test_a_span_out_of_place_is_told_under_a_carrier_too(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A phase inside a trajectory of another process is as wrong as inside one of this."""
    with context.use(spell("trajectory")), rl_otel.train():
        pass
    assert "train was opened directly inside trajectory" in caplog.text


def test_parts_of_a_remote_trajectory_are_no_phases(traces: Traces) -> None:
    """A reward under a carrier of a trajectory, or of a call in it, is a part of that; under a step it is a phase."""
    for carrier in (spell("trajectory"), spell("env.step", t=1)):
        with context.use(carrier), rl_otel.reward():
            pass
    with context.use(spell("step", s=1)), rl_otel.reward():
        pass
    assert ["rl.phase" in span.attributes for span in traces.all("reward")] == [False, False, True]


def test_turns_of_a_trajectory_elsewhere_are_not_guessed(traces: Traces) -> None:
    """Calls under a carrier of a trajectory have no turn, for only its own process counts them."""
    for _ in range(2):
        with context.use(spell("trajectory")):
            with rl_otel.generate():
                pass
            with rl_otel.env_step():
                pass
    assert not any("rl.turn" in span.attributes for span in traces.spans)


def test_nothing_gathers_under_a_carrier_that_stays(traces: Traces) -> None:
    """A server that works under one carrier for ever keeps nothing of what it has recorded."""
    with context.use(spell("trajectory", s=1)) as place:
        for _ in range(10):
            with rl_otel.trajectory(), rl_otel.generate() as generation:
                generation.record(output_tokens=3, policy_version=2)
            with rl_otel.generate():
                pass
        gathering, books = place.gathering, place.step
    assert not any((gathering.children, gathering.tokens, gathering.versions, gathering.trajectories))
    assert not any((books.phases, books.trajectories))


def test_what_is_open_elsewhere_is_not_current_here(traces: Traces) -> None:
    """`current` finds what can be recorded on in this process, else an object that takes everything."""
    with context.use(spell("step", s=1)):
        assert not rl_otel.current("step")
        assert not rl_otel.current()
        rl_otel.current("step").record(loss=1.0)
        with rl_otel.train() as train:
            assert rl_otel.current() is train


def test_the_policy_of_a_carrier_is_that_of_the_calls_under_it(traces: Traces) -> None:
    """A process that syncs no weights itself takes the version from carriers, and never an older one."""
    for version in (3, 5, 4):
        with context.use(spell("rollout", s=1, v=version)), rl_otel.generate():
            pass
    with rl_otel.weight_sync() as sync:
        sync.record(policy_version=1)
    with context.use(spell("rollout", s=1, v=9)), rl_otel.generate():
        pass
    assert [span.attributes["rl.policy.version"] for span in traces.all("generate")] == [3, 5, 5, 1]


# --- steps ------------------------------------------------------------------------------------------------------------


def test_a_step_of_the_carriers_step_joins_that_opening(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """It is a child of the root that the carrier's process opened, the second opening if the carrier says so."""
    with rl_otel.step(3) as first:
        pass
    with rl_otel.step(3) as second, rl_otel.rollout():
        carrier = context.inject()
    assert told(carrier)["n"] == "2"
    caplog.clear()  # of what is said of a number that comes again; a step that joins is none
    with context.use(carrier), rl_otel.step(3) as joined:
        pass
    assert len({first.trace_id, second.trace_id}) == 2
    assert joined.trace_id == second.trace_id
    found = next(span for span in traces.all("step") if span.span_id == joined.span_id)
    assert (found.parent_id, found.links, found.attributes["rl.step"]) == (second.span_id, [], 3)
    assert caplog.messages == []


def test_another_step_under_a_carrier_is_a_root(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A step is always a root; it links to the span that it was started from."""
    with rl_otel.step(3) as step:
        carrier = context.inject()
    with context.use(carrier), rl_otel.step(4) as other:
        pass
    found = next(span for span in traces.all("step") if span.span_id == other.span_id)
    assert found.parent_id == ""
    assert [link.span.hex() for link in found.links] == [step.span_id]
    assert caplog.messages == []


def test_a_trajectory_that_ends_under_a_carrier_is_counted_here(recording: None) -> None:
    """Metrics of a trajectory come from the process in which it ran."""
    from rl_otel import _runtime

    with context.use(spell("rollout", s=1)), rl_otel.trajectory("t"):
        pass
    runtime = _runtime.active
    assert runtime is not None
    assert runtime.meter is not None
    assert rl_otel.flush().kept == 1


def test_a_call_that_both_sides_record_is_counted_by_its_caller(recording: None) -> None:
    """The server's span of a step is in the trace, and in no metric: the step would count twice. Others count."""
    call = spell("env.step", t=1)
    with context.use(call), rl_otel.env_step("maze"), rl_otel.generate(purpose="judge") as judge:
        judge.record(output_tokens=3)
    with context.use(spell("trajectory")), rl_otel.env_step("maze"):
        pass
    with context.use(spell("generate", t=1)), rl_otel.generate() as generation:
        generation.record(output_tokens=5)
    counted = metrics.now()
    assert sum(point.proto.count for point in counted["rl.env.step.duration"]) == 1
    assert sum(point.proto.count for point in counted["rl.generate.duration"]) == 1
    assert [point.value for point in counted["rl.tokens"]] == [3]


# --- without configure() ----------------------------------------------------------------------------------------------


def test_a_process_that_records_nothing_hands_a_context_on() -> None:
    """Between two that record, one that does not passes on what it got."""
    carrier = spell("rollout", s=1)
    with context.use(carrier), rl_otel.generate():
        assert context.inject() == carrier


def test_the_module_is_an_attribute_and_can_be_imported() -> None:
    """`rl_otel.context` and `import rl_otel.context` are the same module."""
    import rl_otel.context as imported

    assert imported is rl_otel.context is context
