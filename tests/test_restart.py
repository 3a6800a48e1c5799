"""Ids across attempts and processes of a run: equal where they must be, and else never repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel._journal import journals, read
from rl_otel._record import Process
from rl_otel.testing import Traces, capture
from tests import process

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.once

#: Prints trace and span ids of what it records.
RECORDS = """
    import json, random
    import rl_otel
    random.seed(42)
    rl_otel.configure(run_dir="runs")
    ids = []
    for i in (0, 1, 1):
        with rl_otel.step(i) as step, rl_otel.train() as train:
            ids += [(step.trace_id, step.span_id), (train.trace_id, train.span_id)]
    with rl_otel.trajectory("17/3") as trajectory:
        ids += [(trajectory.trace_id, trajectory.span_id)]
    print(json.dumps(ids))
"""


def ids_of(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Run a process under these variables, and return the ids it used: three steps with a phase, one trajectory."""
    return [(trace, span) for trace, span in json.loads(process.run(RECORDS, env=env).stdout)]


def restarts(folder: Path) -> list[int]:
    firsts = [next(read(path))[0] for path in journals(folder)]
    return sorted(first.restart for first in firsts if isinstance(first, Process))


def test_a_process_alone_counts_its_attempts() -> None:
    """Started again under the same run id, the run goes on as another restart; no id is used twice."""
    attempts = [ids_of({"RL_OTEL_RUN_ID": "again"}) for _ in range(3)]
    assert restarts(Path("runs/again")) == [0, 1, 2]
    spans = [span for attempt in attempts for _, span in attempt]
    traces = {trace for attempt in attempts for trace, _ in attempt}
    assert len(spans) == len(set(spans)) == 21
    assert len(traces) == 12


def test_a_step_opened_twice_is_another_trace() -> None:
    """The second opening of a step in one process gets ids of its own, and its own children."""
    with capture() as traces:
        for _ in range(2):
            with rl_otel.step(5), rl_otel.train():
                pass
        first, second = traces.all("step")
        assert first.trace_id != second.trace_id
        assert first.span_id != second.span_id
        assert [train.parent_id for train in traces.all("train")] == [first.span_id, second.span_id]


def test_what_the_launcher_counts_is_the_restart() -> None:
    """RL_OTEL_RESTART decides, and the same restart derives the same steps."""
    first, again, next_one = (ids_of({"RL_OTEL_RUN_ID": "told", "RL_OTEL_RESTART": n}) for n in ("4", "4", "5"))
    assert first[0] == again[0]
    assert not {trace for trace, _ in first} & {trace for trace, _ in next_one}
    assert restarts(Path("runs/told")) == [4, 4, 5]


@pytest.mark.parametrize("role", ["", "generator"])
def test_ranks_join_the_steps_of_rank_0(role: str) -> None:
    """Two ranks derive the same traces without talking; the root span is rank 0's, the other's step is below it."""
    shared = {"RL_OTEL_RUN_ID": "ranks", "WORLD_SIZE": "2"}
    first = ids_of({**shared, "RANK": "0"})
    second = ids_of({**shared, "RANK": "1", "RL_OTEL_ROLE": role})
    assert [trace for trace, _ in first] == [trace for trace, _ in second]
    assert not {span for _, span in first[:6]} & {span for _, span in second[:6]}
    traces = Traces(Path("runs/ranks"))
    roots = [span for span in traces.roots if span.name == "step"]
    assert [span.span_id for span in roots] == [first[0][1], first[2][1], first[4][1]]
    assert [[child.name for child in root.children] for root in roots] == [["train", "step"]] * 3
    assert {child.attributes["rl.rank"] for root in roots for child in root.children if child.name == "step"} == {1}


def test_runs_without_a_name_share_nothing() -> None:
    """Two runs that nobody named are two runs, though started alike."""
    first, second = ids_of({}), ids_of({})
    assert not {trace for trace, _ in first} & {trace for trace, _ in second}
    assert len(list(Path("runs").iterdir())) == 2


def test_an_earlier_attempt_that_cannot_be_read_stops_nobody() -> None:
    """Garbage among the journals of a run, or a folder of that name, costs nothing."""
    folder = Path("runs/again")
    (folder / "folder-1-a.00000.journal").mkdir(parents=True)
    (folder / "garbage-1-a.00000.journal").write_bytes(b"\xc1R" + bytes(range(256)))
    assert len(ids_of({"RL_OTEL_RUN_ID": "again"})) == 7
