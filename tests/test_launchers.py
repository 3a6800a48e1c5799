"""Ranks under real launchers: one run, one trace a step, and what a restart does to both."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rl_otel import semconv
from rl_otel._journal import journals, read
from rl_otel._record import End, Process, Start
from rl_otel.testing import Traces
from tests import needs
from tests.launching import UNNAMED, Ended, mpirun, torchrun
from tests.reporting import reported

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

#: Two steps, and who the rank is.
STEPS = """
    import json, sys
    import rl_otel
    from rl_otel import _runtime
    rl_otel.configure(run_dir="runs")
    for i in range(2):
        with rl_otel.step(i), rl_otel.train():
            pass
    who = _runtime.active.identity
    sys.stdout.write(json.dumps([who.run_id, who.restart, who.rank, who.world_size, who.local_rank]) + "\\n")
"""


def identities(ended: Ended) -> list[tuple[str, int, int, int, int]]:
    """Return run id, restart, rank, world size and local rank of each rank, by rank."""
    assert ended.code == 0, ended.errors
    found = [tuple(json.loads(line)) for line in ended.out.splitlines()]
    return sorted(found, key=lambda each: each[2])


def one_run() -> Path:
    (folder,) = Path("runs").iterdir()
    return folder


def assert_one_trace_a_step(folder: Path, ranks: int, steps: int) -> None:
    """Each step is one trace with one root, below which each other rank has its step with its phase."""
    traces = Traces(folder)
    assert [root.name for root in traces.roots] == ["step"] * steps
    assert len({root.trace_id for root in traces.roots}) == steps
    for root in traces.roots:
        assert semconv.RANK not in root.attributes
        joined = [child for child in root.children if child.name == "step"]
        assert sorted(child.attributes[semconv.RANK] for child in joined) == list(range(1, ranks))
        assert all([inside.name for inside in child.children] == ["train"] for child in joined)


@needs.torch
@pytest.mark.parametrize("options", [[], [*UNNAMED]])
def test_torchrun_of_one_node(options: list[str]) -> None:
    """Ranks of torchrun, with the id it makes up and with `none`, are one run without a setting."""
    found = identities(torchrun(STEPS, 3, *options))
    assert len({run_id for run_id, *_ in found}) == 1
    assert [tuple(rest) for _, *rest in found] == [(0, rank, 3, rank) for rank in range(3)]
    assert found[0][0].startswith("launch-") == bool(options)
    assert_one_trace_a_step(one_run(), 3, 2)


#: In the first attempt the last rank is killed in step 1, while the others are in it too.
DIES = """
    import os, signal, time
    from pathlib import Path
    import rl_otel
    rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    rl_otel.configure(run_dir="runs")
    for i in range(3):
        with rl_otel.step(i):
            with rl_otel.train():
                pass
            if first and i == 1:
                Path(f"reached-{rank}").touch()
                while rank < last or not all(Path(f"reached-{n}").exists() for n in range(last)):
                    time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
"""


@needs.torch
@pytest.mark.parametrize("ranks", [1, 4])
def test_an_elastic_restart(ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on under its id as restart 1, no span id comes twice, and the report says which steps ran again."""
    ended = torchrun(DIES, ranks, *UNNAMED, "--max-restarts", "1", "--monitor-interval", "0.1")
    assert ended.code == 0, ended.errors
    folder = one_run()
    processes = [record for record in records(folder) if isinstance(record, Process)]
    assert Counter(process.restart for process in processes) == {0: ranks, 1: ranks}
    begun = Counter(record.span for record in records(folder) if isinstance(record, Start))
    assert set(begun.values()) == {1}
    assert len({record.trace for record in records(folder) if isinstance(record, Start)}) == 5
    code, lines, error = reported(capsys, str(folder))
    assert (code, error) == (0, "")
    assert [line.split()[1] for line in lines if line.startswith("Step ")] == ["0", "1", "2"]
    assert [line for line in lines if "restart" in line.lower()] == [
        "  (done again after a restart)",
        "  (done again after a restart, which came in the midst of it)",
        "  Restarted once: steps 0 and 1 were done again",
    ]


def records(folder: Path) -> Iterator[Process | Start | End]:
    for journal in journals(folder):
        for record, _ in read(journal):
            if isinstance(record, (Process, Start, End)):
                yield record


@needs.mpich
def test_mpich() -> None:
    """Ranks of MPICH's mpiexec on one node are one run, behind a shell that starts each of them as well."""
    found = identities(mpirun(program("mpiexec.hydra"), STEPS, 2, "sh", "-c", '"$@"; true', "sh"))
    assert [tuple(rest) for _, *rest in found] == [(0, 0, 2, 0), (0, 1, 2, 1)]
    assert re.fullmatch(r"launch-\d+-[0-9a-f]{8}", found[0][0])
    assert_one_trace_a_step(one_run(), 2, 2)


def program(name: str) -> str:
    """Return where a program is: with the interpreter that runs the tests, as the index has it."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found is not None
    return found


#: Rank 2 takes longer over its data; then all meet.
SLOW = """
    import time
    import torch.distributed as dist
    import rl_otel
    dist.init_process_group("gloo")
    rl_otel.configure(run_dir="runs")
    for i in range(3):
        dist.barrier()
        with rl_otel.step(i):
            with rl_otel.data():
                time.sleep(0.6 if dist.get_rank() == 2 else 0.01)
            with rl_otel.train():
                {around}
                    dist.barrier()
                time.sleep(0.05)
    rl_otel.shutdown()
    dist.destroy_process_group()
"""


@needs.torch
@pytest.mark.parametrize("around", ['with rl_otel.wait("collective"):', "if True:"])
def test_the_rank_that_all_wait_for_is_blamed(around: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of four real ranks the one that is slow before a barrier is named, with the phase, not those that wait for it."""
    ended = torchrun(SLOW.format(around=around), 4, "--monitor-interval", "0.1")
    assert ended.code == 0, ended.errors
    code, lines, error = reported(capsys, str(one_run()))
    assert (code, error) == (0, "")
    blamed = [line for line in lines if "Held up" in line]
    assert len(blamed) == 4
    told = re.compile(r"  Held up by rank 2: 0\.\d+s above the median, most of it in data")
    assert all(map(told.fullmatch, blamed[:3]))
    assert blamed[3] == "  Held up by rank 2 in 3 steps"
