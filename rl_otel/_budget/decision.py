"""What is shown of a rollout that has ended."""

from __future__ import annotations

from typing import Any

from rl_otel import semconv
from rl_otel._budget.candidates import Candidates
from rl_otel._budget.purse import Purse, Rest
from rl_otel._budget.rank import ranked
from rl_otel._budget.refs import Held, Refs, size_of

_NONE, _TOTALS, _FULL = 0, 1, 2  # how a trajectory is shown: not, by its own span, with all that is inside it


class Decision:
    """Divides what the budget has among the trajectories of one rollout, and the calls directly under it.

    A trajectory is shown with all its detail or with none. One that does not fit makes way for smaller ones.
    """

    def __init__(self, candidates: Candidates, loose: Refs, purse: Purse, now: int) -> None:
        self.sends: list[Held] = []
        self.spans = sum(candidates.spans) + len(loose)  # that were held
        self._candidates = candidates
        self._purse = purse
        self._now = now
        # A trajectory's own span has left already, unless it is held.
        self._shown = bytearray(_NONE if held else _TOTALS for held in candidates.own)
        self._decide(loose)

    @property
    def kept(self) -> int:
        """How many spans stay in the journal alone."""
        return self.spans - len(self.sends)

    def attributes(self) -> dict[str, Any]:
        """Return what the rollout's span says of it; nothing of what it has not."""
        said: dict[str, Any] = {}
        if self._shown:
            for how, name in ((_FULL, "full"), (_TOTALS, "totals"), (_NONE, "none")):
                said[semconv.ROLLOUT_SHOWN.format(how=name)] = self._shown.count(how)
        if self.spans or self._shown:
            said[semconv.ROLLOUT_SPANS_SHOWN] = len(self.sends) + sum(self._candidates.left)
            said[semconv.ROLLOUT_SPANS_KEPT] = self.kept
        return said

    def _decide(self, loose: Refs) -> None:
        ranking = ranked(self._candidates)
        first, others = self._purse.for_rollouts, self._purse.part(4)
        for row in ranking.first:
            self._show(row, first)
        for row in ranking.totals:
            self._show_alone(row, first)
        for held in loose:
            if not self._purse.pay(1, size_of(held), self._now, first, detail=True):
                break
            self.sends.append(held)
        for row in ranking.others:
            self._show(row, others)

    def _show(self, row: int, rest: Rest) -> None:
        """Send all of a trajectory that has not left, if it fits."""
        if self._shown[row] == _FULL:
            return
        size, held = self._candidates.sizes[row], self._candidates.held(row)
        if self._candidates.own[row] and self._shown[row] == _TOTALS:
            size -= size_of(held.pop(0))
        if self._purse.pay(len(held), size, self._now, rest, detail=True):
            self.sends += held
            self._shown[row] = _FULL

    def _show_alone(self, row: int, rest: Rest) -> None:
        """Send at least a trajectory's own span, which has its totals."""
        if self._shown[row] == _NONE:
            own = self._candidates.held(row)[0]
            if self._purse.pay(1, size_of(own), self._now, rest):
                self.sends.append(own)
                self._shown[row] = _TOTALS
