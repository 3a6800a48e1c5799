"""The ranks of a step beside each other: what each phase took on them, and which of them held up the others.

A rank that is late makes the others wait, inside whatever they do next. So the time that a program marks by
`wait("collective")` is no work of the phase around it; and where it marks none, what most ranks do alike is no fault of
one of them, for each phase is measured against its median.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl_otel import semconv
from rl_otel._figures.step import Path, Phase
from rl_otel._split import percentile, union

_TELLS: Final = 20  # below one part in so many of a step nobody held up the others
_CLEAR: Final = 0.8  # nor where another rank comes that near to the first
_DEEPEST: Final = 8
_MOST: Final = 1 << 20  # ranks that anybody has
_OTHER: Final = (semconv.OTHER,)
COLLECTIVE: Final = f"{semconv.WAIT} {semconv.WAIT_COLLECTIVE}"


def place_of(resource: Mapping[str, Any]) -> tuple[int, int]:
    """Return rank and world size of a process, as far as what it says of itself makes sense."""
    rank, size = resource.get(semconv.RANK), resource.get(semconv.WORLD_SIZE)
    return (rank, size) if type(rank) is type(size) is int and 0 <= rank < size <= _MOST else (0, 1)


@dataclass(frozen=True, slots=True)
class Among:
    """A phase on all ranks of a step, in ns; `rank` had most of it, but waited least where it waits for the others."""

    path: Path
    min: int
    median: int
    max: int
    rank: int

    @property
    def waits(self) -> bool:
        """Whether it is waiting for the other ranks."""
        return self.path[-1] == COLLECTIVE


@dataclass(frozen=True, slots=True)
class RankFigures:
    """A step, or several, on all ranks; rows are in the order in which phases began."""

    ranks: int
    rows: tuple[Among, ...]
    slowest: int  # the rank that was furthest above the medians
    by: int  # ns, added up over its phases
    phase: str  # where it was furthest
    clear: bool  # whether it held up the others, as far as can be told


class RankTimes:
    """What the phases of a step took on each rank, in ns, but for waiting for the others."""

    def __init__(self) -> None:
        self._totals: dict[int, int] = {}
        self._times: dict[Path, tuple[array[int], array[int]]] = {}  # ranks, and what each of them took

    def add(self, rank: int, phases: Iterable[Phase], start: int, end: int) -> None:
        """Add a rank's own step and the phases of its loop; a rank that was added is not added again."""
        if rank in self._totals:
            return
        self._totals[rank] = end - start
        for path, time in _work(list(phases), start, end).items():
            ranks, times = self._times.setdefault(path, (array("q"), array("q")))
            ranks.append(rank)
            times.append(time)

    def figures(self) -> RankFigures | None:
        """Return the figures, None where there are not several ranks."""
        return _figures(self._totals, {path: dict(zip(*times, strict=True)) for path, times in self._times.items()})

    def add_to(self, totals: dict[int, int], sums: dict[Path, dict[int, int]]) -> None:
        """Add the step to those of a run."""
        for rank, total in self._totals.items():
            totals[rank] = totals.get(rank, 0) + total
        for path, (ranks, times) in self._times.items():
            known = sums.setdefault(path, {})
            for rank, time in zip(ranks, times, strict=True):
                known[rank] = known.get(rank, 0) + time


class RunRanks:
    """The ranks over all steps of a run, in memory that does not grow with it."""

    def __init__(self) -> None:
        self.steps = 0
        self.held_up: Counter[int] = Counter()  # by rank: steps in which it held up the others
        self._totals: dict[int, int] = {}
        self._times: dict[Path, dict[int, int]] = {}

    def add(self, times: RankTimes, figures: RankFigures) -> None:
        """Add a step, and its figures."""
        self.steps += 1
        times.add_to(self._totals, self._times)
        if figures.clear:
            self.held_up[figures.slowest] += 1

    def figures(self) -> RankFigures | None:
        """Return the figures of all steps together."""
        return _figures(self._totals, self._times)


def _figures(totals: Mapping[int, int], times: Mapping[Path, Mapping[int, int]]) -> RankFigures | None:
    if len(totals) < 2:
        return None
    # A rank that was not in a phase spent no time in it: here 0 is known.
    complete = {path: {**dict.fromkeys(totals, 0), **known} for path, known in times.items()}
    rows = tuple(_row(path, known) for path, known in complete.items())
    top = [row for row in rows if len(row.path) == 1 and not row.waits]
    above = {rank: sum(max(complete[row.path][rank] - row.median, 0) for row in top) for rank in sorted(totals)}
    first, second = sorted(above, key=lambda rank: -above[rank])[:2]
    worst = max(top, key=lambda row: complete[row.path][first] - row.median)
    clear = above[first] * _TELLS >= max(totals.values()) and above[second] < _CLEAR * above[first]
    return RankFigures(len(totals), rows, first, above[first], worst.path[-1], clear=clear)


def _row(path: Path, times: Mapping[int, int]) -> Among:
    pick = min if path[-1] == COLLECTIVE else max
    rank = pick(sorted(times), key=times.__getitem__)
    return Among(path, min(times.values()), percentile(list(times.values()), 0.5), max(times.values()), rank)


def _work(phases: Sequence[Phase], start: int, end: int) -> dict[Path, int]:
    spans = {phase.span: phase for phase in phases}
    by_path: dict[Path, list[tuple[int, int]]] = {}
    for phase in sorted(phases, key=lambda phase: phase.start):
        by_path.setdefault(_path(phase, spans), []).append((max(phase.start, start), min(phase.end, end)))
    waits = [each for path, group in by_path.items() if path[-1] == COLLECTIVE for each in group]
    waited = union(waits)
    work = {
        path: union(group) if path[-1] == COLLECTIVE else union([*group, *waits]) - waited
        for path, group in by_path.items()
    }
    work[_OTHER] = end - start - union(each for group in by_path.values() for each in group)
    return work


def _path(phase: Phase, spans: Mapping[bytes, Phase]) -> Path:
    names, around = [_name(phase)], spans.get(phase.parent)
    while around is not None and len(names) < _DEEPEST:
        names.append(_name(around))
        around = spans.get(around.parent)
    return tuple(reversed(names))


def _name(phase: Phase) -> str:
    """Return a phase's name; waits go by their reason as well, for one kind of them is no fault of who waits."""
    reason = phase.attributes.get(semconv.WAIT_REASON)
    return phase.name if phase.name != semconv.WAIT or reason is None else f"{phase.name} {reason}"
