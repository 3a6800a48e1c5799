"""Many ranks and one trace: what each of them sends, and how the rest comes later."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rl_otel import _record, semconv
from rl_otel._budget import quota
from rl_otel._config import Config
from rl_otel._identity import identify
from rl_otel._ids import derive
from rl_otel._journal import journals, read
from tests import process
from tests.budgeted import Story, played, selector
from tests.metrics import points
from tests.shipping import arrived, ship

if TYPE_CHECKING:
    from tests.receiver import Receiver

pytestmark = pytest.mark.once

#: One of 32 ranks of one node: of these rank 0 alone sends spans. Rank 2 is slow, in another phase each step.
RANK = """
    import os, time
    import rl_otel
    slow = os.environ["RANK"] == "2"
    rl_otel.configure(service_name="grpo", run_id="run", run_dir="runs")
    for i in range(2):
        with rl_otel.step(i), rl_otel.rollout():
            with rl_otel.trajectory(group=i):
                for _ in range(int(os.environ.get("CALLS", "40"))):
                    with rl_otel.generate():
                        pass
            time.sleep(0.2 if slow else 0)
    rl_otel.shutdown()
"""


def ranks(*numbers: int, **env: str) -> None:
    """Run some ranks to their end."""
    world = {"WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "32", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}
    places = [{"RANK": str(number), "LOCAL_RANK": str(number), **world, **env} for number in numbers]
    started = [process.start(RANK, env=place) for place in places]
    ended = [each.communicate() for each in started]
    assert all(each.returncode == 0 for each in started), ended


def spans_of(rank: int) -> dict[bytes, _record.End]:
    """Return what ended on a rank, from its journal, by span."""
    found: dict[bytes, _record.End] = {}
    for journal in journals(Path("runs/run")):
        records = [record for record, _ in read(journal)]
        assert isinstance(records[0], _record.Process)
        if records[0].resource[semconv.RANK] == rank:
            found |= {record.span: record for record in records if isinstance(record, _record.End)}
    return found


def test_ranks_without_a_quota_send_metrics_alone(receiver: Receiver) -> None:
    """Of 32 ranks of one node rank 0 has the trace; the metrics of each of them arrive."""
    ranks(0, 1, 2, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.http)
    assert set(arrived(receiver)) == set(spans_of(0))
    steps = [point for export in receiver.exports for point in points(export.message).get("rl.loop.duration", [])]
    assert {point.resource[semconv.RANK]: point.proto.count for point in steps} == {0: 2, 1: 2, 2: 2}


def test_the_slowest_rank_is_sent_on_demand(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """All of the rank that held up a step comes into the trace that is there, under its ids, once."""
    ranks(0, 1, 2)
    folder = Path("runs/run")
    assert ship(folder, receiver, "--step", "0") == 0
    before = arrived(receiver)
    assert {span for span, record in spans_of(0).items() if record.attributes[semconv.STEP_INDEX] == 0} == set(before)
    slow = {span: record for span, record in spans_of(2).items() if record.attributes[semconv.STEP_INDEX] == 0}
    assert len(slow) == 43
    for again in (False, True):
        assert ship(folder, receiver, "--step", "0", "--slowest-rank") == 0
        assert set(arrived(receiver)) == set(before) | set(slow)
        told = capsys.readouterr().out.splitlines()
        assert told[-2].startswith(f"{0 if again else 43} spans sent to ")
    joined = next(span for span in receiver.spans if span.attributes.get(semconv.RANK) == 2)
    trace, root = derive("run", 0, "step", 0, 1)
    assert (joined.proto.trace_id, joined.proto.parent_span_id) == (trace, root)
    assert ship(folder, receiver, "--slowest-rank") == 0
    assert set(arrived(receiver)) == set(spans_of(0)) | set(spans_of(2))


def test_the_reserve_holds_for_a_rank_as_well(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """What would make the trace larger than its budget allows is refused with the figure, unless it is forced."""
    ranks(0, 2, RL_OTEL_TRACE_BUDGET="20", CALLS="200")
    folder = Path("runs/run")
    assert ship(folder, receiver, "--step", "1", "--slowest-rank") == 1
    assert "--force" in capsys.readouterr().out.splitlines()[-1]
    assert not {span.proto.span_id for span in receiver.spans} & set(spans_of(2))
    assert ship(folder, receiver, "--step", "1", "--slowest-rank", "--force") == 0
    assert len([span for span in arrived(receiver) if span in spans_of(2)]) == 203


@pytest.mark.parametrize("options", [["--slowest-rank", "--own-trace"], ["--slowest-rank", "--all"]])
def test_options_that_do_not_go_with_it(options: list[str], receiver: Receiver) -> None:
    """A rank is no trajectory, and all is all."""
    ranks(0, 2)
    try:
        code = ship(Path("runs/run"), receiver, *options)
    except SystemExit as left:
        code = int(str(left.code))
    assert (code, receiver.spans) == (2, [])


def test_where_no_step_has_several_ranks(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of one process has no slowest rank, and that is said."""
    ranks(0)
    assert ship(Path("runs/run"), receiver, "--slowest-rank") == 2
    assert capsys.readouterr().err == "rl-otel ship: no step of several ranks has ended in runs/run\n"


# --- 1,024 of them ----------------------------------------------------------------------------------------------------

SPANS = 10_000


@pytest.mark.parametrize("launcher", ["torchrun", "srun"])
def test_a_thousand_ranks_make_one_trace_within_its_budget(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 128 nodes of 8 ranks sixteen ranks send, rank 0 among them: spans and bytes together are below the budget."""
    sent: Counter[int] = Counter()
    size = 0
    trace, _ = derive("run", 0, "step", 0, 1)
    for rank in range(1024):
        for name, value in _place(launcher, rank).items():
            monkeypatch.setenv(name, value)
        who = identify(Config.load())
        assert (who.rank, who.world_size, who.node, who.nodes) == (rank, 1024, rank // 8, 128)
        part = quota(SPANS, who)
        story = _step(rank, trace, calls=6000 if part else 20)
        done = played(story.records, selector(SPANS, quota=part))
        assert len(done.spans) <= part
        sent[rank], size = len(done.spans), size + done.size
        assert bool(part) == (rank % 64 == 0)
        if part:
            assert {"step", "rollout", "train"} <= {span.name for span in done.spans}
    assert sent[0] > 3000
    assert 6000 < sent.total() <= SPANS
    assert size <= SPANS * 400


def _place(launcher: str, rank: int) -> dict[str, str]:
    node, local = divmod(rank, 8)
    if launcher == "torchrun":
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
        return {"RL_OTEL_RUN_ID": "run", **dict(zip(names, map(str, (rank, 1024, local, 8, node, 128)), strict=True))}
    names = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NNODES", "SLURM_JOB_ID")
    values = map(str, (rank, 1024, local, node, 128, 77))
    return {"SLURM_STEP_ID": "0", **dict(zip(names, values, strict=True))}


def _step(rank: int, trace: bytes, calls: int) -> Story:
    """A step with phases, and a rollout of trajectories with so many calls in all."""
    story = Story(trace)
    story.begin("step", 0, "step", "root" if rank else "")
    story.begin("rollout", 0, "rollout", "step")
    for number in range(calls // 20):
        story.play(f"t{number}", 0, 10 + number / 10, 20)
    story.end("rollout", 30)
    story.begin("train", 30, "train", "step")
    story.end("train", 50)
    story.end("step", 51)
    return story
