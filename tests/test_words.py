"""The words of `record()`: each becomes the attribute that the page of words says, of exactly that type."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

import rl_otel
from rl_otel import _safety, semconv
from rl_otel.testing import capture

if TYPE_CHECKING:
    from rl_otel.testing import Traces

#: Span name -> the openers around it and itself.
OPENERS = {
    "step": ["step"],
    "rollout": ["step", "rollout"],
    "eval": ["step", "eval"],
    "trajectory": ["step", "rollout", "trajectory"],
    "generate": ["step", "rollout", "trajectory", "generate"],
    "env.step": ["step", "rollout", "trajectory", "env_step"],
    "env.reset": ["step", "rollout", "trajectory", "env_reset"],
    "train": ["step", "train"],
    "weight_sync": ["step", "weight_sync"],
}

#: Span, word, what is given, attribute, what is recorded.
WORDS: list[tuple[str, str, Any, str, Any]] = [
    ("step", "loss", -0.0036, "rl.loss", -0.0036),
    ("step", "loss", 2, "rl.loss", 2.0),
    ("step", "reward", 0.075, "rl.reward.mean", 0.075),
    ("step", "samples", 160, "rl.samples", 160),
    ("step", "epoch", 1, "rl.epoch", 1.0),
    ("step", "optimizer_steps", 8, "rl.optimizer.steps", 8),
    ("step", "optimizer_steps", 8.0, "rl.optimizer.steps", 8),
    ("step", "kl", 0.01, "rl.kl", 0.01),
    ("step", "entropy", 1.5, "rl.entropy", 1.5),
    ("step", "grad_norm", 0.9, "rl.grad_norm", 0.9),
    ("step", "lr", 1e-6, "rl.lr", 1e-6),
    ("rollout", "rewards", [0, 1, 0.5], "rl.reward.mean", 0.5),
    ("rollout", "rewards", [0, 1, 0.5], "rl.reward.min", 0.0),
    ("rollout", "rewards", [0, 1, 0.5], "rl.reward.max", 1.0),
    ("rollout", "rewards", [[0, 1], [2, None]], "rl.reward.mean", 1.0),
    ("rollout", "rewards", 0.25, "rl.reward.mean", 0.25),
    ("rollout", "trajectories", 512, "rl.rollout.trajectories", 512),
    ("rollout", "dropped", {"zero_variance": 8, "stale": 2}, "rl.trajectories.dropped.zero_variance", 8),
    ("rollout", "dropped", {"zero_variance": 8, "stale": 2}, "rl.trajectories.dropped.stale", 2),
    ("step", "dropped", {"stale": 2}, "rl.trajectories.dropped.stale", 2),
    ("step", "dropped", {"stale": ["a", ("b", 2, 1), 7]}, "rl.trajectories.dropped.stale", 3),
    ("rollout", "dropped", {"overlong": {"a"}}, "rl.trajectories.dropped.overlong", 1),
    ("rollout", "dropped", 3, "rl.trajectories.dropped.unknown", 3),
    ("eval", "rewards", [0.25, 0.75], "rl.reward.mean", 0.5),
    ("eval", "trajectories", 64, "rl.rollout.trajectories", 64),
    ("eval", "dropped", {"error": 1}, "rl.trajectories.dropped.error", 1),
    ("trajectory", "reward", 1, "rl.trajectory.reward", 1.0),
    ("trajectory", "outcome", "aborted", "rl.trajectory.outcome", "aborted"),
    ("trajectory", "reason", "turn limit", "rl.trajectory.reason", "turn limit"),
    ("trajectory", "continues", True, "rl.trajectory.continues", True),
    ("trajectory", "policy_version", 7, "rl.policy.version.last", 7),
    ("generate", "input_tokens", 900, "gen_ai.usage.input_tokens", 900),
    ("generate", "input_tokens", [900, 100], "gen_ai.usage.input_tokens", 1000),
    ("generate", "output_tokens", 40, "gen_ai.usage.output_tokens", 40),
    ("generate", "output_tokens", [40, 2, 8], "gen_ai.usage.output_tokens", 50),
    ("generate", "output_tokens", [40, 2, 8], "rl.generate.sequences", 3),
    ("generate", "cached_tokens", 800, "gen_ai.usage.cache_read.input_tokens", 800),
    ("generate", "cached_tokens", [800, 0], "gen_ai.usage.cache_read.input_tokens", 800),
    ("generate", "sequences", 16, "rl.generate.sequences", 16),
    ("generate", "finish_reason", "stop", "gen_ai.response.finish_reasons", ["stop"]),
    ("generate", "finish_reasons", ["stop", "length"], "gen_ai.response.finish_reasons", ["stop", "length"]),
    ("generate", "queue_time", 2, "rl.generate.queue.duration", 2.0),
    ("generate", "time_to_first_token", 0.12, "gen_ai.response.time_to_first_chunk", 0.12),
    ("generate", "policy_version", 4, "rl.policy.version", 4),
    ("env.step", "reward", 1, "rl.env.reward", 1.0),
    ("env.step", "reward", [0.0, 1.0], "rl.env.reward", 0.5),
    ("env.step", "terminated", True, "rl.env.terminated", True),
    ("env.step", "terminated", [True, False], "rl.env.terminated", False),
    ("env.step", "truncated", False, "rl.env.truncated", False),
    ("env.step", "truncated", 1, "rl.env.truncated", True),
    ("env.step", "tool", "bash", "gen_ai.tool.name", "bash"),
    ("env.reset", "reward", 0.5, "rl.env.reward", 0.5),
    ("env.reset", "terminated", False, "rl.env.terminated", False),
    ("env.reset", "truncated", False, "rl.env.truncated", False),
    ("env.reset", "tool", "setup", "gen_ai.tool.name", "setup"),
    ("train", "tokens", 65536, "rl.train.tokens", 65536),
    ("train", "minibatch", 3, "rl.minibatch.index", 3),
    ("train", "epoch", 1, "rl.batch.epoch", 1),
    ("train", "policy_version", 6, "rl.policy.version", 6),
    ("weight_sync", "bytes", 15 << 30, "rl.weight_sync.bytes", 15 << 30),
    ("weight_sync", "policy_version", 9, "rl.policy.version", 9),
]


@contextlib.contextmanager
def opened(name: str) -> Any:
    """Open a span in its place, and hand its handle back."""
    with contextlib.ExitStack() as stack:
        handles = [stack.enter_context(getattr(rl_otel, opener)()) for opener in OPENERS[name]]
        yield handles[-1]


def exactly(value: Any) -> Any:
    """Return a value that equals only values of the same type: 1 is not 1.0, nor True."""
    if isinstance(value, list):
        return [exactly(item) for item in value]
    return type(value), value


@pytest.mark.parametrize(("span", "word", "given", "attribute", "expected"), WORDS)
def test_each_word_becomes_its_attribute(
    traces: Traces, *, span: str, word: str, given: Any, attribute: str, expected: Any
) -> None:
    """A word on its span becomes the attribute of that name, with the value's exact type."""
    with opened(span) as handle:
        handle.record(**{word: given})

    assert exactly(traces.one(span).attributes[attribute]) == exactly(expected)


def test_the_table_above_is_complete() -> None:
    """Every word that the code knows is tried here."""
    known = {(span, word) for span, words in semconv.WORDS.items() for word in words}

    assert known == {(span, word) for span, word, *_ in WORDS}


@pytest.mark.parametrize("span", OPENERS)
def test_strict_mode_refuses_what_is_no_word(traces: Traces, span: str) -> None:
    """A word misspelt is an error in a test, which names the words there are."""
    with opened(span) as handle:
        with pytest.raises(TypeError, match=f"'rewrad' is no word of {span}; it knows .*{next(iter(handle.words))}"):
            handle.record(rewrad=1.0)
        with pytest.raises(TypeError, match="'reward/std' is no word"):
            handle.record({"reward/std": 1.0})

    assert not [key for key in traces.one(span).attributes if key.startswith("rl.custom.")]


def test_strict_mode_is_over_when_the_capture_is() -> None:
    """Production records what it does not know; only the capture that asked for it is strict."""
    with capture(strict=True):
        pass
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record(advantage_std=0.5)

    assert traces.one("step").attributes["rl.custom.advantage_std"] == 0.5


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.5, 0.5),
        (3, 3),
        (True, True),
        ("grpo", "grpo"),
        ([1, 2], [1, 2]),
        ([1, 0.5], [1.0, 0.5]),
        (("a", "b"), ["a", "b"]),
        (range(3), [0, 1, 2]),
        ([], []),
        ([1, "a"], "[1, 'a']"),
        ([[1], [2]], "[[1], [2]]"),
        ({"clip": 0.2}, "{'clip': 0.2}"),
        (b"bytes", "bytes"),
    ],
)
def test_another_word_is_kept_under_rl_custom(given: Any, expected: Any) -> None:
    """Any word may be recorded: it becomes `rl.custom.<word>`, with a type that OTLP knows."""
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record(anything=given)

    assert exactly(traces.one("step").attributes["rl.custom.anything"]) == exactly(expected)


def test_a_mapping_takes_names_that_are_no_python_words() -> None:
    """`record({...})` takes any key, knows the words among them, and keyword words come after it."""
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record({"loss": 1.0, "reward": 0.1, "actor/pg clipfrac": 0.02, 7: "seven"}, loss=2.0)

    attributes = traces.one("step").attributes
    assert attributes["rl.loss"] == 2.0
    assert attributes["rl.reward.mean"] == 0.1
    assert attributes["rl.custom.actor/pg clipfrac"] == 0.02
    assert attributes["rl.custom.7"] == "seven"


def test_no_word_is_taken_by_the_signature() -> None:
    """The mapping is positional only: `mapping` is a word like any other."""
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record(mapping="identity")

    assert traces.one("step").attributes["rl.custom.mapping"] == "identity"


def test_later_values_win(traces: Traces) -> None:
    """A word recorded twice has the value of the later call, whatever the types were."""
    with rl_otel.step(0) as step:
        step.record(loss=3.0, samples=[1, 2])
        step.record(loss=1, samples=5)
        step.record(loss=0.5)

    attributes = traces.one("step").attributes
    assert (attributes["rl.loss"], attributes["rl.samples"]) == (0.5, 5)


def test_none_is_no_value(traces: Traces) -> None:
    """None records nothing and takes nothing back: what is not known is not written."""
    with rl_otel.step(0) as step:
        step.record(loss=0.5, reward=None)
        step.record(loss=None)

    assert traces.one("step").attributes == {"rl.step": 0, "rl.loss": 0.5, "rl.telemetry.overhead": ANY}


@pytest.mark.parametrize(
    ("word", "given", "wanted"),
    [
        ("loss", "diverged", "number"),
        ("samples", "many", "whole number"),
        ("samples", float("nan"), "whole number"),
        ("samples", float("inf"), "whole number"),
        ("samples", [1, "two"], "whole number"),
    ],
)
def test_what_is_not_of_the_words_type_is_left_out(
    traces: Traces, caplog: pytest.LogCaptureFixture, word: str, given: Any, wanted: str
) -> None:
    """An attribute has one type in all spans, or no back end can compare it; one line tells what is missing."""
    with rl_otel.step(0) as step:
        step.record({word: given})
        step.record({word: given}, kl=0.1)

    assert traces.one("step").attributes == {"rl.step": 0, "rl.kl": 0.1, "rl.telemetry.overhead": ANY}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages == [f"rl_otel: step.record({word}={given!r}): not a {wanted}, left out"]


def test_each_word_that_is_left_out_has_a_line(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong loss does not hide a wrong reward, nor the step's reward that of an environment step."""
    with opened("env.step") as env_step:
        for _ in range(2):
            env_step.record(reward="high", terminated="no")
            rl_otel.current("step").record(reward="high")

    assert caplog.messages == [
        "rl_otel: env_step.record(reward='high'): not a number, left out",
        "rl_otel: env_step.record(terminated='no'): not a flag (True or False), left out",
        "rl_otel: step.record(reward='high'): not a number, left out",
    ]


@pytest.mark.parametrize(("given", "recorded"), [(3.7, 3), (-0.5, 0)])
def test_a_fraction_of_a_count_is_cut_off_with_one_line(
    traces: Traces, caplog: pytest.LogCaptureFixture, given: float, recorded: int
) -> None:
    """Counts are whole in every span; a value that had to be altered is told once."""
    for index in range(2):
        with rl_otel.step(index) as step:
            step.record(samples=given, optimizer_steps=8.0)

    assert {span.attributes["rl.samples"] for span in traces.all("step")} == {recorded}
    line = f"rl_otel: step.record(samples={given}) is recorded as {recorded}: the word takes whole numbers"
    assert caplog.messages == [line]


@pytest.mark.parametrize(
    ("given", "shown"),
    [((5,), "5"), (("loss", 3), "'loss', 3"), (([1],), "[1]"), (({"kl": 1.0}, {"lr": 2}), "{'kl': 1.0}, {'lr': 2}")],
)
def test_what_is_no_word_and_no_mapping_is_one_line(
    traces: Traces, caplog: pytest.LogCaptureFixture, given: Any, shown: str
) -> None:
    """A call of the wrong form stops no training: it is said how to call, and the words beside it are recorded."""
    with rl_otel.step(0) as step:
        for _ in range(2):
            step.record(*given, loss=0.5)

    assert traces.one("step").attributes == {"rl.step": 0, "rl.loss": 0.5, "rl.telemetry.overhead": ANY}
    assert caplog.messages == [
        f"rl_otel: step.record({shown}): record() takes words, as in record(loss=0.5), or one mapping; this is left out"
    ]


@pytest.mark.parametrize(("word", "meant"), [("los", "loss"), ("Reward", "reward"), ("rewards", "reward")])
def test_a_word_close_to_a_known_one_is_asked_about_once(
    caplog: pytest.LogCaptureFixture, word: str, meant: str
) -> None:
    """A word misspelt is kept like any other, and the log asks, once in the life of the process."""
    with capture(strict=False) as traces:
        for index in range(3):
            with rl_otel.step(index) as step:
                step.record({word: 0.5})

    assert {span.attributes[f"rl.custom.{word}"] for span in traces.all("step")} == {0.5}
    assert caplog.messages == [
        f"rl_otel: {word!r} is no word of step and is kept as rl.custom.{word}; did you mean {meant}?"
    ]


def test_words_of_ones_own_are_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """What frameworks log beside our words is no misspelling of them."""
    with capture(strict=False), rl_otel.step(0) as step, rl_otel.data() as data:
        step.record({"kl_loss": 1, "reward_std": 1, "grad_norm/critic": 1, "entropy_loss": 1, "tokens": 1, 7: 1})
        data.record(loss=1.0)

    assert caplog.messages == []


def test_a_number_as_text_is_that_number(traces: Traces) -> None:
    """Environments answer in JSON and command lines in text: `"0.5"` is a reward all the same."""
    with opened("env.step") as env_step:
        env_step.record(reward="0.5")

    assert exactly(traces.one("env.step").attributes["rl.env.reward"]) == exactly(0.5)


def test_a_word_that_cannot_be_read_costs_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that raises when it is looked at is left out, with one line; the words beside it are recorded."""

    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with capture(strict=False) as traces, rl_otel.step(0) as step:
        monkeypatch.setattr(_safety, "strict", False)
        step.record(before=1, broken=Broken(), after=2)

    attributes = traces.one("step").attributes
    assert (attributes["rl.custom.before"], attributes["rl.custom.after"]) == (1, 2)
    assert "rl.custom.broken" not in attributes
    assert "RuntimeError: no text" in caplog.text
