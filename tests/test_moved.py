"""What the host does to files and folders while a run goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rl_otel
from rl_otel import Delivery
from rl_otel._journal import journals, read
from rl_otel._record import End
from tests import process
from tests.receiver import Receiver


def spans(folder: Path) -> list[str]:
    """Return the names of the spans in a run folder."""
    return [record.name for path in journals(folder) for record, _ in read(path) if isinstance(record, End)]


def test_closing_all_files_harms_neither_the_host_nor_the_journal() -> None:
    """A host that closes every file it did not open gets none of our bytes into the next one, and loses no span."""
    done = process.run(
        """
        import os, rl_otel
        rl_otel.configure(run_dir="runs", run_id="r")
        with rl_otel.step(0): pass
        os.closerange(3, 2048)
        host = open("checkpoint.bin", "wb")
        host.write(b"WEIGHTS"); host.flush()
        with rl_otel.step(1): pass
        print(rl_otel.shutdown())
        host.write(b"!"); host.close()
        """
    )
    assert Path("checkpoint.bin").read_bytes() == b"WEIGHTS!"
    assert "kept=2" in done.stdout
    assert spans(Path("runs/r")) == ["step", "step"]


def test_a_removed_run_folder_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    """What was in a folder that somebody removes counts as dropped, with one line, and what comes after is recorded."""
    rl_otel.configure(run_dir="runs", run_id="r")
    for i in range(3):
        with rl_otel.step(i):
            pass
    shutil.rmtree("runs/r")
    from rl_otel import _runtime

    assert _runtime.active is not None
    _runtime.active.journal.tend()
    with rl_otel.step(3):
        pass
    assert rl_otel.shutdown() == Delivery(kept=1, dropped=3)
    assert spans(Path("runs/r")) == ["step"]
    assert [record.getMessage() for record in caplog.records] == [
        f"rl_otel: {Path('runs/r').absolute()} was removed during the run, and 3 spans with it"
    ]


def test_a_host_that_changes_its_directory_loses_nothing() -> None:
    """A run folder given by a relative path stays where it was when the host goes elsewhere."""
    Path("elsewhere").mkdir()
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_dir="runs", run_id="r")
        with rl_otel.step(0):
            pass
        rl_otel.flush()
        os.chdir("elsewhere")
        with rl_otel.step(1):
            pass
        report = rl_otel.shutdown()
    assert report == Delivery(sent=2)
    assert Path(report.folder).is_dir()
    assert not Path("runs").exists()


@pytest.mark.parametrize("timeout", [float("inf"), 1e10, None, "soon", float("nan"), -1])
def test_any_timeout_is_one(timeout: object) -> None:
    """Whatever number of seconds the host asks for, flush and shutdown return what became of the spans."""
    rl_otel.configure(run_dir="runs", run_id="r")
    with rl_otel.step(0):
        pass
    assert rl_otel.flush(timeout) == Delivery(kept=1)  # type: ignore[arg-type]
    assert rl_otel.shutdown(timeout) == Delivery(kept=1)  # type: ignore[arg-type]
