"""The parts of a weight sync: what moved, how fast, and for how long nothing could be generated."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from tests import metrics

if TYPE_CHECKING:
    from rl_otel.testing import Recorded, Traces

SECOND = 1_000_000_000


def test_a_part_is_a_span_of_its_own(traces: Traces) -> None:
    """`part` opens a child of the weight sync, with its bytes, and bytes a second of its duration."""
    with rl_otel.step(3), rl_otel.weight_sync() as sync:
        with sync.part("gather"):
            pass
        with sync.part("transfer", bytes=1000) as part:
            part.record(policy_version=7)
        with sync.part("load") as part:
            part.record(bytes=500)
    whole = traces.one("weight_sync")
    assert [child.name for child in whole.children] == [
        "weight_sync.gather",
        "weight_sync.transfer",
        "weight_sync.load",
    ]
    gather, transfer, load = whole.children
    assert transfer.attributes == {
        "rl.step": 3,
        "rl.weight_sync.part": "transfer",
        "rl.weight_sync.bytes": 1000,
        "rl.policy.version": 7,
        "rl.weight_sync.bytes.rate": 1000 * SECOND / transfer.duration,
    }
    assert "rl.weight_sync.bytes" not in gather.attributes
    assert load.attributes["rl.weight_sync.bytes"] == 500
    assert whole.attributes["rl.weight_sync.bytes"] == 1000


def test_small_calls_are_counted_and_never_added_up_as_wall_time(traces: Traces) -> None:
    """Parts in threads may overlap: the weight sync tells the wall that they cover, the metric the sum of all."""
    start = time.time_ns() - 10 * SECOND
    with rl_otel.step(0), rl_otel.weight_sync() as sync:
        for number in range(4):
            begin = start + number * SECOND // 2
            rl_otel.add("weight_sync.transfer", begin, begin + SECOND, parent=sync, bytes=1000)
    whole = traces.one("weight_sync")
    assert {name: value for name, value in whole.attributes.items() if "transfer" in name} == {
        "rl.weight_sync.transfer.duration": 2.5,
        "rl.weight_sync.transfer.count": 4,
    }
    assert whole.attributes["rl.weight_sync.bytes"] == 4000
    assert whole.attributes["rl.weight_sync.bytes.rate"] == 1600.0
    assert {child.parent_id for child in traces.all("weight_sync.transfer")} == {whole.span_id}


@pytest.mark.usefixtures("recording")
def test_the_metric_counts_each_part_by_itself() -> None:
    """`rl.weight_sync.part.duration` has a series a part, of which the sum is that of all spans."""
    start = time.time_ns() - 10 * SECOND
    with rl_otel.weight_sync() as sync:
        for _ in range(3):
            rl_otel.add("weight_sync.transfer", start, start + SECOND, parent=sync)
        with sync.part("pause"):
            pass
    found = metrics.now(Path("runs/r1"))
    transfer = metrics.one(found, "rl.weight_sync.part.duration", {"rl.weight_sync.part": "transfer"})
    assert (transfer.proto.count, transfer.proto.sum) == (3, 3.0)
    assert len(found["rl.weight_sync.part.duration"]) == 2


def paused(traces: Traces) -> Any:
    return traces.one("weight_sync").attributes.get("rl.weight_sync.paused.duration")


def between(first: Recorded, last: int) -> float:
    return (last - first.start) / SECOND


def test_paused_is_from_the_pause_to_the_end_of_the_resume(traces: Traces) -> None:
    """What goes on before and after costs no generation."""
    with rl_otel.weight_sync() as sync:
        for name in ("gather", "pause", "transfer", "resume", "load"):
            with sync.part(name):
                pass
    pause, resume = traces.one("weight_sync.pause"), traces.one("weight_sync.resume")
    assert paused(traces) == between(pause, resume.end)


def test_engines_that_pause_together_are_not_added_up(traces: Traces) -> None:
    """Of several pauses each lasts until the next resume has ended; what they cover together is told once."""
    start = time.time_ns() - 20 * SECOND
    with rl_otel.weight_sync() as sync:
        for name, first, last in (
            ("pause", 0, 1),
            ("pause", 0.5, 1.5),
            ("resume", 3, 4),
            ("pause", 6, 7),
            ("resume", 7, 8),
        ):
            times = start + int(first * SECOND), start + int(last * SECOND)
            rl_otel.add(f"weight_sync.{name}", *times, parent=sync)
    assert paused(traces) == 6.0


def test_paused_without_a_resume_ends_with_the_weight_sync(traces: Traces) -> None:
    """An engine that goes on by itself goes on when the weight sync is over, even when that fails."""
    with pytest.raises(OSError, match="link down"), rl_otel.weight_sync() as sync, sync.part("pause"):
        raise OSError("link down")
    assert paused(traces) == between(traces.one("weight_sync.pause"), traces.one("weight_sync").end)


def test_without_a_pause_nothing_is_said_of_one(traces: Traces) -> None:
    """Weights that arrive in the background pause nothing: the attribute is absent, not 0."""
    with rl_otel.weight_sync() as sync, sync.part("transfer"):
        pass
    assert paused(traces) is None
    assert "rl.weight_sync.bytes" not in traces.one("weight_sync").attributes


def test_parts_in_threads_belong_to_the_weight_sync(traces: Traces) -> None:
    """Where no context leads to it, as in a thread of the host's, the part's handle does."""
    with rl_otel.step(0), rl_otel.weight_sync() as sync:

        def send() -> None:
            with sync.part("transfer", bytes=10):
                pass

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    whole = traces.one("weight_sync")
    assert [child.name for child in whole.children] == ["weight_sync.transfer"] * 8
    assert whole.attributes["rl.weight_sync.transfer.count"] == 8
    assert whole.attributes["rl.weight_sync.bytes"] == 80


def test_without_configure_a_part_does_nothing() -> None:
    """Before `configure` a part is a no-op, and so is one of a weight sync that is not open."""
    with rl_otel.weight_sync() as sync, sync.part("transfer", bytes=1) as part:
        part.record(bytes=2)
    with rl_otel.current("weight_sync").part("load"):
        pass
    assert part.trace_id == ""
