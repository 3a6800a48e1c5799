"""What the processes of a run are called: role, rank, or host and pid, whichever is the shortest that tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rl_otel import semconv
from rl_otel._read.source import Source


class Names:
    """What to call each process, so that none of the same attempt of the run is called alike."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.alone = len(sources) == 1
        self._times = Counter((each.restart, call) for each in sources for call in set(_calls(each)))

    def of(self, source: Source) -> str:
        """Return the name of a process."""
        unique = (call for call in _calls(source) if self._times[source.restart, call] == 1)
        return next(unique, source.name)


def _calls(source: Source) -> list[str]:
    told = source.resource
    rank, pid = told.get(semconv.RANK), told.get(semconv.PROCESS_PID)
    calls = (source.role, f"rank {rank}", f"{source.role} rank {rank}", f"pid {pid}", f"{source.host}:{pid}")
    return [call for call in calls if call and "None" not in call]
