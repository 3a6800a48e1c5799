"""What is a trace of its own: how much trajectories and waits of one minute show together."""

from __future__ import annotations

from typing import Final

from rl_otel._budget.limits import Budget
from rl_otel._budget.pace import Pace
from rl_otel._budget.purse import NOTHING, Purse

LENGTH: Final = 60_000_000_000  # ns
_WAITS: Final = 64  # each of which is shown; of those after them in the minute the longest so far


class Window:
    """What one minute may show, as a step may. Minutes are those of the clock, so that a replay has the same.

    Args:
        budget: of a minute.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._minute = 0
        self._purse = Purse(budget)
        self._pace = self._before = Pace()
        self._waits = self._longest = 0

    def pays(self, duration: int, spans: int, size: int, now: int, *, tells: bool) -> bool:
        """Pay for the detail of a trajectory that ended; the last quarter of the budget is for those that tell more.

        Args:
            duration: of the trajectory, in ns.
            spans: inside it.
            size: of those, in bytes.
            now: when it ended, in ns since the epoch.
            tells: whether it shows what others do not, however long it took.
        """
        self._go_on(now)
        slow = self._pace.slow(duration) or self._before.slow(duration)
        self._pace.add(duration)
        rest = NOTHING if tells or slow else self._purse.part(4)
        return self._purse.pay(spans, size, now, rest, detail=True)

    def add(self, size: int, now: int) -> None:
        """Pay for a trajectory's own span, which leaves whatever is left."""
        self._go_on(now)
        self._purse.overdraw(size, now)

    def shows_wait(self, duration: int, now: int) -> bool:
        """Whether a wait that ended is shown: a generator may wait after each of its trajectories."""
        self._go_on(now)
        longer, self._longest = duration > self._longest, max(duration, self._longest)
        self._waits += 1
        return self._waits <= _WAITS or longer

    def _go_on(self, now: int) -> None:
        minute = now // LENGTH
        if minute > self._minute:
            self._minute = minute
            self._purse = Purse(self._budget)
            self._before, self._pace = self._pace, Pace()
            self._waits = self._longest = 0
