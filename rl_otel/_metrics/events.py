"""What is measured seldom, noted where it happens and given to the SDK's instruments by our own thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rl_otel import _figures, semconv
from rl_otel import semconv_metrics as table
from rl_otel._metrics.series import NANO

if TYPE_CHECKING:
    from rl_otel._metrics.instruments import Instruments
    from rl_otel._metrics.observed import Watched


class Seen(NamedTuple):
    """The span that was measured."""

    trace: bytes
    span: bytes
    flags: int


class Recorded(NamedTuple):
    """What was recorded on a step, perhaps after its end."""

    attributes: Mapping[str, Any]

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        samples = self.attributes.get(semconv.SAMPLES, 0)
        if samples > 0:
            instruments.add(table.SAMPLES, samples)
        for row, attribute in ((table.LOSS, semconv.LOSS), (table.REWARD, semconv.REWARD_MEAN)):
            if attribute in self.attributes:
                watched.last[row].at().value = self.attributes[attribute]


class Step(NamedTuple):
    """A step that has ended; `reward` is that of its trajectories."""

    seen: Seen
    nanoseconds: int
    attributes: Mapping[str, Any]
    reward: float | None
    role: str

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        role = self.attributes.get(semconv.ROLE, self.role)
        instruments.record(table.LOOP, self.nanoseconds / NANO, role, seen=self.seen)
        reward = {} if self.reward is None else {semconv.REWARD_MEAN: self.reward}
        Recorded({**reward, **self.attributes}).tell(instruments, watched)


class Phase(NamedTuple):
    """A phase that has ended, or a wait inside a trajectory, which is none."""

    seen: Seen
    name: str
    nanoseconds: int
    attributes: Mapping[str, Any]
    role: str

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        get, seconds = self.attributes.get, self.nanoseconds / NANO
        role = get(semconv.ROLE, self.role)
        if semconv.PHASE in self.attributes:
            mode = get(semconv.MODE, table.MODE_TRAIN)
            instruments.record(table.PHASE, seconds, self.name, role, mode, seen=self.seen)
        if self.name == semconv.WAIT:
            instruments.record(table.WAIT, seconds, get(semconv.WAIT_REASON), role, seen=self.seen)


class Staleness(NamedTuple):
    """How stale trajectories are that a span trains on."""

    seen: Seen
    versions: list[int]

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        for behind in self.versions:
            instruments.record(table.STALENESS, behind, seen=self.seen)


class Part(NamedTuple):
    """A part of a weight sync."""

    seen: Seen
    name: str
    nanoseconds: int

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        instruments.record(table.SYNC_PART, self.nanoseconds / NANO, self.name, seen=self.seen)


class Trajectory(NamedTuple):
    """A trajectory that has ended."""

    seen: Seen
    figures: _figures.Trajectory
    environment: str | None

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        figures = self.figures
        if figures.continues:
            return  # it counts once, at its last segment
        played = self.environment or None, figures.mode or table.MODE_TRAIN
        labels = figures.outcome, *played
        instruments.add(table.TRAJECTORIES, 1, *labels)
        instruments.record(table.TRAJECTORY, figures.duration / NANO, *labels, seen=self.seen)
        parts = figures.parts
        if parts is None:
            return  # nothing is known of its inside
        for row, part in ((table.TRAJECTORY_GENERATE, "generate"), (table.TRAJECTORY_ENV, "env")):
            if part in parts:
                instruments.record(row, parts[part] / NANO, *labels, seen=self.seen)
        if figures.turns is not None:
            instruments.record(table.TURNS, figures.turns, *played, seen=self.seen)


class Rollout(NamedTuple):
    """A rollout that has ended."""

    figures: _figures.Rollout
    environment: str | None
    mode: str | None

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        played = self.environment or None, self.mode or table.MODE_TRAIN
        if self.figures.env_ratio is not None:
            watched.last[table.ENV_RATIO].at(*played).value = self.figures.env_ratio


class Dropped(NamedTuple):
    """Trajectories that no training uses."""

    reason: str
    number: int
    environment: str | None
    mode: str | None

    def tell(self, instruments: Instruments, watched: Watched) -> None:
        """Give it to the instruments."""
        if self.number > 0:
            played = self.environment or None, self.mode or table.MODE_TRAIN
            instruments.add(table.DROPPED, self.number, self.reason, *played)
