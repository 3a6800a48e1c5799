"""Many threads at once: nothing is lost, doubled or broken."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel import Delivery, _clock
from rl_otel._record import End, Process
from rl_otel.testing import Traces
from tests.receiver import Receiver

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

THREADS, EACH = 32, 50


def at_once(work: Callable[[int], None]) -> None:
    """Run `work` in all threads from the same moment on."""
    ready = threading.Barrier(THREADS)

    def run(number: int) -> None:
        ready.wait()
        work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def play(number: int) -> None:
    for i in range(EACH):
        with rl_otel.trajectory(f"{number}/{i}") as trajectory:
            with rl_otel.generate():
                pass
            trajectory.record({"payload": "x" * (i * 40)}, reward=float(i))


def test_the_first_spans_of_all_threads_are_recorded() -> None:
    """The moment when the file is made loses nothing, and its first record is the first."""
    for attempt in range(20):
        rl_otel.configure(run_dir="runs", run_id=f"r{attempt}")

        def first(number: int) -> None:
            with rl_otel.env_step(str(number)):
                pass

        at_once(first)
        assert rl_otel.shutdown() == Delivery(kept=THREADS)
        traces = Traces(Path(f"runs/r{attempt}"))
        assert isinstance(traces.records[0], Process)
        assert len(traces.spans) == THREADS


def test_what_32_threads_record_is_all_there() -> None:
    """Each span once, whole, with its own parent, in the journal and at the receiver."""
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_dir="runs", run_id="r1")
        at_once(play)
        total = 2 * THREADS * EACH
        assert rl_otel.shutdown(timeout=60) == Delivery(sent=total)
        assert len({span.proto.span_id for span in receiver.spans}) == len(receiver.spans) == total
    traces = Traces(Path("runs/r1"))
    ids = Counter(span.attributes["rl.trajectory.id"] for span in traces.all("trajectory"))
    assert ids == Counter(f"{number}/{i}" for number in range(THREADS) for i in range(EACH))
    assert all([child.name for child in span.children] == ["generate"] for span in traces.all("trajectory"))
    assert all(
        len(span.attributes["rl.custom.payload"]) == min(40 * int(span.attributes["rl.trajectory.reward"]), 2048)
        for span in traces.all("trajectory")
    )


def test_threads_may_flush_while_others_record() -> None:
    """`flush` from several threads counts each span once."""
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http)

        def work(number: int) -> None:
            play(number)
            if number % 8 == 0:
                rl_otel.flush(timeout=60)

        at_once(work)
        assert rl_otel.shutdown(timeout=60) == Delivery(sent=2 * THREADS * EACH)
        assert receiver.counts["spans"] == 2 * THREADS * EACH


@pytest.mark.parametrize("name", ["step", "rollout", "trajectory", "generate", "env_step", "train"])
def test_two_threads_that_end_a_span_write_it_once(traces: Traces, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """While one thread is about to end a span another ends it too, as a callback and a `with` may: one record."""
    handle = getattr(rl_otel, name)().start()
    other = threading.Thread(target=handle.end)

    def interrupted() -> int:
        monkeypatch.undo()
        other.start()
        other.join(30)
        return _clock.monotonic()

    monkeypatch.setattr(_clock, "monotonic", interrupted)
    handle.end()

    assert other.ident is not None
    assert not other.is_alive()
    assert len([record for record in traces.records if isinstance(record, End)]) == 1


def test_a_signal_handler_may_open_spans() -> None:
    """A handler that interrupts the recording at any point records as well, and nothing hangs."""
    handled = 0

    def handler(number: int, frame: types.FrameType | None) -> None:
        nonlocal handled
        with rl_otel.env_step("signal"):
            handled += 1

    rl_otel.configure(run_dir="runs", run_id="r1")
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        for i in range(60):
            with rl_otel.step(i), rl_otel.train():
                pass
        while handled < 5:
            signal.pause()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rl_otel.shutdown() == Delivery(kept=120 + handled)
    names = Counter(span.name for span in Traces(Path("runs/r1")).spans)
    assert names == {"step": 60, "train": 60, "env.step": handled}
