"""What is open in a trace, and holds the detail that ends inside it."""

from __future__ import annotations

from typing import Final

from rl_otel import semconv
from rl_otel._budget.candidates import Candidates
from rl_otel._budget.refs import Refs
from rl_otel._record import End, Start

ROLLOUTS: Final = (semconv.ROLLOUT, semconv.EVAL)


def is_phase(record: Start | End) -> bool:
    """Whether a span of ours bounds a part of the loop: the step, or a phase of it."""
    return record.name == semconv.STEP or semconv.PHASE in record.attributes


class Phase:
    """A step or a phase; most of them hold nothing."""

    __slots__ = ("candidates", "ended", "refs", "start")
    live: Final = False

    def __init__(self, start: int) -> None:
        self.start = start
        self.ended = False
        self.refs = Refs()  # calls and other libraries' spans directly under it
        self.candidates = Candidates()  # its trajectories that have ended


class Trajectory:
    """A trajectory; `around` is the trajectory it is inside of, `home` the phase that decides on its detail."""

    __slots__ = ("around", "ended", "home", "left", "live", "refs", "start")

    def __init__(self, start: int, around: Trajectory | None, home: Phase | None) -> None:
        self.start = start
        self.around = around
        self.home = home
        self.ended = False
        self.refs = Refs()
        self.left = 0  # spans inside it that were sent
        self.live = False  # whether its detail leaves as it ends
