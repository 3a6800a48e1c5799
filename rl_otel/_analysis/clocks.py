"""By how much the clocks of hosts differ, as far as spans that are inside those of another host can tell.

A span of one host that begins before the one it is inside of, or ends after it, was timed by another clock. How long a
message takes is not known, so no offset is known exactly: one is kept as long as nothing contradicts it, and else moved
no further than it must be. A beginning counts more than an end: some calls are left behind by who made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from rl_otel import _record, semconv
from rl_otel._read import Source

if TYPE_CHECKING:
    from rl_otel._analysis.trace import Span

_FOREVER: Final = 1 << 62


class Visit(NamedTuple):
    """What spans of one host inside a span of another say: what `child` has to add, at least and at most."""

    child: str
    parent: str
    least: int
    most: int


class Visits:
    """The spans inside of each, by host: when the first began, and when the last ended that was waited for."""

    def __init__(self) -> None:
        self._seen: dict[tuple[bytes, str], list[int]] = {}

    def add(self, source: Source, record: _record.Start | _record.End) -> None:
        """Note a span that has begun, or ended."""
        if not record.parent or record.name == semconv.STEP:
            return  # a step of a rank is opened by nobody else, whenever that is
        end = record.end if isinstance(record, _record.End) else 0
        if record.attributes.get(semconv.TRAJECTORY_OUTCOME) == semconv.ABORTED_OUTCOME:
            end = 0  # nobody has waited for it
        seen = self._seen.get((record.parent, source.host))
        if seen is None:
            self._seen[record.parent, source.host] = [record.start, end]
        else:
            seen[0] = min(seen[0], record.start)
            seen[1] = max(seen[1], end)

    def of(self, spans: Mapping[bytes, Span]) -> Iterator[Visit]:
        """Yield what they say, for those inside a span of another host."""
        for (parent, host), (start, end) in self._seen.items():
            around = spans.get(parent)
            if around is not None and around.source is not None and around.source.host != host:
                # What is longer than the span around it has outlived that, whatever the clocks are.
                fits = around.end and end and end - start <= around.end - around.start
                yield Visit(host, around.source.host, around.start - start, around.end - end if fits else _FOREVER)


class Clocks:
    """The offset of each host's clock; all processes of a host share one.

    Args:
        sources: the processes, of which `shift` is kept up to date.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self.widest: dict[str, int] = {}  # ns, the largest that was added to a host's times
        self._hosts: dict[str, list[Source]] = {}
        for source in sources:
            self._hosts.setdefault(source.host, []).append(source)

    @property
    def differ(self) -> bool:
        """Whether there is more than one."""
        return len(self._hosts) > 1

    def settle(self, reference: str, visits: Iterable[Visit]) -> None:
        """Take what a trace says, of which the root was timed by the clock of `reference`."""
        bounds = _both_ways(visits)
        settled = {reference}
        while True:
            reached = {child for child, parent in bounds if parent in settled} - settled
            if not reached:
                return
            for host in reached:
                self._move(host, [(parent, each) for (child, parent), each in bounds.items() if child == host], settled)
            settled |= reached

    def _move(self, host: str, bounds: list[tuple[str, tuple[int, int]]], settled: set[str]) -> None:
        known = [
            (least + self._of(parent), most + self._of(parent)) for parent, (least, most) in bounds if parent in settled
        ]
        least, most = max(each[0] for each in known), min(each[1] for each in known)
        offset = max(least, min(most, self._of(host)))
        for source in self._hosts.get(host, ()):
            source.shift = offset
        if abs(offset) > abs(self.widest.get(host, 0)):
            self.widest[host] = offset

    def _of(self, host: str) -> int:
        return next((source.shift for source in self._hosts.get(host, ())), 0)


def _both_ways(visits: Iterable[Visit]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the bounds of each two hosts, seen from either."""
    bounds: dict[tuple[str, str], tuple[int, int]] = {}
    for visit in visits:
        for one, other, least, most in (
            (visit.child, visit.parent, visit.least, visit.most),
            (visit.parent, visit.child, -visit.most, -visit.least),
        ):
            low, high = bounds.get((one, other), (-_FOREVER, _FOREVER))
            bounds[one, other] = max(low, least), min(high, most)
    return bounds
