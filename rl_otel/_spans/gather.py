"""What happens inside one step, trajectory, rollout or eval, gathered for its figures while it is open."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from rl_otel import _figures, semconv

if TYPE_CHECKING:
    from rl_otel._carrier import Origin
    from rl_otel._spans.consume import Consumed
    from rl_otel._spans.span import Span


class Gathering:
    """Children in time, tokens, turns and trajectories of one span, its owner, of which it is told the name.

    It never refers to the owner, which has it: the two would wait for the garbage collector.
    Several threads may add at once: each addition is one atomic operation on a list, sums are made at the end.
    """

    counted_elsewhere = ""  # the name of a call that this process records and another, which made it, counts

    def __init__(self, owner: str, around: Gathering | None) -> None:
        self.is_trajectory = owner == semconv.TRAJECTORY  # else its owner is a rollout or an eval
        self.counts_turns = self.is_trajectory
        self.shown = True  # whether all detail in it is shown wherever there is room
        self.around = around
        self.ended = False
        self.children: list[tuple[str, int, int]] = []
        self.direct = _figures.Direct()
        self.trajectories: list[_figures.Trajectory] = []
        self.environment: str | None = None  # that is played inside; empty where there are several
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
            enclosing = span.enclosing
            if enclosing is not None and enclosing.name == semconv.TRAJECTORY:
                self.children.append((semconv.PART_OF[span.name], span.began, end))
        elif span.name in semconv.SERVICE_SUFFIX:
            self.direct.add(span.name, span.began, end, span.attributes)

    def plays(self, environment: str | None) -> None:
        """Note an environment that is played inside."""
        if isinstance(environment, str) and environment != self.environment:
            self.environment = environment if self.environment is None else ""

    def token_sums(self) -> list[int | None]:
        """Return input and output tokens of the policy's calls so far, None where none was ever said."""
        sums: list[int | None] = []
        for side in (0, 1):
            known = [count for tokens in self.tokens if (count := tokens[side]) is not None]
            sums.append(sum(known) if known else None)
        return sums

    def let_go(self) -> None:
        """Drop what was gathered: figures have it now, and handles that are kept lead to here."""
        self.children, self.trajectories, self.versions, self.tokens = [], [], [], []
        self.last_step, self.last_call = {}, {}

    def next_ordinal(self) -> int:
        """Return 0, 1, 2… for the trajectories inside."""
        return next(self._ordinals)


class Books:
    """The phases of a step and the trajectories that are in no rollout of it, as what is inside it sees the step.

    Kept handles lead to here and no further, so when the step has ended it takes what is written, and leaves nothing.
    """

    def __init__(self, index: int, opening: int = 1) -> None:
        self.index = index
        self.opening = opening  # which of that step it is
        self.phases: list[_figures.Phase] = []
        self.trajectories: list[_figures.Trajectory] = []
        self.consumed: list[Consumed] = []  # wait for the next train span
        self.linked: set[bytes] = set()  # spans of the trajectories that are trained on
        self.training: Span | None = None
        self.ended = False
        self.handed = False  # to another process, from outside a trajectory: one that may play some of them
        self.origin: Origin | None = None  # where another process has it, which handed it on
        self.calls = count()  # that were handed to servers, and what else was
        self.others = count()
        self._rollouts = count()

    def next_rollout(self) -> int | None:
        """Return 0, 1, 2… for the rollouts of this step; None where they are not known."""
        return next(self._rollouts)
