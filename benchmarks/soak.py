"""Runs a rollout after the other for minutes, and says what grows: `python -m benchmarks.soak --minutes 10`.

The receiver goes away now and then and comes back. What a day would fill is small here, so that a minute fills it:
segments of 256 KiB, 6 MB of disk, 1,000 trajectories and 50 steps to be remembered, a budget that keeps a part of each
step back.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.receiver import take

EVERY = 2.0  # s between two samples
COLD = 90.0  # s at the beginning, half of the time at most, that are left out: files fill up
HERE, AWAY = (20.0, 60.0), (2.0, 10.0)  # s, from and to

#: What is sampled, and its unit.
ROWS = {"memory": "MB", "descriptors": "", "threads": "", "files": "", "disk": "MB"}


class Receiver:
    """The other end, in a process of its own, that goes away and comes back."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        self.endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
        self.outages = 0
        self.received = 0
        self.again = 0
        self._process = process
        self._here = True
        self._next = time.monotonic() + random.uniform(*HERE)

    def tend(self) -> None:
        """Go or come, if it is time for that; while it is here, ask what came."""
        if self._here:
            self.count()
        if time.monotonic() >= self._next:
            self._turn()

    def come(self) -> None:
        """Be here."""
        if not self._here:
            self._turn()

    def count(self) -> None:
        """Add up what has arrived."""
        counts = take(self.endpoint)
        self.received += counts["new"]
        self.again += counts["spans"] - counts["new"]

    def _turn(self) -> None:
        self._process.send_signal(signal.SIGUSR1)
        self._here = not self._here
        self.outages += not self._here
        self._next = time.monotonic() + random.uniform(*(HERE if self._here else AWAY))


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Run one."""
    command = [sys.executable, "-m", "benchmarks.receiver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Receiver(process)
        finally:
            process.kill()


def sample(pid: int, folder: Path) -> dict[str, float]:
    """Return what a process has and takes now."""
    proc = Path(f"/proc/{pid}")
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "memory": int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "descriptors": len(list((proc / "fd").iterdir())),
        "threads": len(list((proc / "task").iterdir())),
        "files": len(files),
        "disk": sum(_size(path) for path in files) / 1e6,
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it goes just now
        return 0


def verdict(values: list[float]) -> tuple[float, float, bool]:
    """Return how much a row has grown by its slope, how far it strays from that line, and whether that is growth."""
    slope, start = statistics.linear_regression(range(len(values)), values)
    noise = statistics.pstdev(value - (start + slope * index) for index, value in enumerate(values))
    grown = slope * (len(values) - 1)
    return grown, noise, grown > max(2 * noise, 0.02 * statistics.median(values))


def main() -> None:
    """Run, sample, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default %(default)g)")
    minutes = parser.parse_args().minutes
    with receiver() as other, tempfile.TemporaryDirectory() as folder:
        env = {"TMPDIR": folder, "OTEL_EXPORTER_OTLP_ENDPOINT": other.endpoint, "RL_OTEL_PRINT": "0"}
        samples, counts = _watch(minutes * 60, other, Path(folder), {**os.environ, **env})
    growing = [*_print_rows(samples), *_print_counts(counts, other)]
    sys.exit(f"not as it should be: {', '.join(growing)}" if growing else 0)


def _watch(
    seconds: float, other: Receiver, folder: Path, env: dict[str, str]
) -> tuple[list[dict[str, float]], dict[str, int]]:
    command = [sys.executable, "-m", "benchmarks.soaked", str(seconds)]
    samples = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout
        until = time.monotonic() + seconds
        while time.monotonic() < until and process.poll() is None:
            time.sleep(EVERY)
            samples.append(sample(process.pid, folder))
            other.tend()
        other.come()
        told = process.communicate("now leave\n")[0]
        other.count()
    return samples[int(min(COLD, seconds / 2) / EVERY) :], json.loads(told)


def _print_rows(samples: list[dict[str, float]]) -> Iterator[str]:
    print(f"{'':12} {'median':>8} {'least':>8} {'most':>8} {'slope':>8} {'noise':>8}")
    for row, unit in ROWS.items():
        values = [each[row] for each in samples]
        grown, noise, grows = verdict(values)
        figures = (statistics.median(values), min(values), max(values), grown, noise)
        cells = " ".join(f"{figure:8.1f}" for figure in figures)
        print(f"{row:12} {cells} {unit:3} {'GROWING' if grows else 'flat'}")
        if grows:
            yield row


def _print_counts(counts: dict[str, Any], other: Receiver) -> Iterator[str]:
    print(f"{counts['steps']} steps, {counts['ended']} spans ended = ", end="")
    print(" + ".join(f"{counts[state]} {state}" for state in ("sent", "kept", "dropped", "pending")))
    print(f"{other.received} arrived, {other.again} of them again; the receiver went away {other.outages} times")
    if counts["ended"] != sum(counts[state] for state in ("sent", "kept", "dropped", "pending")):
        yield "the sum"
    if counts["pending"] or counts["dropped"]:
        yield "pending or dropped spans"
    if other.received != counts["sent"]:
        yield "what arrived"


if __name__ == "__main__":
    main()
