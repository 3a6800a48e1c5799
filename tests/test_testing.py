"""The capture for users' own tests: what it hands back, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace

import rl_otel
from rl_otel import _safety
from rl_otel.testing import Recorded, capture

if TYPE_CHECKING:
    from rl_otel.testing import Traces


def play(i: int) -> None:
    """Train for a step: what a user's own code does."""
    with rl_otel.step(i) as step:
        with rl_otel.rollout(), rl_otel.trajectory(group="task", sample=0) as trajectory:
            with rl_otel.generate(model="tiny"):
                pass
            trajectory.record(reward=1.0)
        with rl_otel.train():
            pass
        step.record(loss=0.5)


def test_two_captures_at_once_are_an_error() -> None:
    """One inside another, or after `configure()`, is refused with the way out, and the outer one goes on."""
    with capture() as outer:
        with pytest.raises(RuntimeError, match=r"call rl_otel\.shutdown\(\) before capture\(\)"), capture():
            pass
        with rl_otel.step(0):
            pass

    assert [span.name for span in outer.spans] == ["step"]


def test_no_span_of_a_name_is_an_error_that_shows_what_there_is(traces: Traces) -> None:
    """`one` finds exactly one; else the message has the tree of all that was recorded."""
    play(0)

    with pytest.raises(AssertionError, match="0 spans are named 'trian'; recorded were:\nstep\n  rollout\n"):
        traces.one("trian")
    play(1)
    with pytest.raises(AssertionError, match="2 spans are named 'step'"):
        traces.one("step")


def test_it_hands_back_whole_spans(traces: Traces) -> None:
    """A span has its name, ids, times, attributes, status, events and links, and its children."""
    with contextlib.suppress(ValueError), rl_otel.step(3) as step:
        with rl_otel.train() as train:
            train.record(minibatch=1)
            train.add_link(step.get_span_context(), {"why": "test"})
        raise ValueError("diverged")

    recorded = traces.one("step")
    assert (recorded.trace_id, recorded.span_id, recorded.parent_id) == (step.trace_id, step.span_id, "")
    assert (recorded.status, recorded.message) == ("error", "ValueError: diverged")
    assert [event.name for event in recorded.events] == ["exception"]
    assert recorded.duration == recorded.end - recorded.start > 0
    [child] = recorded.children
    assert child == traces.one("train")
    assert (child.parent_id, child.status, child.message) == (step.span_id, "unset", "")
    assert child.attributes == {"rl.step": 3, "rl.phase": "train", "rl.minibatch.index": 1}
    assert [(link.span.hex(), link.attributes) for link in child.links] == [(step.span_id, {"why": "test"})]


def test_it_shows_the_trace_as_a_tree(traces: Traces) -> None:
    """The tree has one name a line, beneath its parent, by start; roots are at the edge."""
    play(0)
    with rl_otel.checkpoint():
        pass

    expected = ["step", "  rollout", "    trajectory", "      generate", "  train", "checkpoint"]
    assert traces.tree().splitlines() == expected
    assert [span.name for span in traces.roots] == ["step", "checkpoint"]
    assert [span.name for span in traces.all("train")] == ["train"]
    assert traces.all("nothing") == []


def test_it_grows_while_the_test_goes_on(traces: Traces) -> None:
    """Each look is a new one; what is still open is not there yet."""
    with rl_otel.step(0):
        with rl_otel.train():
            pass
        assert [span.name for span in traces.spans] == ["train"]

    assert [span.name for span in traces.spans] == ["step", "train"]


def test_spans_of_other_libraries_are_in_it(traces: Traces) -> None:
    """What a library records through OpenTelemetry inside a span of ours is its child, and marked."""
    with rl_otel.step(0), trace.get_tracer("httpx").start_as_current_span("GET"):
        pass

    assert traces.one("GET").foreign
    assert not traces.one("step").foreign
    assert traces.one("step").children == [traces.one("GET")]


def test_it_can_be_asked_when_it_is_over() -> None:
    """The journal is gone then, the spans are not."""
    with capture() as traces:
        play(0)

    assert not traces.folder.exists()
    assert traces.tree().splitlines()[0] == "step"
    assert isinstance(traces.one("train"), Recorded)


def test_it_leaves_nothing_behind() -> None:
    """Neither a file, nor the strictness, nor a runtime: after it every call is a no-op again."""
    before = _safety.strict, _safety.strict_words
    with contextlib.suppress(ValueError), capture() as traces:
        play(0)
        raise ValueError("of the test")

    assert (_safety.strict, _safety.strict_words) == before
    assert list(Path().iterdir()) == []
    with rl_otel.step(1) as step:
        assert not step.recording
    assert len(traces.all("step")) == 1


def test_code_that_configures_itself_is_captured_too(caplog: pytest.LogCaptureFixture) -> None:
    """The training script under test calls `configure()`: the capture's settings stay, and one line says so."""
    with capture() as traces:
        rl_otel.configure("grpo", run_dir="elsewhere")
        play(0)
        assert rl_otel.shutdown().dropped == 0

    assert len(traces.all("step")) == 1
    assert not Path("elsewhere").exists()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_settings_go_to_configure() -> None:
    """`capture` takes what `configure` takes, and a wrong argument is the same error."""
    with capture(service_name="grpo", resource={"rl.system": "trl"}) as traces:
        play(0)
    with pytest.raises(ValueError, match="protocol"), capture(protocol="smoke"):
        pass

    process = traces.records[0]
    assert (process.resource["service.name"], process.resource["rl.system"]) == ("grpo", "trl")  # type: ignore[union-attr]


def test_a_saved_rollout_leads_back_to_its_spans(traces: Traces) -> None:
    """Ids dumped beside saved rollouts find exactly the spans of the one that is picked: its turns and no others."""
    saved = []
    for i in range(2):
        with rl_otel.step(i), rl_otel.rollout():
            for k in range(3):
                with rl_otel.trajectory(group=f"task-{i}", sample=k) as trajectory:
                    for _ in range(k + 1):
                        with rl_otel.generate():
                            pass
                        with rl_otel.env_step("swe"):
                            pass
                ids = {"id": trajectory.id, "trace_id": trajectory.trace_id, "span_id": trajectory.span_id}
                saved.append(json.dumps({"text": "...", **ids}))

    picked = json.loads(saved[4])
    [found] = [span for span in traces.spans if span.span_id == picked["span_id"]]
    assert picked["id"] == "task-1/1" == found.attributes["rl.trajectory.id"]
    assert (found.name, found.trace_id, found.attributes["rl.step"]) == ("trajectory", picked["trace_id"], 1)
    assert [(child.name, child.attributes["rl.turn"]) for child in found.children] == [
        ("generate", 1), ("env.step", 1), ("generate", 2), ("env.step", 2),
    ]  # fmt: skip
    by_id = [span for span in traces.all("trajectory") if span.attributes["rl.trajectory.id"] == picked["id"]]
    assert by_id == [found]
    assert len({json.loads(line)["span_id"] for line in saved}) == 6
