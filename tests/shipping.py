"""Steps to ship, the command, and what arrived of them."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rl_otel
from rl_otel import _cli, _record, _runtime
from rl_otel._journal import Lock, journals, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.receiver import Receiver


def play(group: int, turns: int, sample: int = 0) -> None:
    """Record a trajectory of so many turns, two calls each."""
    with rl_otel.trajectory(group=group, sample=sample):
        for _ in range(turns):
            with rl_otel.generate(model="qwen3-8b") as generation:
                generation.record(input_tokens=1000, output_tokens=20, finish_reason="stop")
            with rl_otel.env_step("swe") as env_step:
                env_step.record(reward=0.5, terminated=False)


def play_step(index: int, trajectories: int, turns: int) -> None:
    """Record a step of a rollout."""
    with rl_otel.step(index), rl_otel.rollout():
        for group in range(trajectories):
            play(group, turns)


def record(folder: str, trajectories: int = 40, turns: int = 20, **settings: Any) -> Path:
    """Record two steps with nowhere to send them, and return their run folder."""
    rl_otel.configure(service_name="grpo", run_dir=folder, run_id="run", **settings)
    for index in range(2):
        play_step(index, trajectories, turns)
    rl_otel.shutdown()
    return Path(folder) / "run"


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Have nothing sent meanwhile, as if somebody else shipped the journal: what is recorded goes together."""
    assert _runtime.active is not None
    base = _runtime.active.journal.base
    base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = Lock(base)
    assert lock.take()
    try:
        yield
    finally:
        lock.release()


def copied(folder: Path, name: str, trace_budget: int | None = None) -> Path:
    """Return a copy of the journals of a run of which nothing was sent, perhaps with another budget."""
    Path(name).mkdir()
    for journal in journals(folder):
        copy = Path(shutil.copy(journal, name))
        if trace_budget is not None:
            _budgeted(copy, trace_budget)
    return Path(name)


def _budgeted(journal: Path, trace_budget: int) -> None:
    from rl_otel._journal import frame

    records = [record for record, _ in read(journal)]
    for record in records:
        if isinstance(record, _record.Process):
            record.sending |= {"budget": trace_budget, "quota": trace_budget}
    journal.write_bytes(b"".join(frame(_record.encode(record)) for record in records))


def ship(folder: Path, receiver: Receiver | None, *options: str) -> int:
    """Run the command in this process, and return its exit code."""
    where = [] if receiver is None else ["--endpoint", receiver.http]
    return _cli.main(["ship", str(folder), *where, *options])


def arrived(receiver: Receiver) -> dict[bytes, bytes]:
    """Return what arrived, by span: no span twice."""
    spans = {span.proto.span_id: span.proto.SerializeToString(deterministic=True) for span in receiver.spans}
    assert len(spans) == len(receiver.spans)
    return spans


def names(receiver: Receiver) -> Counter[str]:
    """Return how many spans of each name arrived."""
    return Counter(span.name for span in receiver.spans)


def ended(folder: Path) -> set[bytes]:
    """Return the ids of all spans that have ended."""
    records = (record for journal in journals(folder) for record, _ in read(journal))
    return {record.span for record in records if isinstance(record, _record.End | _record.Foreign)}
