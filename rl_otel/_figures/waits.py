"""How long each loop waited while a step ran, and for what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rl_otel import semconv
from rl_otel._split import union

if TYPE_CHECKING:
    from rl_otel._figures.step import Phase


def waited(phases: Iterable[Phase], start: int, end: int) -> dict[str, int]:
    """Return for each reason the ns between `start` and `end` in which somebody waited; empty where it is not said.

    Those who wait at once count once, for it is wall time.
    """
    times: dict[str, list[tuple[int, int]]] = {}
    for phase in phases:
        if phase.name == semconv.WAIT and phase.start < end and phase.end > start:
            reason = phase.attributes.get(semconv.WAIT_REASON, "")
            times.setdefault(reason, []).append((max(phase.start, start), min(phase.end, end)))
    return {reason: union(each) for reason, each in sorted(times.items())}


def waited_by_role(phases: Iterable[Phase], start: int, end: int) -> dict[str, dict[str, int]]:
    """Return the same for each role that waited; without one a phase is of another rank, which is no other loop."""
    roles: dict[str, list[Phase]] = {}
    for phase in phases:
        if semconv.ROLE in phase.attributes:
            roles.setdefault(phase.attributes[semconv.ROLE], []).append(phase)
    told = {role: waited(group, start, end) for role, group in sorted(roles.items())}
    return {role: reasons for role, reasons in told.items() if reasons}
