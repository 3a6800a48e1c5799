"""Signs of life: what is known of a process that hung, was killed, or still runs."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

import pytest

import rl_otel
from rl_otel import _keeper, _life, _runtime, semconv
from rl_otel.__main__ import main
from rl_otel._deferred import Deferred
from rl_otel._journal import journals
from rl_otel._life import lives
from rl_otel._record import FORMAT, Process
from tests import process
from tests.waiting import until

HERE = {semconv.HOST_NAME: socket.gethostname(), semconv.PROCESS_PID: os.getpid()}

#: The clock of the run is 800 s behind and its file looks as old; all that tells of these 800 s is the next tick.
HANGS = """
    import os, time
    from pathlib import Path
    import rl_otel
    from rl_otel import _clock, _keeper
    from rl_otel._journal import journals, read
    from tests.waiting import until

    _clock.OFFSET -= 800_000_000_000
    _keeper.TICK, _keeper.LONG = 0.02, 10_000_000
    rl_otel.configure(run_dir="runs", run_id="hangs")

    with rl_otel.step(17), rl_otel.rollout(), rl_otel.trajectory("17/3"), rl_otel.env_step("swe"):
        [path] = journals(Path("runs/hangs"))
        until(lambda: [record for record, _ in read(path)][-1].name == "env.step")
        os.utime(path, (time.time() - 790, time.time() - 790))
        until(lambda: time.time() - path.stat().st_mtime < 100)
        os.kill(os.getpid(), 9)
"""


def test_a_process_killed_after_a_long_hang_shows_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    """An environment that hung for 800 s before the kill is open for 800 s, though nothing was written since."""
    assert process.run(HANGS, check=False).returncode == -9
    assert main(["report", "runs/hangs", "--step", "17"]) == 0
    out = capsys.readouterr().out
    (age,) = re.findall(r"17/3 turn 1 env.step swe, open (\d+) s", out)
    assert 800 <= int(age) <= 830
    assert "is gone; last heard of " in out


def wait_until_touched(path: Path) -> None:
    """Wait until the keeper has touched a file that looks old."""
    os.utime(path, (1, 1))
    until(lambda: path.stat().st_mtime > 1)


def test_a_value_that_never_comes_does_not_stop_the_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that hangs is what a run dies of: the keeper looks for its values and touches the journal as well."""
    monkeypatch.setattr(_keeper, "TICK", 0.02)
    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0):
        pass
    (path,) = journals(Path("runs/r1"))
    runtime = _runtime.active
    assert runtime is not None
    never = Deferred(0.5)
    monkeypatch.setattr(never, "ready", lambda: False)
    runtime.defer(b"12345678", lambda *_: None, [(semconv.WORDS["step"]["loss"], never)])
    wait_until_touched(path)
    assert len(runtime.late) == 1


def test_a_quiet_process_writes_nothing_to_say_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sign of life is a time of the file and no record: a run that waits for hours makes no journal of waiting."""
    monkeypatch.setattr(_keeper, "TICK", 0.02)
    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0):
        pass
    (path,) = journals(Path("runs/r1"))
    size = path.stat().st_size
    wait_until_touched(path)
    assert path.stat().st_size == size


# --- Whether a process lives ------------------------------------------------------------------------------------------


def who(began: int, **resource: object) -> Process:
    return Process(FORMAT, "run", 0, {**HERE, **resource}, began, 0)


def test_a_process_that_began_before_its_journal_lives() -> None:
    """This process is alive, and known to be."""
    assert lives(who(time.time_ns()))


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs the times at which processes began")
def test_a_number_that_was_given_out_again_is_another_process() -> None:
    """A process that began after the journal did not write it."""
    assert not lives(who(1_700_000_000_000_000_000))


def test_where_the_system_does_not_tell_the_number_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without start times a process of that number is taken for the one."""
    monkeypatch.setattr(_life, "started_at", lambda pid: None)
    assert lives(who(1))


def test_a_process_of_another_user_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that may not be sent a signal is there."""

    def kill(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", kill)
    assert lives(who(time.time_ns()))


@pytest.mark.parametrize(
    "resource",
    [{semconv.HOST_NAME: "elsewhere"}, {semconv.PROCESS_PID: "7"}, {semconv.PROCESS_PID: None}],
    ids=["another host", "no number", "nothing"],
)
def test_of_what_is_not_here_nothing_is_known(resource: dict[str, object]) -> None:
    """A number means nothing on another host, and a journal that tells none belongs to nobody."""
    assert not lives(who(time.time_ns(), **resource))
