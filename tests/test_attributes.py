"""How many attributes a span takes: the first ones, and a count of the others."""

from __future__ import annotations

from typing import Any

import rl_otel
from rl_otel.testing import capture
from tests import process

DROPPED = "rl.attributes.dropped"


def numbered(attributes: dict[str, Any], prefix: str) -> list[int]:
    return [int(name.removeprefix(prefix)) for name in attributes if name.startswith(prefix)]


def test_the_first_names_of_the_host_are_taken() -> None:
    """Of 200 the first 128 stay, the rest is counted, and words of ours are taken after them as well."""
    with capture(strict=False) as traces:
        with rl_otel.step(0) as step:
            for number in range(200):
                step.record({f"word{number}": number})
            step.record({"word0": -1}, loss=0.5)
        attributes = traces.one("step").attributes
    assert numbered(attributes, "rl.custom.word") == list(range(128))
    assert (attributes[DROPPED], attributes["rl.loss"], attributes["rl.custom.word0"]) == (72, 0.5, -1)


def test_attributes_by_opentelemetry_are_bounded_too() -> None:
    """`set_attributes` of OpenTelemetry's span has the same bound, together with `record`."""
    with capture(strict=False) as traces:
        with rl_otel.train() as train:
            train.record({"one": 1})
            train.set_attributes({f"word{number}": number for number in range(200)})
        attributes = traces.one("train").attributes
    assert numbered(attributes, "word") == list(range(127))
    assert attributes[DROPPED] == 73


def test_a_span_with_few_attributes_says_nothing_of_a_bound() -> None:
    """Nothing is counted where nothing is left out."""
    with capture(strict=False) as traces:
        with rl_otel.train() as train:
            train.record({f"word{number}": number for number in range(128)})
        assert DROPPED not in traces.one("train").attributes


def test_attributes_of_other_libraries_are_bounded() -> None:
    """Also where the SDK's own bound was lifted."""
    script = """
        import rl_otel
        from opentelemetry import trace
        from rl_otel.testing import capture
        with capture() as traces:
            with rl_otel.train(), trace.get_tracer("theirs").start_as_current_span("GET") as span:
                span.set_attributes({f"word{number}": number for number in range(130)})
            attributes = traces.one("GET").attributes
        print(len(attributes), "word127" in attributes, attributes["rl.attributes.dropped"])
    """
    lifted = {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1000", "OTEL_ATTRIBUTE_COUNT_LIMIT": "1000"}
    assert process.run(script, env=lifted).stdout == "129 True 2\n"
