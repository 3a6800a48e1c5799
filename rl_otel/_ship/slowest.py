"""Which rank was slowest in each step of a run."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from pathlib import Path

from rl_otel import _record, semconv
from rl_otel._figures import Phase, RankTimes, place_of
from rl_otel._identity import SERVING


class SlowestRanks:
    """Fed with the records of one process after the other, it knows by the same figures as a report."""

    def __init__(self) -> None:
        self._times: defaultdict[tuple[bytes, str], RankTimes] = defaultdict(RankTimes)  # by trace and role
        self._bases: dict[tuple[bytes, str, int], Path] = {}
        self._phases: defaultdict[bytes, list[Phase]] = defaultdict(list)  # of steps of this process that run
        self._base, self._role, self._rank = Path(), "", 0

    def begin(self, base: Path, process: _record.Process) -> None:
        """Take the records of a process from now on, whose files begin with `base`."""
        self._phases.clear()
        self._base = base
        self._role = str(process.resource.get(semconv.ROLE, ""))
        self._rank, _ = place_of(process.resource)

    def take(self, record: _record.Start | _record.End) -> None:
        """Take one more record."""
        if not isinstance(record, _record.End) or self._role in SERVING:
            return
        if record.name == semconv.STEP:
            phases = self._phases.pop(record.trace, [])
            self._times[record.trace, self._role].add(self._rank, phases, record.start, record.end)
            self._bases.setdefault((record.trace, self._role, self._rank), self._base)
        elif semconv.PHASE in record.attributes and record.attributes.get(semconv.ROLE, self._role) == self._role:
            self._phases[record.trace].append(
                Phase(record.name, record.span, record.parent, record.start, record.end, record.attributes)
            )

    @cached_property
    def found(self) -> dict[bytes, set[Path]]:
        """Return by trace the bases of those that were slowest; a step of one rank has none."""
        found: defaultdict[bytes, set[Path]] = defaultdict(set)
        for (trace, role), times in self._times.items():
            figures = times.figures()
            if figures is not None:
                found[trace].add(self._bases[trace, role, figures.slowest])
        return dict(found)
