"""What is read when metrics are collected: the state of the process now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rl_otel import semconv
from rl_otel import semconv_metrics as table
from rl_otel._clock import now
from rl_otel._identity import MONITOR
from rl_otel._metrics.series import NANO, Attributes, Series
from rl_otel._timeline import InFlight, Timelines

if TYPE_CHECKING:
    from typing import Protocol

    from rl_otel._buffers import Buffers

    class Gpu(Protocol):
        """What watches the GPUs, as far as it is exported."""

        def readings(self) -> Iterable[tuple[str, str, float | None, int | None, int | None, float | None]]:
            """Return for each device id, name, utilization (0 to 1), bytes used and in all, and power (W)."""

        def times(self) -> Iterable[tuple[str, str, str, float, float]]:
            """Return device, phase and role with the time sampled and of that the time busy, s since the beginning."""

        def peaks(self) -> Iterable[tuple[str, str, int]]:
            """Return device and phase with the bytes that it allocated at most."""


class Last:
    """A value that stays until there is another one."""

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.value: float | None = None


class Watched(NamedTuple):
    """Where the observed metrics are read from."""

    timelines: Timelines
    in_flight: InFlight
    buffers: Buffers
    gpu: Callable[[], Gpu]  # asked late: a forked child gets another one
    last: dict[table.Metric, Series[Last]]


Read: TypeAlias = Iterator[tuple[float, tuple[str | None, ...]]]


def _phase_active(watched: Watched) -> Read:
    for timeline in watched.timelines:
        active = timeline.phase
        for name in (*timeline.names, semconv.OTHER, semconv.IDLE):
            yield int(name == active), (name, timeline.role)


def _phase_age(watched: Watched) -> Read:
    moment = now()
    for timeline in watched.timelines:
        began = timeline.began()
        for name in list(timeline.names):  # a loop may open its first of another name meanwhile
            yield max(moment - began.get(name, moment), 0) / NANO, (name, timeline.role)


def _trajectories(watched: Watched) -> Read:
    doing = watched.in_flight.doing()
    for state in (*semconv.PARTS, semconv.OTHER):
        yield doing[state], (state,)


def _trajectory_age(watched: Watched) -> Read:
    moment = now()
    oldest = min((each.began for each in watched.in_flight.open_trajectories()), default=moment)
    yield max(moment - oldest, 0) / NANO, ()


def _of_a_loop(read: Callable[[Watched], Read]) -> Callable[[Watched], Read]:
    """Return what reads of a loop; nothing where the process has none: it is not idle, and no trajectories are 0."""

    def read_of_loop(watched: Watched) -> Read:
        if watched.timelines.own.role != MONITOR:
            yield from read(watched)

    return read_of_loop


def _last(row: table.Metric) -> Callable[[Watched], Read]:
    def read(watched: Watched) -> Read:
        for last in watched.last[row]:
            if last.value is not None:
                yield last.value, tuple(last.attributes.get(name) for name in row.attributes)

    return read


def _buffer_size(watched: Watched) -> Read:
    for depth in watched.buffers.read():
        yield depth.size, (depth.name,)


def _buffer_capacity(watched: Watched) -> Read:
    for depth in watched.buffers.read():
        if depth.capacity is not None:
            yield depth.capacity, (depth.name,)


def _device(column: int, *more: str) -> Callable[[Watched], Read]:
    """Return what reads one column of a GPU's readings; what the driver does not tell is left out."""

    def read(watched: Watched) -> Read:
        for reading in watched.gpu().readings():
            value: Any = reading[column]
            if value is not None:
                yield value, (reading[0], *more)

    return read


def _gpu_time(column: int) -> Callable[[Watched], Read]:
    def read(watched: Watched) -> Read:
        for times in watched.gpu().times():
            seconds: Any = times[column]
            yield seconds, (times[0], times[1], times[2])

    return read


def _gpu_peak(watched: Watched) -> Read:
    for device, phase, peak in watched.gpu().peaks():
        yield peak, (phase, device)


#: How each observed metric is read: values, each with those of the metric's attributes.
OBSERVED: Final[dict[table.Metric, Callable[[Watched], Read]]] = {
    table.PHASE_ACTIVE: _of_a_loop(_phase_active),
    table.PHASE_AGE: _of_a_loop(_phase_age),
    table.ACTIVE: _of_a_loop(_trajectories),
    table.TRAJECTORY_AGE: _of_a_loop(_trajectory_age),
    table.ENV_RATIO: _last(table.ENV_RATIO),
    table.REWARD: _last(table.REWARD),
    table.LOSS: _last(table.LOSS),
    table.BUFFER_SIZE: _buffer_size,
    table.BUFFER_CAPACITY: _buffer_capacity,
    table.GPU_PEAK: _gpu_peak,
    table.GPU_TIME: _gpu_time(3),
    table.GPU_BUSY: _gpu_time(4),
    table.GPU_UTILIZATION: _device(2),
    table.GPU_USED: _device(3),
    table.GPU_LIMIT: _device(4),
    table.POWER: _device(5, table.HW_GPU),
}
