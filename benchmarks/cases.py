"""What one fresh process measures: `python -m benchmarks.cases CASE TRACER AMOUNT` prints its figures as JSON.

Times are in µs unless said otherwise.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.receiver import take
from benchmarks.tracers import TRACERS, Nothing, RlOtel

if TYPE_CHECKING:
    from typing_extensions import Self

CALLS = 100  # of one trajectory in a burst
RATE = 1000  # calls a second where they are paced
TRAJECTORIES = 64

Figures = dict[str, float]


# --- As fast as it goes -----------------------------------------------------------------------------------------------


def burst(tracer: Nothing, spans: int) -> Figures:
    """CPU of the calling thread, and of the whole process until all is delivered, for each call."""
    _burst(tracer, 2 * CALLS)
    tracer.flush()
    _delivered(0)
    process = time.process_time_ns()
    thread = _burst(tracer, spans)
    tracer.flush()
    process = time.process_time_ns() - process
    return _by_delivered(process, spans) | {"thread": thread / spans / 1000}


def memory(tracer: Nothing, spans: int) -> Figures:
    """How much the resident set grows in a step of that many spans, in MB."""
    _burst(tracer, 20 * CALLS)
    tracer.flush()
    before, peak = _resident(), [0.0]
    _burst(tracer, spans, lambda: peak.append(_resident()))
    tracer.flush()
    return {"grown": max(*peak, _resident()) - before}


def _burst(tracer: Nothing, spans: int, after_each: Callable[[], None] = lambda: None) -> int:
    """Return what the calls alone cost the calling thread, in ns; what is around them is 1 % of the spans."""
    cost = 0
    with tracer.step(1), tracer.rollout():
        for _ in range(spans // CALLS):
            with tracer.trajectory():
                began = time.thread_time_ns()
                for turn in range(CALLS // 2):
                    tracer.generate(turn)
                    tracer.env_step(turn)
                cost += time.thread_time_ns() - began
            after_each()
    return cost


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _delivered(calls: int) -> Figures:
    """Return which share of the calls arrived since it was last asked, and how many attributes each of them has."""
    counts = take(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
    return {
        "share": counts["calls"] / calls if calls else 0.0,
        "attributes": counts["attributes"] / max(counts["calls"], 1),
    }


def _by_delivered(process: int, calls: int) -> Figures:
    arrived = _delivered(calls)
    return arrived | {"process": process / calls / 1000 / (arrived["share"] or 1.0)}


# --- At 1,000 spans a second ------------------------------------------------------------------------------------------


def paced(tracer: Nothing, seconds: int) -> Figures:
    """CPU of the whole process for each call, under asyncio: 16 trajectories that wait for an engine."""
    asyncio.run(_paced(tracer, 0.3))
    tracer.flush()
    _delivered(0)
    process = time.process_time_ns()
    asyncio.run(_paced(tracer, seconds))
    tracer.flush()
    return _by_delivered(time.process_time_ns() - process, _turns(seconds) * 16 * 2)


async def _paced(tracer: Nothing, seconds: float) -> None:
    with tracer.step(1), tracer.rollout():
        await asyncio.gather(*(_play_paced(tracer, number / RATE, _turns(seconds)) for number in range(16)))


def _turns(seconds: float) -> int:
    return int(seconds * RATE) // (16 * 2)


async def _play_paced(tracer: Nothing, offset: float, turns: int) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time() + 2 * offset
    with tracer.trajectory():
        for turn in range(turns):
            due = began + (turn + 1) * 16 * 2 / RATE
            await tracer.awaiting(turn, asyncio.sleep(due - loop.time()))
            tracer.env_step(turn)


def pauses(tracer: Nothing, seconds: int) -> Figures:
    """The longest pause in each millisecond of a busy caller that ends a span in each: its p99.9, in ms."""
    longest, clock = [], time.perf_counter_ns
    with tracer.step(1), tracer.rollout(), tracer.trajectory():
        last = began = clock()
        while last < began + seconds * 1_000_000_000:
            slot_ends, pause = last + 1_000_000_000 // RATE, 0
            tracer.env_step(1)
            while last < slot_ends:
                now = clock()
                pause = max(pause, now - last)
                last = now
            longest.append(pause)
    longest.sort()
    return {"pause": longest[int(len(longest) * 0.999)] / 1e6}


def loop(tracer: Nothing, pairs: int) -> Figures:
    """How much more a rollout takes with spans than without, in per cent: on the wall, and of the process's CPU."""
    more = [_pair(tracer, swapped=number % 2 == 1) for number in range(-1, pairs)][1:]
    return {name: statistics.median(pair[name] for pair in more) for name in ("wall", "process")}


def _pair(tracer: Nothing, *, swapped: bool) -> Figures:
    off = Nothing()
    took = {side: _rollout(side) for side in ((tracer, off) if swapped else (off, tracer))}
    return {name: (cost / took[off][name] - 1) * 100 for name, cost in took[tracer].items()}


def _rollout(tracer: Nothing) -> Figures:
    wall, process = time.perf_counter(), time.process_time()
    asyncio.run(_collect(tracer))
    tracer.flush()  # so that no delivery falls into the run without
    return {"wall": time.perf_counter() - wall, "process": time.process_time() - process}


async def _collect(tracer: Nothing) -> None:
    async def engine() -> None:
        _work()  # on both sides of the wire; and 9 spans cost 9 ms, so there are no more than 1,000 a second
        await asyncio.sleep(0.019)

    async def play() -> None:
        with tracer.trajectory():
            await tracer.awaiting(0, engine())
            for turn in range(8):
                tracer.env_step(turn, _work)
                await asyncio.sleep(0)

    with tracer.step(1), tracer.rollout():
        await asyncio.gather(*(play() for _ in range(TRAJECTORIES)))


def _work() -> None:
    """Take 1 ms of CPU: so much time, not so much work, for a shared machine runs at two speeds within a second."""
    until = time.thread_time_ns() + 1_000_000
    while time.thread_time_ns() < until:
        for _ in range(100):
            pass


# --- Switched off -----------------------------------------------------------------------------------------------------


class Empty:
    """A context manager that does nothing, used as a span is."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def record(self, **words: Any) -> None:
        """Do nothing."""


def off(opener: Callable[[], Any], spans: int) -> Figures:
    """CPU of a span that is recorded nowhere."""

    def cost() -> float:
        began = time.thread_time_ns()
        for _ in range(spans):
            with opener() as span:
                span.record(input_tokens=812, output_tokens=128)
        return (time.thread_time_ns() - began) / spans / 1000

    return {"span": statistics.median(cost() for _ in range(7))}


def _off_opener(tracer: str) -> Callable[[], Any]:
    if tracer == "empty with":
        return Empty
    import rl_otel

    os.environ["OTEL_SDK_DISABLED"] = "true"
    rl_otel.configure()
    return rl_otel.generate


_CASES = {"burst": burst, "memory": memory, "paced": paced, "pauses": pauses, "loop": loop}


def _main(case: str, tracer: str, amount: str) -> None:
    if case == "off":
        figures = off(_off_opener(tracer), int(amount))
    else:
        figures = _CASES[case](_tracer(case, tracer, int(amount)), int(amount))
    print(json.dumps(figures), flush=True)
    os._exit(0)  # saying goodbye to a receiver is nobody's figure


def _tracer(case: str, name: str, spans: int) -> Nothing:
    if (case, name) == ("burst", "rl_otel"):
        return RlOtel(trace_budget=2 * spans)  # all of a burst is exported
    return TRACERS[name]()


if __name__ == "__main__":
    _main(*sys.argv[1:])
