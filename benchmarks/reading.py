"""What a report costs beside reading its records once: `python -m benchmarks.reading --spans 1000000 --journals 64`.

A run is made up: a driver, and workers that play its trajectories, each with a journal of its own. Then both sides run
in turn, each in a process of its own that says how long it took and how much memory it needed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.__main__ import machine
from rl_otel import _record, semconv
from rl_otel._journal import frame, journals, read

S = 1_000_000_000
BEGAN = 1_700_000_000 * S
PLAYS = 16  # trajectories that a worker plays in a step
TURNS = 5  # each a generate and an env.step
LENGTH = 100  # s from one step to the next
SPANS = PLAYS * (1 + 2 * TURNS)  # of a worker in a step

#: What is measured: how a side is called, and what it does with a run folder.
SIDES = ("read", "report", "detail", "export")


def span_of(*name: Any) -> bytes:
    """Return a span id for a name."""
    return hashlib.blake2b(repr(name).encode(), digest_size=8).digest()


class Journal:
    """A process's journal."""

    def __init__(self, folder: Path, number: int, role: str) -> None:
        told = {
            semconv.SERVICE_NAME: "grpo",
            semconv.HOST_NAME: f"node-{number // 8}",
            semconv.PROCESS_PID: 1000 + number,
            semconv.ROLE: role,
            semconv.RANK: 0,
        }
        path = folder / f"node-{number // 8}-{1000 + number}-{number:08x}.00000.journal"
        self._file = path.open("wb", buffering=1 << 20)
        self.write(_record.Process(_record.FORMAT, "run", 0, told, BEGAN, 0))

    def write(self, record: _record.Record) -> None:
        """Append a record."""
        self._file.write(frame(_record.encode(record)))

    def close(self) -> None:
        """Write what is still in memory."""
        self._file.close()


def make(folder: Path, spans: int, processes: int) -> int:
    """Write a run of about so many spans into a folder, and return how many it has."""
    workers = processes - 1
    steps = max(spans // (workers * SPANS), 1)
    driver = Journal(folder, 0, "driver")
    for step in range(steps):
        _drive(driver, step)
    driver.close()
    for number in range(1, processes):
        worker = Journal(folder, number, "generator")
        for step in range(steps):
            for play in range(PLAYS):
                _play(worker, step, number * PLAYS + play, play)
        worker.close()
    return steps * (4 + workers * SPANS)


def _drive(journal: Journal, step: int) -> None:
    trace, root, at = span_of(step) * 2, span_of(step), BEGAN + step * LENGTH * S
    told = {semconv.STEP_INDEX: step}
    journal.write(_record.Start(trace, root, b"", "step", at, told))
    for name, start, end in (("rollout", 0, 70), ("train", 70, 90), ("weight_sync", 90, 95)):
        span, more = span_of(step, name), {**told, semconv.PHASE: name, semconv.GPU_PEAK: 1 << 34}
        journal.write(_record.Start(trace, span, root, name, at + start * S, more))
        journal.write(_record.End(trace, span, root, name, at + start * S, at + end * S, more))
    journal.write(_record.End(trace, root, b"", "step", at, at + 98 * S, {**told, semconv.LOSS: 0.5}))


def _play(journal: Journal, step: int, number: int, place: int) -> None:
    trace, rollout, span = span_of(step) * 2, span_of(step, "rollout"), span_of(step, number)
    begun = BEGAN + step * LENGTH * S + place * 4 * S
    told = {
        semconv.STEP_INDEX: step,
        semconv.TRAJECTORY_ID: f"{number // 8}/{number % 8}",
        semconv.GROUP_ID: str(number // 8),
        semconv.SAMPLE_INDEX: number % 8,
    }
    journal.write(_record.Start(trace, span, rollout, "trajectory", begun, told))
    at = begun
    for turn in range(TURNS):
        known: dict[str, Any] = {semconv.STEP_INDEX: step, semconv.TURN: turn}
        played = {semconv.INPUT_TOKENS: 900, semconv.OUTPUT_TOKENS: 120, semconv.REQUEST_MODEL: "qwen3-8b"}
        acted = {semconv.ENVIRONMENT_NAME: "swe", semconv.ENV_REWARD: 0.0, semconv.ENV_TERMINATED: False}
        for name, length, more in (("generate", S // 2, played), ("env.step", S // 4, acted)):
            call = span_of(step, number, turn, name)
            journal.write(_record.End(trace, call, span, name, at, at + length, {**known, **more}))
            at += length
    parts = {"generate": 2.5, "env": 1.25, "other": 0.0}
    ended = {semconv.TRAJECTORY_PART.format(part=part): time for part, time in parts.items()}
    ended |= {semconv.TRAJECTORY_OUTCOME: "completed", semconv.TRAJECTORY_TURNS: TURNS, semconv.TRAJECTORY_REWARD: 1.0}
    ended |= {semconv.TRAJECTORY_INPUT_TOKENS: 4500, semconv.TRAJECTORY_OUTPUT_TOKENS: 600}
    journal.write(_record.End(trace, span, rollout, "trajectory", begun, at, {**told, **ended}))


def measure(side: str, folder: Path) -> None:
    """Do one side, and print what it cost."""
    began, used = time.perf_counter(), time.process_time()
    _do(side, folder)
    cost = {
        "wall": time.perf_counter() - began,
        "cpu": time.process_time() - used,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(cost), file=sys.__stdout__)


def _do(side: str, folder: Path) -> None:
    if side == "read":
        for path in journals(folder):
            for _ in read(path):
                pass
        return
    from rl_otel._cli import main  # its imports are part of what it costs

    sys.stdout = io.TextIOWrapper(io.FileIO(os.open(os.devnull, os.O_WRONLY), "w"))
    arguments = {"report": ["report"], "detail": ["report", "--step", "1"], "export": ["export", "--step", "1"]}[side]
    main([arguments[0], str(folder), *arguments[1:]])


def rounds(folder: Path, number: int, sides: tuple[str, ...]) -> dict[str, list[dict[str, float]]]:
    """Run the sides in turn, and return what each cost in each round."""
    costs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(number):
        for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
            command = [sys.executable, "-m", "benchmarks.reading", "--side", side, str(folder)]
            costs[side].append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    return costs


def table(costs: dict[str, list[dict[str, float]]], spans: int) -> list[str]:
    """Return a line for each side: medians, and of the ratios to reading also the lowest and the highest."""
    lines = [f"{'':8}{'CPU':>9}{'a span':>11}{'peak memory':>13}   of reading once"]
    for side, measured in costs.items():
        cpu = statistics.median(each["cpu"] for each in measured)
        memory = statistics.median(each["memory"] for each in measured)
        ratios = [each["cpu"] / once["cpu"] for each, once in zip(measured, costs["read"], strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"{side:8}{cpu:>7.2f} s{cpu / spans * 1e6:>8.2f} us{memory:>10.0f} MB   {spread}")
    return lines


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__)
    parser.add_argument("--spans", type=int, default=1_000_000, help="about how many (default %(default)s)")
    parser.add_argument("--journals", type=int, default=64, help="of how many processes (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (default %(default)s)")
    parser.add_argument("--sides", nargs="+", choices=SIDES[1:], default=SIDES[1:2], help="beside reading: %(choices)s")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)  # one side, of the run in a folder
    args = parser.parse_args()
    if args.side:
        measure(args.side[0], Path(args.side[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        spans = make(Path(folder), args.spans, args.journals)
        size = sum(path.stat().st_size for path in journals(Path(folder)))
        print(
            machine(args.rounds), f"{spans} spans, {args.journals} journals, {size / 1e6:.0f} MB", sep="\n", flush=True
        )
        print("", *table(rounds(Path(folder), args.rounds, ("read", *args.sides)), spans), sep="\n")


if __name__ == "__main__":
    main()
