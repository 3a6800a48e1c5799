"""Texts from outside: broken ones, which lose nothing but themselves, and long ones, which nobody asked for."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace

import rl_otel
from rl_otel import _record, _values
from rl_otel.testing import capture
from tests.otlp import values
from tests.receiver import Receiver

if TYPE_CHECKING:
    from rl_otel.testing import Traces

HALF = "\ud83d"  # half an emoji, as truncated model output has it
WHOLE = "\U0001f600"
REPLACED = "\ufffd"
LONG = "x" * 2046 + WHOLE + "y" * 100_000  # the cut at 2048 bytes would go through the emoji


def test_one_broken_text_loses_no_span() -> None:
    """Of a hundred spans, of which one fails with half an emoji in its message, a hundred arrive."""
    with Receiver() as receiver, capture(endpoint=receiver.http) as traces:
        with rl_otel.rollout():
            for i in range(100):
                with contextlib.suppress(ValueError), rl_otel.generate():
                    if i == 50:
                        raise ValueError(f"cannot parse {HALF}")
        report = rl_otel.flush()

    assert (report.sent, report.dropped) == (101, 0)
    assert len(traces.all("generate")) == 100
    [failed] = [span for span in receiver.spans if span.proto.status.code == 2]
    assert failed.proto.status.message == f"ValueError: cannot parse {REPLACED}"
    assert values(failed.proto.events[0].attributes)["exception.message"] == f"cannot parse {REPLACED}"


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_a_broken_text_may_be_anywhere(protocol: str) -> None:
    """Names, keys, values, lists, ids, status, events, links and the resource: each keeps what can be kept."""
    resource = {"rl.model.name": f"model {HALF}"}
    with Receiver() as receiver:
        endpoint = receiver.grpc if protocol == "grpc" else receiver.http
        with capture(strict=False, endpoint=endpoint, protocol=protocol, resource=resource):
            _record_broken_texts()
            report = rl_otel.flush()
        spans = {span.name: span for span in receiver.spans}

    assert (report.sent, report.dropped) == (6, 0)
    phase = spans[f"score {REPLACED}"]
    assert phase.resource["rl.model.name"] == f"model {REPLACED}"
    assert phase.attributes["rl.phase"] == f"score {REPLACED}"
    assert phase.attributes[f"rl.custom.key {REPLACED}"] == [f"a {REPLACED}", "b"]
    assert (phase.proto.status.code, phase.proto.status.message) == (2, f"status {REPLACED}")
    assert phase.proto.events[0].name == f"event {REPLACED}"
    assert values(phase.proto.events[0].attributes) == {f"key {REPLACED}": REPLACED}
    assert values(phase.proto.links[0].attributes) == {f"key {REPLACED}": REPLACED}
    assert spans["trajectory"].attributes["rl.trajectory.id"] == f"task {REPLACED}/0"
    assert spans["generate"].attributes["gen_ai.request.model"] == f"model {REPLACED}"
    assert spans["generate"].attributes["gen_ai.response.finish_reasons"] == [REPLACED]
    assert spans["env.step"].attributes["rl.environment.name"] == f"env {REPLACED}"
    assert spans[f"foreign {REPLACED}"].attributes["key"] == REPLACED


def _record_broken_texts() -> None:
    with rl_otel.phase(f"score {HALF}") as phase:
        phase.record({f"key {HALF}": [f"a {HALF}", "b"]})
        phase.add_event(f"event {HALF}", {f"key {HALF}": HALF})
        phase.add_link(phase.get_span_context(), {f"key {HALF}": HALF})
        phase.set_status(trace.StatusCode.ERROR, f"status {HALF}")
    with rl_otel.rollout(), rl_otel.trajectory(group=f"task {HALF}"):
        with rl_otel.generate(model=f"model {HALF}") as generation:
            generation.record(finish_reason=HALF)
        with rl_otel.env_step(f"env {HALF}", tool=HALF):
            pass
        with trace.get_tracer("other").start_as_current_span(f"foreign {HALF}") as span:
            span.set_attribute("key", HALF)


def test_an_exception_that_cannot_be_told_is_recorded_by_its_type(traces: Traces) -> None:
    """An error whose text raises is the host's to see; its span has the type."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with pytest.raises(Broken), rl_otel.step(0):
        raise Broken

    step = traces.one("step")
    assert step.status == "error"
    assert step.attributes["error.type"].endswith("Broken")
    assert "without a message" in step.message


@given(st.text(st.characters(), max_size=40), st.integers(0, 60))
def test_any_text_becomes_valid_and_fits(text: str, limit: int) -> None:
    """Whatever a text holds, what is recorded is UTF-8 of at most the limit, and a valid text that fits is itself."""
    fitted = _values.text(text, limit)

    assert len(fitted.encode()) <= limit
    with contextlib.suppress(UnicodeEncodeError):
        data = text.encode()
        assert text.startswith(fitted)
        assert (fitted == text) == (len(data) <= limit)
        assert len(data) - len(fitted.encode()) <= max(len(data) - limit, 0) + 3


def test_two_halves_that_belong_together_are_one(traces: Traces) -> None:
    """A pair of surrogates, as JSON decoders leave it, is the emoji that it stands for."""
    with rl_otel.rollout(), rl_otel.trajectory(f"{HALF}\ude00"):
        pass

    assert traces.one("trajectory").attributes["rl.trajectory.id"] == WHOLE


# --- prompts and completions ------------------------------------------------------------------------------------------


def _record_texts() -> None:
    with rl_otel.rollout(), rl_otel.trajectory():
        with rl_otel.generate() as generation:
            generation.record(prompt="secret prompt", completion="secret completion", output_tokens=3)
        with rl_otel.env_step() as env_step:
            env_step.record(observation="secret observation", action="secret action")


def test_texts_are_dropped_unless_asked_for(traces: Traces) -> None:
    """Without a switch no prompt, completion, observation or action is in the journal, nor is the word refused."""
    _record_texts()

    assert traces.one("generate").attributes["gen_ai.usage.output_tokens"] == 3
    assert not any("secret" in repr(record) for record in traces.records)


@pytest.mark.parametrize(("variable", "argument"), [("1", None), (None, True), ("0", True)])
def test_texts_are_recorded_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, argument: bool | None
) -> None:
    """With `text=True` or RL_OTEL_TEXT=1 each text is there, with its length and hash."""
    if variable is not None:
        monkeypatch.setenv("RL_OTEL_TEXT", variable)
    with capture(**{} if argument is None else {"text": argument}) as traces:
        _record_texts()

    attributes = {**traces.one("generate").attributes, **traces.one("env.step").attributes}
    for word in ("prompt", "completion", "observation", "action"):
        text = f"secret {word}"
        assert attributes[f"rl.text.{word}"] == text
        assert attributes[f"rl.text.{word}.length"] == len(text)
        assert attributes[f"rl.text.{word}.sha256"] == hashlib.sha256(text.encode()).hexdigest()
        assert f"rl.text.{word}.truncated" not in attributes


def test_a_long_text_is_cut_between_characters() -> None:
    """Of 100 KB with an emoji at the cut, 2048 bytes of valid UTF-8 at most are recorded, and marked as cut."""
    attributes = _completion(LONG)

    assert attributes["rl.text.completion"] == "x" * 2046
    assert attributes["rl.text.completion.truncated"] is True
    assert attributes["rl.text.completion.length"] == len(LONG)
    assert attributes["rl.text.completion.sha256"] == hashlib.sha256(LONG.encode()).hexdigest()


@pytest.mark.parametrize("text", ["x" * 2048, "x" * 2044 + WHOLE, HALF + WHOLE, f"{HALF}\ude00"])
def test_a_text_that_fits_is_not_marked_as_cut(text: str) -> None:
    """Up to 2048 bytes a text is whole, and repairing a character does not make it a cut one."""
    attributes = _completion(text)

    assert attributes["rl.text.completion"] == _values.valid(text)
    assert "rl.text.completion.truncated" not in attributes


def test_every_other_text_is_cut_too() -> None:
    """An error message or a value of 100 KB takes 2048 bytes of the journal, not 100 KB."""
    with capture(strict=False) as traces, contextlib.suppress(ValueError), rl_otel.step(0) as step:
        step.record(note=LONG)
        raise ValueError(LONG)

    [end] = [record for record in traces.records if isinstance(record, _record.End)]
    assert end.attributes["rl.custom.note"] == "x" * 2046
    assert len(end.message.encode()) <= 2048 + len("ValueError: ")
    assert len(_record.encode(end)) < 8192


def _completion(text: str) -> dict[str, Any]:
    with capture(text=True) as traces, rl_otel.generate() as generation:
        generation.record(completion=text)
    return traces.one("generate").attributes
