"""The ranks of a run: which of them a step has, what each of them did in it, and from which nothing came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rl_otel import _figures, _record, semconv
from rl_otel._identity import SERVING, WORKER
from rl_otel._read import Source

_WITHOUT_RANKS: Final = SERVING | {WORKER}  # what they say is the rank of the process that started them


def rank_of(source: Source) -> int:
    """Return the rank of a process, 0 where it does not say."""
    return _figures.place_of(source.resource)[0]


def of_step(
    root: Source, steps: Iterable[tuple[Source, _record.End]], phases: Iterable[tuple[Source, _figures.Phase]]
) -> _figures.RankTimes:
    """Return what the ranks of the loop, those of the role of `root`, did in a step.

    Args:
        root: the process whose step stands for all.
        steps: the step of each process that has one.
        phases: of all processes.
    """
    role = root.role
    by_source: dict[str, list[_figures.Phase]] = {}
    for source, phase in phases:
        if phase.attributes.get(semconv.ROLE, role) == role:
            by_source.setdefault(source.name, []).append(phase)
    times = _figures.RankTimes()
    for source, record in sorted(steps, key=_first):
        if source.role == role:
            start, end = record.start + source.shift, record.end + source.shift
            times.add(rank_of(source), by_source.get(source.name, []), start, end)
    return times


def _first(step: tuple[Source, _record.End]) -> tuple[int, bool, int]:
    """Order steps by rank; of one rank its own comes before that of a child it has forked."""
    source, record = step
    return rank_of(source), bool(record.parent), record.start


def lowest(steps: Iterable[tuple[Source, _record.End]]) -> tuple[Source, _record.End] | None:
    """Return the step that can stand for all where none is the root: that of the lowest rank of the loop."""
    of_loop = [pair for pair in steps if rank_of(pair[0]) and pair[0].role not in SERVING]
    return min(of_loop, key=_first, default=None)


class Expected:
    """How many ranks of a role each attempt of a run has, as far as they have journals."""

    def __init__(self, sources: Iterable[Source]) -> None:
        ranks: dict[tuple[str, int], set[int]] = {}
        for source in sources:
            ranks.setdefault(_group(source), set()).add(rank_of(source))
        self._counts = {group: len(each) for group, each in ranks.items()}

    def of(self, steps: Sequence[tuple[Source, _record.End]]) -> int:
        """Return how many will end a step that some have ended already."""
        return self._counts.get(_group(steps[0][0]), 0) if steps else 0


def _group(source: Source) -> tuple[str, int]:
    return source.role, source.restart


def absent(sources: Iterable[Source]) -> dict[str, tuple[int, list[int]]]:
    """Return for each role of the last restart how many ranks there were, and from which of them nothing came."""
    sources = list(sources)
    last = max((source.restart for source in sources), default=0)
    worlds: dict[str, tuple[int, set[int]]] = {}
    for source in sources:
        if source.restart == last and source.role not in _WITHOUT_RANKS:
            role, (rank, size) = source.role, _figures.place_of(source.resource)
            known, ranks = worlds.get(role, (0, set()))
            worlds[role] = max(known, size), ranks | {rank}
    missing = {role: (size, sorted({*range(size)} - ranks)) for role, (size, ranks) in worlds.items()}
    return {role: each for role, each in missing.items() if each[1]}
