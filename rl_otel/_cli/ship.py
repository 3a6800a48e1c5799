"""`rl-otel ship RUN`: sends what of a run is still to be sent, and on demand what its budget kept back."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rl_otel._cli.common import add_verb, chosen_run, complain
from rl_otel._config import Config
from rl_otel._read import NoRun

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from rl_otel._send import Sender, Target
    from rl_otel._ship.file import Part
    from rl_otel._ship.later import Account, Refused

_TRIES: Final = 4  # until a back end that does not answer is left alone
_LONGEST: Final = 30.0  # s that it may ask to wait

_DESCRIPTION = """\
Send the spans of a run that the back end does not have yet, with the cuts that the run
itself makes; --slowest, --slowest-rank, --trajectory and --all also send what the budget
of a trace kept back. Where to is said by the variables of OpenTelemetry, as in the run. Of
a run no span is sent twice; a file is sent anew each time, for nothing is noted beside it.
"""

_EPILOG = """\
exit codes:
  0  all is delivered that was to be
  1  something is pending, was refused by the back end, or would make a trace too large
  2  wrong usage, no run at that path, no such step or trajectory, or nowhere to send to

examples:
  rl-otel ship RUN                          what a killed run, or an outage, has left
  rl-otel ship RUN --step 12 --slowest 20   the detail of twenty trajectories of step 12
  rl-otel ship step.json                    what rl-otel export wrote
"""


def add_to(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = add_verb(
        verbs,
        run,
        help_="send what of a run is still to be sent",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        about="run folder, or OTLP JSON",
    )
    parser.add_argument("--step", metavar="N", type=int, help="only the trace of this step")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--trajectory", metavar="ID", help="also all detail of the trajectories with this id")
    which.add_argument("--slowest", metavar="K", type=_count, default=0, help="also that of the K slowest of each step")
    which.add_argument("--slowest-rank", action="store_true", help="also all of the rank that held up each step")
    which.add_argument("--all", action="store_true", help="also everything that the budget kept back")
    parser.add_argument("--own-trace", action="store_true", help="send a trajectory's detail as a linked trace")
    parser.add_argument(
        "--force", action="store_true", help="send also what makes a trace larger than its budget allows"
    )
    parser.add_argument("--endpoint", metavar="URL", help="where to (OTEL_EXPORTER_OTLP_ENDPOINT)")


def run(arguments: argparse.Namespace) -> int:
    """Ship a run or a file, and return the exit code."""
    path = arguments.folder
    config = _config(arguments.endpoint)
    if path is not None and path.is_file() and path.suffix != ".journal":
        if arguments.trajectory is not None or arguments.slowest or arguments.slowest_rank or arguments.own_trace:
            options = "--trajectory, --slowest, --slowest-rank and --own-trace"
            raise NoRun(f"{path} is a file: {options} go with a run folder")
        return _file(path, config, arguments.step)
    return _run(arguments, config)


def _config(endpoint: str | None) -> Config:
    try:
        config = Config.load(endpoint=endpoint)
    except ValueError as error:
        raise NoRun(str(error)) from None
    if config.endpoint is None:
        raise NoRun("nowhere to send to: give --endpoint URL or set OTEL_EXPORTER_OTLP_ENDPOINT")
    return config


def _target(config: Config, protocol: str | None = None) -> Target:
    from rl_otel._ship import target_of  # only who sends pays for it

    try:
        return target_of(config, protocol)
    except ValueError as error:
        raise NoRun(str(error)) from None


def _run(arguments: argparse.Namespace, config: Config) -> int:
    from rl_otel._ship import Wire
    from rl_otel._ship.later import Later
    from rl_otel._ship.wanted import Wish

    wish = Wish(arguments.step, arguments.trajectory, arguments.slowest, arguments.all, arguments.slowest_rank)
    if arguments.own_trace and (wish.slowest_rank or not wish.more):
        raise NoRun("--own-trace goes with --trajectory, --slowest or --all")
    folder = chosen_run("ship", arguments.folder)
    target = _target(config)
    with closing(Wire(target, config.timeout)) as wire:
        account = Later(folder, wire, _Patience()).ship(wish, own_trace=arguments.own_trace, force=arguments.force)
    if account.missing:
        raise NoRun(f"{account.missing} in {folder}")
    sys.stdout.write("\n".join(_lines(account, target)) + "\n")
    return 0 if account.complete else 1


def _lines(account: Account, target: Target) -> list[str]:
    lines = [f"{account.sent:,} spans sent to {target.url}; {account.before:,} were sent before"]
    if account.kept:
        lines.append(f"{account.kept:,} kept back by budget or sampler: see --slowest, --trajectory and --all")
    lines += [f"process {pid} delivers its spans itself" for pid in account.busy]
    if account.pending:
        lines.append(f"{account.pending:,} pending")
    if account.dropped:
        lines.append(f"{account.dropped:,} dropped: refused for good, or no longer in the journal")
    return lines + [_refused(each) for each in account.refused]


def _refused(each: Refused) -> str:
    trace = f"trace {each.trace.hex()}" if each.step is None else f"step {each.step} (trace {each.trace.hex()})"
    return (
        f"{trace}: {each.spans:,} more spans would make {_bytes(each.size)}, and its budget allows "
        f"{_bytes(each.limit)}: not sent. --own-trace sends each trajectory as a trace of its own, --force sends "
        "them all the same"
    )


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _file(path: Path, config: Config, step: int | None) -> int:
    """Send a file of OTLP JSON, or one step of it, and return the exit code."""
    from rl_otel._send import sender_for
    from rl_otel._ship.file import NoStep, NotOtlp, parts

    if config.protocol == "grpc":
        raise NoRun(f"{path} is JSON, which grpc does not take: give the endpoint for http, mostly port 4318")
    target = _target(config, "http/json")
    patience = _Patience()
    sent = left = 0
    try:
        with closing(sender_for(target)) as sender:
            for part in parts(path, step):
                accepted = _posted(sender, part, config.timeout, patience, target)
                sent += accepted
                left += part.spans - accepted
    except (NotOtlp, NoStep) as error:
        raise NoRun(str(error)) from None
    sys.stdout.write(f"{sent:,} spans sent to {target.url}" + (f", {left:,} not\n" if left else "\n"))
    return 1 if left else 0


def _posted(sender: Sender, part: Part, timeout: float, patience: _Patience, target: Target) -> int:
    """Send one request, and return how many spans were accepted."""
    from rl_otel._send import Backoff, State, diagnose

    backoff = Backoff()
    while not patience.over:
        outcome = sender.send(part.body, part.spans, timeout)
        if outcome.ok:
            return part.spans - outcome.rejected
        if outcome.state is not State.RETRY or not patience(backoff.delay(outcome.after), True):
            complain("ship", diagnose(target, outcome))
            break
    return 0


class _Patience:
    """Waits between tries, as long as there is hope."""

    def __init__(self) -> None:
        self._left = _TRIES

    @property
    def over(self) -> bool:
        """Whether there is none."""
        return self._left <= 0

    def __call__(self, seconds: float, patient: bool) -> bool:
        self._left = 0 if seconds > _LONGEST else self._left - 1
        if self.over:
            return False
        time.sleep(seconds)
        return True


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
