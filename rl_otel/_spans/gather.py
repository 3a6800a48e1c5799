"""What happens inside one trajectory, rollout or eval, gathered for its figures while it is open."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from rl_otel import _figures, semconv

if TYPE_CHECKING:
    from rl_otel._spans.span import Span


class Gathering:
    """Children in time, tokens, turns and trajectories of one span, its owner.

    Several threads may add at once: each addition is one atomic operation on a list, sums are made at the end.
    """

    def __init__(self, owner: Span, around: Gathering | None) -> None:
        self.owner = owner
        self.is_trajectory = owner.name == semconv.TRAJECTORY  # else its owner is a rollout or an eval
        self.around = around
        self.children: list[tuple[str, int, int]] = []
        self.direct = _figures.Direct()
        self.trajectories: list[_figures.Trajectory] = []
        self.turn = 0
        self.turns_by_call = False  # the policy's calls count turns; without any, environment steps do
        self.versions: list[int] = []
        self.last_step: dict[str, Any] = {}  # the attributes of the environment step that ended last
        self.last_call: dict[str, Any] = {}  # and of the policy's call
        self.tokens: list[tuple[int | None, int | None]] = []  # input, output of each of the policy's calls
        self._ordinals = count()

    def child(self, span: Span, end: int) -> None:
        """Note the time of a child that ended; of one that is inside another child, only what is no time."""
        if self.is_trajectory:
            if span.enclosing is self.owner:
                self.children.append((semconv.PART_OF[span.name], span.began, end))
        elif span.name in semconv.SERVICE_SUFFIX:
            self.direct.add(span.name, span.began, end, span.attributes)

    def token_sums(self) -> list[int | None]:
        """Return input and output tokens of the policy's calls so far, None where none was ever said."""
        sums: list[int | None] = []
        for side in (0, 1):
            known = [count for tokens in self.tokens if (count := tokens[side]) is not None]
            sums.append(sum(known) if known else None)
        return sums

    def next_ordinal(self) -> int:
        """Return 0, 1, 2… for the trajectories inside."""
        return next(self._ordinals)
