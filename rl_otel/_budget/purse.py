"""What is left of one trace's budget."""

from __future__ import annotations

from typing import Final, NamedTuple

from rl_otel._budget.limits import Budget

_SERVICES: Final = 3  # model and environment time have one each


class Rest(NamedTuple):
    """What must be left after something is paid: room for what matters more and comes later."""

    spans: int
    size: int


NOTHING: Final = Rest(0, 0)


class Purse:
    """Pays for spans as long as the budget lasts.

    Resources are paid by the time in the records, not by the requests that were really made: a replay pays alike.
    """

    __slots__ = ("_budget", "_detailed", "_room", "_since", "size", "spans")

    def __init__(self, budget: Budget) -> None:
        self.spans = 0  # paid so far
        self.size = 0  # bytes
        self._budget = budget
        self._since = 0  # when the request that is being filled began
        self._room = 0  # spans that it still takes
        self._detailed = False  # whether it has all three services

    def pay(self, spans: int, size: int, now: int, rest: Rest = NOTHING, *, detail: bool = False) -> bool:
        """Pay for `spans` together of `size` bytes if `rest` is left then; whether it was paid."""
        if spans == 0:
            return True
        room = self._room if now - self._since < self._budget.window else 0
        requests = -(-max(spans - room, 0) // self._budget.batch)
        services = requests * (_SERVICES if detail else 1)
        if room and detail and not self._detailed:
            services += _SERVICES - 1
        size += services * self._budget.envelope
        if self.spans + spans + rest.spans > self._budget.spans or self.size + size + rest.size > self._budget.live:
            return False
        if requests:
            self._since, self._detailed = now, False
        self._room = room + requests * self._budget.batch - spans
        self._detailed |= detail
        self.spans += spans
        self.size += size
        return True

    def overdraw(self, size: int, now: int) -> bool:
        """Pay for one span that a trace is nothing without, whatever is left; not where nothing may be sent."""
        if self._budget.spans == 0:
            return False
        if not self.pay(1, size, now):
            self.spans += 1
            self.size += size + self._budget.envelope
        return True

    # --- what is left for others --------------------------------------------------------------------------------------

    def part(self, of: int) -> Rest:
        """Return one of `of` equal parts of the whole budget."""
        return Rest(-(-self._budget.spans // of), -(-self._budget.live // of))

    @property
    def for_root(self) -> Rest:
        """What phases leave for the step itself."""
        return Rest(1, self.for_phases.size)

    @property
    def for_phases(self) -> Rest:
        """What trajectories and detail leave for phases and the step."""
        return self.part(16)

    @property
    def for_rollouts(self) -> Rest:
        """What the detail that tells most leaves for rollouts to come: half of what there is once that gets short."""
        half = (self._budget.spans - self.spans) // 2, (self._budget.live - self.size) // 2
        return Rest(*map(_within, half, self.for_phases, self.part(4)))

    @property
    def half_full(self) -> bool:
        """Whether half of the budget or more is left."""
        return self.spans * 2 <= self._budget.spans and self.size * 2 <= self._budget.live


def _within(value: int, least: int, most: int) -> int:
    return max(least, min(most, value))
