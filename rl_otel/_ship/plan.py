"""How a process sends: written in its journal, so that whoever sends for it makes the same cuts and the same bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from rl_otel import _record
from rl_otel._budget import Budget, Measure, Selector
from rl_otel._otlp import Writer

CALLS: Final = 2000  # of a step that servers may send spans of: those would be no part of any budget
_ROOM: Final = 4_000_000  # bytes of spans as they are sent that are held in memory; of others only where they are


@dataclass(frozen=True)
class Plan:
    """What decides, besides the spans themselves, which of them go and how."""

    budget: int = 10_000  # spans of a trace at most
    quota: int = 10_000  # of these, what this process may send of a trace that others share
    delay: float = 1.0  # s between two looks at the journal
    batch: int = 512  # spans of a request at most
    one_service: bool = False

    @classmethod
    def of(cls, process: _record.Process) -> Plan:
        """Return the plan of the process that wrote a journal, as far as it says."""
        said = {name: value for name, value in process.sending.items() if name in cls.__dataclass_fields__}
        return cls(**said)

    def written(self) -> dict[str, Any]:
        """Return it as a journal has it."""
        return asdict(self)

    @cached_property
    def calls(self) -> int:
        """How many calls of a trace may ask servers for their spans: the same part of all as of its own spans."""
        return max(CALLS * self.quota // max(self.budget, 1), 1 if self.quota else 0)

    def limits(self, measure: Measure) -> Budget:
        """Return how much of one trace goes."""
        return Budget.of(self.budget, envelope=measure.envelope, window=self.delay, batch=self.batch)

    def selector(self, measure: Measure, write: Writer | None = None) -> Selector:
        """Return what picks the spans that go, and keeps what `write` has written of them."""
        room = 0 if write is None else _ROOM
        return Selector(self.limits(measure), write or measure.write, quota=self.quota, room=room)
