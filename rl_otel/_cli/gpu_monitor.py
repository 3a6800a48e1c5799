"""`rl-otel gpu-monitor`: watches the GPUs of a node on which no process of a run does, for as long as it is left to."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from rl_otel._cli.common import add_verb, complain
from rl_otel._config import Config
from rl_otel._identity import MONITOR
from rl_otel._table import exact, percent
from rl_otel._terminal import printable

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from rl_otel._readings import Reading, Time
    from rl_otel._runtime import Runtime

_GIB: Final = 1 << 30
_PATIENCE: Final = 30.0  # s for a driver's first answer

_DESCRIPTION = """\
Watch every GPU of this node that no other process watches, and what time it spends, and how
busy, in each phase of the run that is here. That is exported as the metrics of a run are: to
the endpoint of the environment, or into a run folder. Ends by Ctrl-C, and prints it then.
"""

_EPILOG = """\
exit codes:
  0  it was told to end
  1  there is no GPU here, or all are watched by others
"""


def add_to(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    add_verb(verbs, run, help_="watch all GPUs of this node", description=_DESCRIPTION, epilog=_EPILOG, about=None)


def run(arguments: argparse.Namespace) -> int:
    """Watch until somebody ends it, and return the exit code."""
    from rl_otel import _configure, _runtime  # only who watches pays for it

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _configure.begin(Config.load(gpu_all=True, role=MONITOR))
    runtime = _runtime.active
    gpu = None if runtime is None else runtime.gpu
    try:
        found = [] if gpu is None else _first(gpu)
        if runtime is None or not found:
            complain("gpu-monitor", "there is no GPU here, or all are watched by others")
            return 1
        runtime.watch()
        _tell([*map(_device, found), _where(runtime)])
        while True:
            time.sleep(1.0)
    except KeyboardInterrupt:
        _tell(_phases([] if gpu is None else gpu.times()))
        return 0
    finally:
        _runtime.shutdown()


def _first(gpu: Any) -> list[Reading]:
    """Return the devices when they were seen for the first time; none where there is no driver."""
    until = time.monotonic() + _PATIENCE
    while not (found := gpu.readings()) and any(worker.alive for worker in gpu.workers) and time.monotonic() < until:
        time.sleep(0.02)
    return list(found)


def _where(runtime: Runtime) -> str:
    """Return the line that says where metrics go."""
    from rl_otel._send import shown

    config = runtime.config
    if runtime.meter is None:
        return "nothing is exported"
    where = runtime.folder.shown if config.metrics_endpoint is None else shown(config.metrics_endpoint)
    return f"exported to {where} every {config.metrics_interval:g} s"


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def _device(reading: Reading) -> str:
    words = [f"{reading.hw_id} {reading.name}"]
    if reading.used is not None and reading.limit is not None:
        words.append(f"{reading.used / _GIB:.2f} of {reading.limit / _GIB:.2f} GiB")
    words += [] if reading.utilization is None else [percent(reading.utilization)]
    words += [] if reading.power is None else [f"{reading.power:.0f} W"]
    return ", ".join(words)


def _phases(times: list[Time]) -> Iterator[str]:
    """Yield a line a phase, of all devices together."""
    for phase in sorted({each.phase for each in times}):
        sampled = sum(each.sampled for each in times if each.phase == phase)
        busy = sum(each.busy for each in times if each.phase == phase)
        if sampled:
            yield f"{phase}: {exact(round(sampled * 1e9))} watched, busy {percent(busy / sampled)}"
