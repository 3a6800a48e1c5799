"""The weight_sync phase and its parts: what moves, how fast, and for how long nothing could be generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_otel import _split, _values, semconv
from rl_otel._metrics import events
from rl_otel._spans import misuse
from rl_otel._spans.phase import Named
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime

_NANO = 1_000_000_000


class WeightSync(Named):
    """New weights go to the engine; `record(policy_version=v)` is what generate calls carry from then on."""

    name = semconv.WEIGHT_SYNC
    words = semconv.WORDS[semconv.WEIGHT_SYNC]

    _parts: list[SyncPart]

    def part(self, name: str, *, bytes: int | None = None) -> SyncPart:  # noqa: A002 - the word of `record`
        """Open a part: pause, gather, transfer, load or resume.

        Args:
            name: which; parts of one name may overlap, and their durations are never added up as wall time.
            bytes: how much it moves, where that is known before.
        """
        return SyncPart(name, bytes=bytes, sync=self)

    def ended_part(self, part: SyncPart) -> None:
        """Note a part that has ended."""
        self._parts.append(part)

    def _opened(self, runtime: Runtime) -> None:
        super()._opened(runtime)
        self._parts = []

    def _closed(self, runtime: Runtime, end: int) -> None:
        version = _values.plain(self._attributes.get(semconv.POLICY_VERSION))  # as others are told it
        if version is not None:
            runtime.policy_version, runtime.policy_learned = version, False
            runtime.register.synced(version, (self._trace, self._span))
        if self._parts:
            self._attributes.update(_figures(self._parts, end, self._attributes.get(semconv.SYNC_BYTES)))
            self._parts = []
        super()._closed(runtime, end)


class SyncPart(Span):
    """A part of a weight sync.

    Args:
        name: pause, gather, transfer, load or resume.
        bytes: how much it moves.
        sync: the weight sync it is a part of, wherever it is opened.
    """

    words = semconv.WORDS[semconv.WEIGHT_SYNC]
    places = (semconv.WEIGHT_SYNC,)

    def __init__(self, name: str, *, bytes: int | None = None, sync: WeightSync | None = None) -> None:  # noqa: A002
        misuse.check_brackets(type(self), name)
        self.part = misuse.words_for(name, 64)
        self.name = semconv.SYNC_PART_SPAN.format(part=self.part)
        self.bytes = bytes
        self._sync = sync

    def arguments(self) -> dict[str, Any]:
        return {"name": self.part, "bytes": self.bytes, "sync": self._sync}

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        sync = self._sync
        # In a thread of its own the ambient span is none, or another one.
        if sync is not None and sync.recording and (enclosing is None or not enclosing.within(sync)):
            enclosing = sync
        super()._settle_in(enclosing, runtime)

    def _opened(self, runtime: Runtime) -> None:
        self._attributes[semconv.SYNC_PART] = self.part
        if self.part not in semconv.SYNC_PARTS:
            misuse.part(self.part)
        if self.bytes is not None:
            self._take("bytes", self.words["bytes"], self.bytes)

    def _closed(self, runtime: Runtime, end: int) -> None:
        moved = self._attributes.get(semconv.SYNC_BYTES)
        if moved is not None and end > self.began:
            self._attributes[semconv.SYNC_RATE] = moved * _NANO / (end - self.began)
        sync = self.enclosing if self._sync is None else self._sync
        if isinstance(sync, WeightSync) and sync.recording:
            sync.ended_part(self)
        if runtime.meter is not None:
            runtime.meter.add(events.Part(self.seen, self.part, end - self.began))


def _figures(parts: list[SyncPart], end: int, moved: int | None) -> dict[str, Any]:
    """Return what a weight sync says of its parts: of each name the wall time that its spans cover together."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(part.part for part in parts):
        times = _times(parts, name)
        found[semconv.SYNC_PART_DURATION.format(part=name)] = _split.union(times) / _NANO
        found[semconv.SYNC_PART_COUNT.format(part=name)] = len(times)
    transfers = [part for part in parts if part.part == semconv.TRANSFER]
    known = [each.attributes[semconv.SYNC_BYTES] for each in transfers if semconv.SYNC_BYTES in each.attributes]
    if moved is None and known and len(known) == len(transfers):
        moved = found[semconv.SYNC_BYTES] = sum(known)
    wall = _split.union(_times(parts, semconv.TRANSFER))
    if moved is not None and wall:
        found[semconv.SYNC_RATE] = moved * _NANO / wall
    paused = _paused(_times(parts, semconv.PAUSE), _times(parts, semconv.RESUME), end)
    return found if paused is None else {**found, semconv.SYNC_PAUSED: paused / _NANO}


def _times(parts: list[SyncPart], name: str) -> list[tuple[int, int]]:
    return [(part.began, part.finished) for part in parts if part.part == name]


def _paused(pauses: list[tuple[int, int]], resumes: list[tuple[int, int]], end: int) -> int | None:
    """Return for how long generation stood: from each pause to the end of the resume after it, else of the sync."""
    if not pauses:
        return None
    ends = sorted(finished for _, finished in resumes)
    stood = [(began, next((each for each in ends if each > began), end)) for began, _ in pauses]
    return _split.union(stood)


__all__ = ["SyncPart", "WeightSync"]
