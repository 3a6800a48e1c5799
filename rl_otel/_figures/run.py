"""A whole run in figures, step by step, in memory that grows by integers alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rl_otel import semconv
from rl_otel._figures.gpu import NO_MEMORY, Memory, by_phase
from rl_otel._figures.rollout import Rollout
from rl_otel._figures.step import Phase, StepFigures
from rl_otel._split import percentile, union
from rl_otel._timeline import MOST_NAMES


@dataclass(frozen=True, slots=True)
class Cumulated:
    """A phase over the whole run, times in nanoseconds; `median` is a step's, the first left out."""

    name: str
    time: int
    median: int | None


class RunFigures:
    """A run so far: setup + phases - overlap + other + between = wall, to the nanosecond.

    `began` is when `configure()` ran. Steps are added as they end, phases outside a step as well.
    """

    def __init__(self, began: int) -> None:
        self.began = began
        self.steps = 0
        self.other = 0
        self.first: int | None = None
        self.slowest: tuple[int, int] | None = None  # duration and number, the first step left out
        self.evaluations = 0
        self.first_evaluation: float | None = None
        self.last_evaluation: float | None = None
        self._role: str | None = None  # of the steps, where their process has several
        self._first_start: int | None = None
        self._last_end = began
        self._covered: list[array[int]] = [array("q"), array("q")]  # starts and ends of steps and of outside phases
        self._durations = array("q")
        self._cumulated: dict[str, int] = {}
        self._per_step: dict[str, array[int]] = {}
        self._memory: dict[str, Memory] = {}

    def add(self, step: StepFigures) -> None:
        """Add a step that has ended."""
        self._role = step.role
        for row in step.rows:
            if row.depth == 0:
                self._cumulate(row.name, row.time)
                if self.steps and row.name in self._cumulated:
                    self._per_step.setdefault(row.name, array("q")).append(row.time)
        self._keep(step.gpu.memory)
        self.other += step.other
        self._cover(step.start, step.end)
        self._add_duration(step)
        if step.evaluation is not None:
            self._evaluated(step.evaluation)

    def add_outside(self, phase: Phase, evaluation: Rollout | None = None) -> None:
        """Add a phase outside any step, and the figures of its trajectories where it is an eval.

        One of a loop beside that of the steps takes no part of the run's time.
        """
        if phase.attributes.get(semconv.ROLE, self._role) != self._role:
            self.add_elsewhere(phase, evaluation)
            return
        self._keep(by_phase([phase]).memory)
        if phase.parent:  # its time is part of the phase around it
            return
        self._cumulate(phase.name, phase.end - phase.start)
        self._cover(phase.start, phase.end)
        if evaluation is not None:
            self._evaluated(evaluation)

    def add_elsewhere(self, phase: Phase, evaluation: Rollout | None = None) -> None:
        """Add a phase outside any step of another timeline, whose time is none of this one's."""
        self._keep(by_phase([phase]).memory)
        if evaluation is not None:
            self._evaluated(evaluation)

    @property
    def wall(self) -> int:
        """From the beginning to the end of the last step or outside phase."""
        return self._last_end - self.began

    @property
    def setup(self) -> int:
        """The time before the first step in which no phase ran."""
        until = self._last_end if self._first_start is None else self._first_start
        before = union((start, min(end, until)) for start, end in zip(*self._covered, strict=True))
        return until - self.began - before

    @property
    def between(self) -> int:
        """The time after the first step's start that lies in no step and no phase."""
        return self.wall - self.setup - self._cover_union()

    @property
    def overlap(self) -> int:
        """What the phases, added up, count more than once."""
        return sum(self._cumulated.values()) + self.other - self._cover_union()

    @property
    def phases(self) -> list[Cumulated]:
        """The phases in the order in which they first ran; nested ones are inside theirs."""
        return [Cumulated(name, time, self._median(self._per_step.get(name))) for name, time in self._cumulated.items()]

    @property
    def memory(self) -> dict[str, Memory]:
        """The highest memory of each phase, nested ones too."""
        return dict(self._memory)

    @property
    def median(self) -> int | None:
        """The median step, the first left out."""
        return self._median(self._durations)

    def _keep(self, memory: Mapping[str, Memory]) -> None:
        for name, known in memory.items():
            if not _has_room(self._memory, name):
                continue
            self._memory[name] = self._memory.get(name, NO_MEMORY).with_(known)

    def _cumulate(self, name: str, time: int) -> None:
        if _has_room(self._cumulated, name):
            self._cumulated[name] = self._cumulated.get(name, 0) + time
        else:
            self.other += time

    def _cover(self, start: int, end: int) -> None:
        self.began = min(self.began, start)
        self._last_end = max(self._last_end, end)
        starts, ends = self._covered
        starts.append(start)
        ends.append(end)

    def _cover_union(self) -> int:
        return union(zip(*self._covered, strict=True))

    def _add_duration(self, step: StepFigures) -> None:
        if self._first_start is None:
            self._first_start, self.first = step.start, step.total
        else:
            self._durations.append(step.total)
            if self.slowest is None or step.total > self.slowest[0]:
                self.slowest = (step.total, step.index)
        self.steps += 1

    def _evaluated(self, evaluation: Rollout) -> None:
        self.evaluations += 1
        if evaluation.reward is not None:
            if self.first_evaluation is None:
                self.first_evaluation = evaluation.reward
            self.last_evaluation = evaluation.reward

    @staticmethod
    def _median(times: array[int] | None) -> int | None:
        return percentile(times, 0.5) if times else None


def _has_room(known: Mapping[str, object], name: str) -> bool:
    """Whether a phase has an entry of its own: names without end, as of a host that numbers them, share `other`."""
    return name in known or len(known) < MOST_NAMES


def run(steps: Iterable[StepFigures], began: int, outside: Iterable[tuple[Phase, Rollout | None]] = ()) -> RunFigures:
    """Return the figures of a run whose steps and outside phases are all known."""
    figures = RunFigures(began)
    events: list[tuple[int, StepFigures | tuple[Phase, Rollout | None]]] = [(step.end, step) for step in steps]
    events += [(pair[0].end, pair) for pair in outside]
    for _, event in sorted(events, key=lambda pair: pair[0]):
        if isinstance(event, StepFigures):
            figures.add(event)
        else:
            figures.add_outside(*event)
    return figures
