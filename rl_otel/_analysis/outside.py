"""The trajectories that no step and no evaluation has, as those of asynchronous generators."""

from __future__ import annotations

from array import array

from rl_otel import _record, semconv

_FAILED = (semconv.ERROR, semconv.TIMEOUT)


class Outside:
    """How long each took in ns, which was the slowest, and how many failed."""

    def __init__(self) -> None:
        self.durations = array("q")
        self.slowest = ""
        self.failed = 0
        self._longest = -1

    def __bool__(self) -> bool:
        return bool(self.durations)

    def add(self, trajectory: _record.End) -> None:
        """Take one that has ended; of one that goes on in another segment, that one is taken."""
        attributes = trajectory.attributes
        if attributes.get(semconv.TRAJECTORY_CONTINUES):
            return
        duration = trajectory.end - trajectory.start
        self.durations.append(duration)
        self.failed += attributes.get(semconv.TRAJECTORY_OUTCOME) in _FAILED
        if duration > self._longest:
            self._longest, self.slowest = duration, str(attributes.get(semconv.TRAJECTORY_ID, ""))
