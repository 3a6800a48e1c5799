"""What joining a step costs a rank: `python -m benchmarks.joining`.

A rank that owns no root, rank 0, and the OpenTelemetry SDK in turn, each in a fresh process with nowhere to send to.
A step is opened, which joins it, and closed with nothing inside, which makes its figures. Fails where a rank needs more
than `LIMIT` to join, or sends anything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from benchmarks.__main__ import machine
from benchmarks.run import ROOT

LIMIT: Final = 50.0  # µs
STEPS: Final = 5000
SIDES: Final = {"rank 3": {"RANK": "3"}, "rank 0": {"RANK": "0"}, "SDK": {}}
_TALKS: Final = ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind")


def _measure(side: str) -> dict[str, float]:
    """Return CPU in µs of the calling thread for a step, of opening it, and how often anything was sent meanwhile."""
    talks: list[str] = []
    step = _sdk() if side == "SDK" else _ours()
    for index in range(200):
        with step(index):
            pass
    sys.addaudithook(lambda event, _: talks.append(event) if event in _TALKS else None)
    opening, whole = [], []
    for index in range(200, 200 + STEPS):
        began = time.thread_time_ns()
        with step(index):
            opened = time.thread_time_ns()
        whole.append(time.thread_time_ns() - began)
        opening.append(opened - began)
    return {
        "open": statistics.fmean(opening) / 1000,
        "step": statistics.fmean(whole) / 1000,
        "talks": float(len(talks)),
    }


def _ours() -> Callable[[int], AbstractContextManager[Any]]:
    import rl_otel

    rl_otel.configure()
    return rl_otel.step


def _sdk() -> Callable[[int], AbstractContextManager[Any]]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    tracer = provider.get_tracer("joining")
    return lambda index: tracer.start_as_current_span("step", attributes={"rl.step": index, "rl.rank": 3})


def _in_a_process(side: str) -> dict[str, float]:
    world = {"WORLD_SIZE": "4", "RL_OTEL_RUN_ID": "joining", "OTEL_SDK_DISABLED": ""}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **world, **SIDES[side], "RL_OTEL_RUN_DIR": folder, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "benchmarks.joining", "--side", side]
        return json.loads(subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)  # type: ignore[no-any-return]


def main() -> int:
    """Print the table, and return whether a rank stays below the limit and silent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        sys.stdout.write(json.dumps(_measure(arguments.side)))
        return 0
    measured = [{side: _in_a_process(side) for side in SIDES} for _ in range(arguments.rounds)]
    lines = [machine(arguments.rounds), ""]
    lines.append(f"{'CPU a step, µs':<16}{'opened':>24}{'opened and closed':>24}{'messages':>10}")
    for side in SIDES:
        cells = [_cell([each[side][figure] for each in measured]) for figure in ("open", "step")]
        lines.append(f"{side:<16}{cells[0]:>24}{cells[1]:>24}{sum(each[side]['talks'] for each in measured):>10.0f}")
    sys.stdout.write("\n".join(lines) + "\n")
    joins = statistics.median(each["rank 3"]["open"] for each in measured)
    return int(joins >= LIMIT or any(each["rank 3"]["talks"] for each in measured))


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    sys.exit(main())
