"""What a process leaves to those it starts, in the variable RL_OTEL_PARENT: which run it records, where, and how.

Headers are never in it, nor anything else that is secret: a process that could not send without them leaves its journal
to be delivered by the one it comes from.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rl_otel._config import put_variable, unset_knobs, variable
from rl_otel._life import runs_since
from rl_otel._safety import say_once

if TYPE_CHECKING:
    from rl_otel._config import Config
    from rl_otel._identity import Identity

VARIABLE: Final = "RL_OTEL_PARENT"
_LONGEST: Final = 16_384  # characters
_SETTINGS: Final = ("service_name", "endpoint", "protocol", "trace_budget")


class Inherited(NamedTuple):
    """The run of the process that this one was started by."""

    run_id: str
    restart: int
    folder: str  # the run folder
    passing: bool  # whether that only serves the sending
    service_name: str
    endpoint: str | None
    protocol: str | None
    trace_budget: int
    sends: bool  # whether what is here, and in the environment, is enough to send
    rank: int
    world_size: int
    host: str  # of the process that began the run, with its pid
    pid: int
    time: int  # when that began to record, ns since the epoch

    @property
    def settings(self) -> dict[str, Any]:
        """What stands for settings that the environment does not say."""
        return {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}


def inherited(host: str) -> Inherited | None:
    """Return what this process was left, None where there is nothing, or nothing that still holds."""
    text = variable(VARIABLE)
    if text is None:
        return None
    found = _read(text)
    if found is None:
        say_once(VARIABLE, "rl_otel: ignoring %s: it is torn, or of another version", VARIABLE)
        return None
    here = found.host == host
    if here and found.pid == os.getpid():
        return None  # what this process itself was before it became another program
    if here and not runs_since(found.pid, found.time):
        say_once(VARIABLE, "rl_otel: ignoring %s: run %s, which it names, is over", VARIABLE, found.run_id)
        return None
    return found


def _read(text: str) -> Inherited | None:
    try:
        told = json.loads(text) if len(text) <= _LONGEST else {}
        found = Inherited(**{name: told[name] for name in Inherited._fields})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    for value, kind in zip(found, _KINDS, strict=True):
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            return None
    return found if found.run_id and _is_sound(found) and Path(found.folder).is_absolute() else None


def _is_sound(found: Inherited) -> bool:
    """Whether texts can stand in a request, numbers have 64 bits, and the folder has a name that a system takes."""
    try:
        "".join(value for value in found if isinstance(value, str)).encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in found.folder and all(abs(value) < 1 << 63 for value in found if isinstance(value, int))


_TEXT_OR_NONE: Final = (str, type(None))
_KINDS: Final[tuple[Any, ...]] = (
    str, int, str, bool, str, _TEXT_OR_NONE, _TEXT_OR_NONE, int, bool, int, int, str, int, int,
)  # fmt: skip


class Left:
    """What this process leaves in its environment, until it takes that back."""

    def __init__(self, inheritance: Inherited) -> None:
        self._text = json.dumps(inheritance._asdict())
        self._before = put_variable(VARIABLE, self._text)

    def take_back(self) -> None:
        """Leave nothing any more; what this process was left itself is there again."""
        if variable(VARIABLE) == self._text:
            put_variable(VARIABLE, self._before)


def left_by(config: Config, identity: Identity, folder: Path, *, passing: bool, time: int) -> Inherited:
    """Return what a process leaves to those it starts.

    Args:
        config: its settings.
        identity: who it is.
        folder: of the run.
        passing: whether that only serves the sending.
        time: when it began to record, ns since the epoch.
    """
    parent = identity.parent
    endpoint = config.endpoint
    if endpoint is not None and ("@" in endpoint or config.endpoint_exact):
        endpoint = None  # a password, and what only the variable can say: in the environment or nowhere
    told_here = unset_knobs()
    secret = bool(config.headers) and "headers" in told_here
    known = endpoint is not None or "endpoint" not in told_here
    return Inherited(
        identity.run_id,
        identity.restart,
        str(folder),
        passing,
        config.service_name,
        endpoint,
        config.protocol,
        config.trace_budget,
        config.sends and config.exporter is None and known and not secret,
        identity.rank,
        identity.world_size,
        *((identity.host, identity.pid, time) if parent is None else (parent.host, parent.pid, parent.time)),
    )
