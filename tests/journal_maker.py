"""Journals for tests of what reads them: written record by record, as a training process would."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from rl_otel import _record, semconv
from rl_otel._journal import frame

S = 1_000_000_000
BEGAN = 1_700_000_000 * S


def trace_of(name: str) -> bytes:
    """Return a trace id for a name."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def span_of(name: str) -> bytes:
    """Return a span id for a name; no name is no parent."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest() if name else b""


class Maker:
    """One process's journal; times are seconds since `BEGAN`, traces and spans go by names.

    What it writes is by a clock that is so many seconds `ahead`.
    """

    def __init__(
        self, folder: Path, name: str = "host-1-aaaaaaaa", restart: int = 0, *, ahead: float = 0.0, **resource: Any
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.00000.journal"
        self._zero = BEGAN + round(ahead * S)
        self._last = self._zero
        self.trace = "trace"
        self.step_index: int | None = None
        self.process = {
            semconv.SERVICE_NAME: "grpo",
            semconv.HOST_NAME: "elsewhere",
            semconv.PROCESS_PID: 1,
            **resource,
        }
        self.write(_record.Process(_record.FORMAT, "run", restart, self.process, self._zero, 0))

    def write(self, record: _record.Record) -> None:
        """Append any record, at the moment it tells of."""
        with self.path.open("ab") as file:
            file.write(frame(_record.encode(record)))
        self._last = max(self._last, getattr(record, "end", 0), getattr(record, "start", 0))
        os.utime(self.path, ns=(self._last, self._last))

    def start(self, name: str, start: float, span: str = "", parent: str = "", /, **attributes: Any) -> None:
        """Append the start of a span."""
        trace, ids = trace_of(self.trace), (span_of(span or name), span_of(parent))
        self.write(_record.Start(trace, *ids, name, self._zero + round(start * S), self._attributes(name, attributes)))

    def end(self, name: str, start: float, end: float, span: str = "", parent: str = "", /, **attributes: Any) -> None:
        """Append a span that ended; the attribute `flags` is its flags."""
        flags = attributes.pop("flags", _record.SAMPLED)
        trace, ids = trace_of(self.trace), (span_of(span or name), span_of(parent))
        times = self._zero + round(start * S), self._zero + round(end * S)
        self.write(_record.End(trace, *ids, name, *times, self._attributes(name, attributes), flags))

    def trajectory(self, id_: str, start: float, end: float, parent: str = "rollout", /, **attributes: Any) -> None:
        """Append a trajectory from start to end, a quarter of it environment and the rest generate."""
        self.start("trajectory", start, id_, parent, **{semconv.TRAJECTORY_ID: id_})
        parts = {"generate": 0.75 * (end - start), "env": 0.25 * (end - start), "other": 0.0}
        known = {semconv.TRAJECTORY_PART.format(part=part): time for part, time in parts.items()}
        known |= {semconv.TRAJECTORY_ID: id_, semconv.TRAJECTORY_OUTCOME: "completed", semconv.TRAJECTORY_TURNS: 1}
        self.end("trajectory", start, end, id_, parent, **{**known, **attributes})

    def begin_step(self, index: int, start: float) -> None:
        """Append the start of a step, whose number all spans carry from then on."""
        self.step_index, self.trace = index, f"step {index}"
        self.start("step", start, f"step {index}")

    def _attributes(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        attributes: dict[str, Any] = {} if self.step_index is None else {semconv.STEP_INDEX: self.step_index}
        if name in semconv.PHASES:
            attributes[semconv.PHASE] = name
        return attributes | given


def one_step(maker: Maker, index: int, at: float = 0.0) -> None:
    """Append a step of ten seconds: a rollout with two trajectories, and two mini-batches."""
    maker.begin_step(index, at)
    root = f"step {index}"
    maker.start("rollout", at, "rollout", root)
    maker.trajectory(f"{index}/0", at, at + 2)
    maker.trajectory(f"{index}/1", at, at + 4)
    maker.end("rollout", at, at + 4, "rollout", root)
    maker.end("train", at + 4, at + 6, "train 1", root)
    maker.end("train", at + 6, at + 9, "train 2", root)
    maker.end("step", at, at + 10, root, **{semconv.LOSS: 0.5})
