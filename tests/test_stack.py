"""Traces through the real collector into the real Jaeger, as `make stack` runs them."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel import _cli
from tests import needs
from tests.process import run as script
from tests.shipping import play_step
from tests.stack.running import Stack, agent, by_id
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.otlp import ReceivedSpan

#: What the sender says of what it sent; an export has everything, and nothing to say.
SHOWN = ("rl.rollout.shown.", "rl.rollout.spans.")

pytestmark = [needs.stack, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def configure(name: str, endpoint: str | None = None) -> Path:
    """Begin a run of this name, and return its folder."""
    rl_otel.configure(service_name=name, run_dir="runs", run_id=name, endpoint=endpoint)
    return Path("runs") / name


def exported(folder: Path) -> dict[bytes, ReceivedSpan]:
    """Return the spans of a run folder, by id."""
    file = folder.with_suffix(".json")
    assert _cli.main(["export", str(folder), "--output", str(file)]) == 0
    return by_id(file.read_bytes())


def ship(what: Path, stack: Stack, *options: str) -> int:
    return _cli.main(["ship", str(what), "--endpoint", stack.endpoint, *options])


def traces_of(spans: dict[bytes, ReceivedSpan]) -> set[str]:
    return {span.proto.trace_id.hex() for span in spans.values()}


def in_jaeger(stack: Stack, expected: dict[bytes, ReceivedSpan]) -> dict[bytes, ReceivedSpan]:
    """Return what Jaeger has of the traces of `expected`, once there are as many spans."""
    found: dict[bytes, ReceivedSpan] = {}

    def complete() -> bool:
        for trace in traces_of(expected):
            found.update(stack.trace(trace))
        return len(found) >= len(expected)

    until(complete)
    return found


def assert_same(found: dict[bytes, ReceivedSpan], expected: dict[bytes, ReceivedSpan]) -> None:
    """Compare spans: ids, parents, names, times, status, links, service, and attributes with their types."""
    assert found.keys() == expected.keys()
    for span_id, span in expected.items():
        assert told(found[span_id]) == told(span)


def told(span: ReceivedSpan) -> tuple[object, ...]:
    proto = span.proto
    links = [(link.trace_id, link.span_id) for link in proto.links]
    place = (proto.trace_id, proto.parent_span_id, proto.name, proto.start_time_unix_nano, proto.end_time_unix_nano)
    attributes = {name: stored(value) for name, value in span.attributes.items() if not name.startswith(SHOWN)}
    types = {name: type(value) for name, value in attributes.items()}
    return (*place, attributes, types, proto.status.code, links, span.resource["service.name"])


def stored(value: object) -> object:
    """Jaeger stores a list as its JSON."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else value


def test_what_was_sent_is_in_jaeger(stack: Stack) -> None:
    """Each step is one trace with a root `step`; each span has its parent and its attributes, of their types."""
    folder = configure("sent", stack.endpoint)
    for index in range(2):
        play_step(index, trajectories=5, turns=3)
    delivered = rl_otel.shutdown()
    expected = exported(folder)
    assert delivered.sent == len(expected)
    assert len(traces_of(expected)) == 2
    found = in_jaeger(stack, expected)
    assert_same(found, expected)
    roots = [span for span in found.values() if not span.proto.parent_span_id]
    assert sorted(span.attributes["rl.step"] for span in roots) == [0, 1]
    assert {span.name for span in roots} == {"step"}


def test_a_step_is_found_by_tag_operation_and_id(stack: Stack) -> None:
    """By tag `rl.step`, by a trajectory's id, and by operation and minimal duration."""
    folder = configure("searched", stack.endpoint)
    for index in range(3):
        play_step(index, trajectories=2, turns=1)
    now = time.time_ns()
    rl_otel.add("trajectory", now - 61 * 10**9, now, id="slow")
    rl_otel.shutdown()
    spans = exported(folder)
    in_jaeger(stack, spans)
    traces = {span.attributes.get("rl.step", "slow"): span.proto.trace_id.hex() for span in spans.values()}
    assert stack.found("searched", tags='{"rl.step":"1"}') == {traces[1]}
    assert stack.found("searched", tags='{"rl.trajectory.id":"1/0"}') == {traces[0], traces[1], traces[2]}
    assert stack.found("searched", operation="trajectory", minDuration="60s") == {traces["slow"]}


def test_ship_later_gives_the_same(stack: Stack) -> None:
    """A run without an endpoint, delivered by `rl-otel ship`, is in Jaeger as if it had been sent."""
    folder = configure("shipped")
    play_step(0, trajectories=5, turns=3)
    rl_otel.shutdown()
    expected = exported(folder)
    assert ship(folder, stack) == 0
    assert_same(in_jaeger(stack, expected), expected)


def test_an_exported_file_gives_the_same(stack: Stack) -> None:
    """A file that `rl-otel export` wrote, sent to the collector, is in Jaeger as if the run had been sent."""
    folder = configure("posted")
    play_step(0, trajectories=5, turns=3)
    rl_otel.shutdown()
    expected = exported(folder)
    assert ship(folder.with_suffix(".json"), stack) == 0
    assert_same(in_jaeger(stack, expected), expected)


@pytest.mark.parametrize("killed", [["jaeger"], ["collector"], ["jaeger", "collector"]], ids="-".join)
def test_a_crash_of_the_stack_loses_nothing(stack: Stack, killed: list[str]) -> None:
    """What is killed with -9 in mid run and started again has every span of the run folder afterwards."""
    folder = configure("-".join(["killed", *killed]), stack.endpoint)
    for index in range(30):
        play_step(index, trajectories=4, turns=3)
        if index == 10:
            rl_otel.flush()
            stack.kill(*killed)
        if index == 20:
            rl_otel.flush(timeout=1.0)  # against a collector that is not there
            stack.command("up")
    rl_otel.shutdown()
    expected = exported(folder)
    assert_same(in_jaeger(stack, expected), expected)


def test_an_agent_keeps_what_no_gateway_takes(stack: Stack, tmp_path: Path) -> None:
    """While there is no gateway a node's collector keeps what it acknowledged, through a kill -9 of its own."""
    gateway = f"127.0.0.1:{stack.ports['OTLP_GRPC_PORT']}"
    stack.kill("collector")
    with agent(tmp_path / "queue", gateway) as endpoint:
        folder = configure("agent", endpoint)
        play_step(0, trajectories=4, turns=3)
        delivered = rl_otel.shutdown()
    expected = exported(folder)
    assert delivered.sent == len(expected)
    stack.command("up")
    with agent(tmp_path / "queue", gateway):
        assert_same(in_jaeger(stack, expected), expected)


#: Many processes that send at once, after one wait for all.
MANY = """
    import os
    import sys
    import rl_otel
    from tests.shipping import play_step

    rl_otel.configure("many", run_dir="runs", run_id="many")
    ready, begin = os.pipe(), os.pipe()
    children = []
    for number in range(64):
        if not (child := os.fork()):
            os.close(begin[1])
            os.write(ready[1], b".")
            os.read(begin[0], 1)  # until nobody holds the other side any more
            for index in range(3):
                play_step(index, trajectories=2, turns=2)
            delivered = rl_otel.shutdown(timeout=60.0)
            os._exit(delivered.sent != 3 * 12 or delivered.pending + delivered.kept + delivered.dropped)
        children.append(child)
    for child in children:
        os.read(ready[0], 1)
    os.close(begin[1])
    play_step(0, trajectories=2, turns=2)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    for index in range(1, 3):
        play_step(index, trajectories=2, turns=2)
    rl_otel.shutdown(timeout=60.0)
    sys.exit(str(failed) if failed else 0)
"""


@pytest.mark.once
def test_many_processes_send_into_one_collector(stack: Stack) -> None:
    """Of 64 processes that send at the same time every span arrives, and each step is one trace of all of them."""
    script(MANY, env={"OTEL_EXPORTER_OTLP_ENDPOINT": stack.endpoint}, timeout=240.0)
    expected = exported(Path("runs/many"))
    assert len(traces_of(expected)) == 3
    found = in_jaeger(stack, expected)
    assert_same(found, expected)
    steps = [span for span in found.values() if span.name == "step"]
    processes = Counter(span.proto.trace_id for span in steps)
    assert set(processes.values()) == {65}
    assert len({span.resource["service.instance.id"] for span in steps}) == 65


def test_a_step_as_large_as_any_budget_comes_back_whole(stack: Stack) -> None:
    """A trace of more than 10,000 spans and 4.5 MB, part of it shipped later, passes every limit of the stack."""
    folder = configure("large", stack.endpoint)
    play_step(0, trajectories=900, turns=10)
    delivered = rl_otel.shutdown(timeout=60.0)
    assert (delivered.pending, delivered.dropped) == (0, 0)
    assert delivered.kept > 0
    assert ship(folder, stack, "--step", "0", "--all", "--force") == 0
    expected = exported(folder)
    assert len(expected) > 10_000
    assert sum(span.proto.ByteSize() for span in expected.values()) > 4_500_000
    assert len(in_jaeger(stack, expected)) == len(expected)


def test_texts_go_no_further(stack: Stack) -> None:
    """What a run recorded of prompts and completions, and messages of other libraries, is not in Jaeger."""
    rl_otel.configure("texts", run_dir="runs", run_id="texts", endpoint=stack.endpoint, text=True)
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.generate() as generation:
        generation.record(prompt="hello", completion="you", output_tokens=1)
        generation.set_attribute("gen_ai.input.messages", "hello")
    rl_otel.shutdown()
    expected = exported(Path("runs/texts"))
    (sent,) = (span.attributes for span in expected.values() if span.name == "generate")
    (found,) = (span.attributes for span in in_jaeger(stack, expected).values() if span.name == "generate")
    texts = {name for name in sent if name.startswith(("rl.text.", "gen_ai.input."))}
    assert texts >= {"rl.text.prompt", "rl.text.completion", "gen_ai.input.messages"}
    assert found == {name: value for name, value in sent.items() if name not in texts}


def test_the_monitor_counts_what_is_never_left_out(stack: Stack) -> None:
    """Steps and phases, and nothing else, are in the metrics of Jaeger's Monitor; ten minutes are ten minutes there."""
    configure("monitored", stack.endpoint)
    play_step(0, trajectories=2, turns=2)
    now = time.time_ns()
    rl_otel.add("train", now - 600 * 10**9, now)
    rl_otel.shutdown()
    of_run = '{service_name=~"monitored.*"}'
    until(lambda: len(stack.prometheus.query(f"traces_span_metrics_calls_total{of_run}")) >= 3)
    counted = stack.prometheus.query(f"traces_span_metrics_calls_total{of_run}")
    assert {labels["span_name"] for labels, _ in counted} == {"step", "rollout", "train"}
    train = '{service_name="monitored", span_name="train"}'
    buckets = stack.prometheus.query(f"traces_span_metrics_duration_milliseconds_bucket{train}")
    below = {float(labels["le"]): value for labels, value in buckets}
    assert (below[300_000], below[1_200_000]) == (0, 1)


def test_the_collector_tells_of_itself(stack: Stack) -> None:
    """Its own metrics are in Prometheus, under the names that alerts and dashboards ask for."""
    configure("counted", stack.endpoint)
    play_step(0, trajectories=2, turns=2)
    rl_otel.shutdown()
    counts = ("receiver_accepted_spans_total", "exporter_sent_spans_total")
    for name in (*counts, "exporter_queue_size", "exporter_queue_capacity", "process_memory_rss_bytes"):
        stack.prometheus.wait(f"otelcol_{name}")
