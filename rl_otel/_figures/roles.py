"""What processes of other roles did while a step ran: beside its rows, for its time is that of its own timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rl_otel import semconv
from rl_otel._figures.gpu import Memory, memory
from rl_otel._figures.step import Phase
from rl_otel._split import percentile, union

#: A phase, and a name for the process it ran in.
Elsewhere: TypeAlias = tuple[str, Phase]


@dataclass(frozen=True, slots=True)
class Done:
    """A phase of a role, by how long its processes were in it, in ns: the median one, and that which was longest."""

    name: str
    median: int
    max: int


@dataclass(frozen=True, slots=True)
class Role:
    """A role during a step: how many of its processes had a phase, and what these were."""

    name: str
    processes: int
    phases: tuple[Done, ...]
    memory: Memory


def roles(elsewhere: Iterable[Elsewhere], start: int, end: int) -> tuple[Role, ...]:
    """Return what each role did between `start` and `end`, but for waits, which are told with whom they waited for.

    Phases inside another one are left to that.
    """
    by_role: dict[str, list[Elsewhere]] = {}
    for process, phase in elsewhere:
        if phase.start < end and phase.end > start and phase.name != semconv.WAIT:
            by_role.setdefault(str(phase.attributes.get(semconv.ROLE, "")), []).append((process, phase))
    return tuple(_role(name, found, start, end) for name, found in sorted(by_role.items()))


def _role(name: str, found: list[Elsewhere], start: int, end: int) -> Role:
    processes = {process for process, _ in found}
    spans = {phase.span for _, phase in found}
    times: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for process, phase in found:
        if phase.parent not in spans:
            clipped = max(phase.start, start), min(phase.end, end)
            times.setdefault(phase.name, {}).setdefault(process, []).append(clipped)
    done = [_done(each, list(map(union, of.values())), len(processes)) for each, of in times.items()]
    done.sort(key=lambda each: -each.max)
    return Role(name, len(processes), tuple(done), memory(phase for _, phase in found))


def _done(name: str, times: list[int], processes: int) -> Done:
    # A process of the role that did not do it at all spent no time in it: here 0 is known.
    times += [0] * (processes - len(times))
    return Done(name, percentile(times, 0.5), max(times))
