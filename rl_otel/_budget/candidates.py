"""Trajectories that have ended and wait for their rollout to end: then it is decided whose detail is sent."""

from __future__ import annotations

import math
from array import array

from rl_otel import semconv
from rl_otel._budget.refs import Held, Refs, size_of
from rl_otel._record import ERROR, End

_FAILED = frozenset({semconv.ERROR, semconv.TIMEOUT})


def failed(record: End) -> bool:
    """Whether a trajectory went wrong; an aborted one did not, somebody wanted it so."""
    return record.status == ERROR or record.attributes.get(semconv.TRAJECTORY_OUTCOME) in _FAILED


class Candidates:
    """One row a trajectory, in columns of plain numbers: a rollout may have tens of thousands."""

    __slots__ = ("_ends", "_late", "_refs", "durations", "failed", "ids", "left", "own", "rewards", "sizes", "spans")

    def __init__(self) -> None:
        self.ids = array("Q")  # of its span
        self.durations = array("q")  # ns
        self.rewards = array("d")  # NaN where none is known
        self.failed = bytearray()
        self.own = bytearray()  # 1 where its own span is held too: then that is the first of its spans
        self.left = array("q")  # spans of it that were sent before the decision
        self.spans = array("q")  # spans of it that are held
        self.sizes = array("q")  # their bytes
        self._refs = Refs()
        self._ends = array("q")
        self._late: dict[int, Refs] = {}  # by row: what ended after its trajectory

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def refs(self) -> list[Refs]:
        """All that is held."""
        return [self._refs, *self._late.values()]

    def add(self, record: End, own: Held | None, refs: Refs, left: int) -> None:
        """Add a trajectory with what is held of it, its `own` span where that has not left."""
        if own is not None:
            self._refs.append(own)
        self._refs.extend(refs)
        self._ends.append(len(self._refs))
        self.ids.append(int.from_bytes(record.span, "big"))
        self.durations.append(record.end - record.start)
        reward = record.attributes.get(semconv.TRAJECTORY_REWARD)
        self.rewards.append(reward if isinstance(reward, float | int) else math.nan)
        self.failed.append(failed(record))
        self.own.append(own is not None)
        self.left.append(left)
        self.spans.append(len(refs) + (own is not None))
        self.sizes.append(refs.size + (size_of(own) if own is not None else 0))

    def join(self, late: dict[bytes, Refs]) -> None:
        """Take from `late`, by parent, the spans that ended after their trajectory had."""
        waiting = {int.from_bytes(parent, "big"): parent for parent in late}
        for row, id_ in enumerate(self.ids):
            if id_ in waiting:
                refs = self._late[row] = late.pop(waiting.pop(id_))
                self.spans[row] += len(refs)
                self.sizes[row] += refs.size

    def held(self, row: int) -> list[Held]:
        """Return the spans of a trajectory that are held."""
        held = self._refs[self._ends[row - 1] if row else 0 : self._ends[row]]
        return held + self._late[row] if row in self._late else held
