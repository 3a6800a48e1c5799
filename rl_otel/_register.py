"""The register of a process: which ids its steps and trajectories get, so that others can derive or find them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import count
from typing import Final, NamedTuple, TypeVar

from rl_otel import _ids, semconv
from rl_otel._identity import Identity
from rl_otel._safety import say, say_once

RECENT: Final = 16_384  # trajectories inside steps that a later step can link to by their id
_SYNCS: Final = 1024  # weight syncs whose version a trajectory can link to
_KNOWN: Final = 100_000  # trajectories of a trace of their own that are remembered, to tell a repeated id

_AGAIN: Final = (
    "rl_otel: step %d was opened before in this process; this one is a trace of its own, beside the first. If "
    "it is the next one, give step() the number that your trainer logs, or none, and steps are counted"
)
Key = TypeVar("Key")
Value = TypeVar("Value")


class Played(NamedTuple):
    """What is known of a trajectory that has ended here."""

    version: int | None  # of the policy, when it began
    group: str | None
    environment: str | None
    mode: str | None


class Register:
    """What one process of a run has numbered and named.

    Args:
        identity: of the process.
    """

    def __init__(self, identity: Identity) -> None:
        self._run = identity.run_id, identity.restart
        self._instance = identity.instance[:8]
        self._last_step = -1
        self._openings: dict[int, int] = {}
        self._lone: OrderedDict[bytes, None] = OrderedDict()
        self._recent: OrderedDict[tuple[str, int, int], tuple[bytes, bytes]] = OrderedDict()
        self._played: OrderedDict[tuple[str, int], Played] = OrderedDict()  # by id and attempt
        self._syncs: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()  # by policy version
        self._brought: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()  # those of other processes
        self._trajectories = count()
        self._lock = threading.RLock()

    def forked(self, identity: Identity) -> Register:
        """Return the register of a forked child, which goes on with its parent's numbers and names."""
        child = Register(identity)
        child._last_step, child._lone, child._recent = self._last_step, self._lone, self._recent
        child._played, child._syncs, child._brought = self._played, self._syncs, self._brought
        return child

    def next_step(self, number: int | None = None) -> int:
        """Return the number of the step that begins now: `number`, or one more than the last."""
        with self._lock:
            self._last_step = self._last_step + 1 if number is None else number
            return self._last_step

    def next_opening(self, index: int) -> int:
        """Return 1, 2, 3… for the openings of a step in this process."""
        with self._lock:
            opening = self._openings[index] = self._openings.get(index, 0) + 1
        if opening > 1:
            say_once("step again", _AGAIN, index)
        return opening

    def step(self, index: int, opening: int) -> tuple[bytes, bytes]:
        """Return trace and root span of an opening of a step, the same in all processes of the run."""
        return _ids.derive(*self._run, semconv.STEP, index, opening)

    def next_trajectory(self) -> str:
        """Return a name, unique in the run, for a trajectory that has none and stands alone."""
        return f"{self._instance}-{next(self._trajectories)}"

    def trajectory(self, name: str, attempt: int, segment: int) -> tuple[str, bytes, bytes]:
        """Return id, trace and root span of a trajectory that is a trace of its own; a repeated id becomes `id#2`."""
        with self._lock:
            used, again = name, 1
            while (ids := self._derived(used, attempt, segment))[1] in self._lone:
                again += 1
                used = f"{name}#{again}"
            _keep(self._lone, ids[1], None, _KNOWN)
        if used != name:
            say("trajectory again", "rl_otel: trajectory id %r was used before in this run; this one is %r", name, used)
        return used, *ids

    def remember(self, name: str, attempt: int, segment: int, ids: tuple[bytes, bytes]) -> None:
        """Keep trace and span of a trajectory inside a step, where nobody can derive them."""
        with self._lock:
            _keep(self._recent, (name, attempt, segment), ids, RECENT)

    def find(self, name: str, attempt: int, segment: int) -> tuple[bytes, bytes]:
        """Return trace and span of a trajectory: of one that this process knows, else derived as its own would."""
        return self._recent.get((name, attempt, segment)) or self._derived(name, attempt, segment)

    def end(self, name: str, attempt: int, segment: int, played: Played) -> None:
        """Keep what is known of a trajectory that has ended; it began with the version of its first segment."""
        with self._lock:
            before = self._played.get((name, attempt))
            if segment > 1 and before is not None and before.version is not None:
                played = played._replace(version=before.version)
            _keep(self._played, (name, attempt), played, RECENT)

    def played(self, name: str, attempt: int) -> Played | None:
        """Return what is known of a trajectory, None of one that has not ended here."""
        return self._played.get((name, attempt))

    def synced(self, version: int, ids: tuple[bytes, bytes], *, here: bool = True) -> None:
        """Keep trace and span of the weight sync that made a policy version; `here` if this process ended it."""
        with self._lock:
            _keep(self._syncs if here else self._brought, version, ids, _SYNCS)

    def sync(self, version: int) -> tuple[bytes, bytes] | None:
        """Return trace and span of the weight sync that made a version: that of this process, else that of another."""
        return self._syncs.get(version) or self._brought.get(version)

    def _derived(self, name: str, attempt: int, segment: int) -> tuple[bytes, bytes]:
        return _ids.derive(*self._run, semconv.TRAJECTORY, name, attempt, segment)


def _keep(known: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Keep the newest `most`."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
