"""Records as a process writes them, and what a budget makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_otel import semconv
from rl_otel._budget import Budget, Measure, Selector, place_of, spot_of
from rl_otel._journal import Batch
from rl_otel._otlp import Piece, Request, Span, Writer, encoding_of
from rl_otel._record import ERROR, LOCAL, SAMPLED, UNSET, End, Foreign, Record, Start

S = 1_000_000_000
TRACE = b"\1" * 16
RESOURCE = {semconv.SERVICE_NAME: "grpo", semconv.RUN_ID: "r" * 300, semconv.HOST_NAME: "node"}
PHASES = frozenset(semconv.PHASES)


class Story:
    """Records one after another; spans go by names, times are seconds."""

    def __init__(self, trace: bytes = TRACE) -> None:
        self.trace = trace
        self.records: list[Record] = []
        self.names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {"": b""}
        self._open: dict[str, tuple[str, str, float, dict[str, Any]]] = {}

    def id(self, span: str) -> bytes:
        """Return the id of a span."""
        if span not in self._ids:
            self._ids[span] = len(self._ids).to_bytes(8, "big")
            self.names[self._ids[span]] = span
        return self._ids[span]

    def begin(self, name: str, at: float, span: str = "", parent: str = "", **attributes: Any) -> None:
        """A step, phase or trajectory begins."""
        span = span or name
        if name in PHASES:
            attributes[semconv.PHASE] = name
        self._open[span] = name, parent, at, attributes
        self.records.append(Start(self.trace, self.id(span), self.id(parent), name, round(at * S), attributes))

    def end(self, span: str, at: float, *, status: int = UNSET, **attributes: Any) -> None:
        """What began ends."""
        name, parent, start, given = self._open.pop(span)
        self.add(name, start, at, span, parent, status=status, **{**given, **attributes})

    def add(
        self, name: str, start: float, end: float, span: str, parent: str, *, status: int = UNSET, **attributes: Any
    ) -> None:
        """A span ends of which nothing was said before."""
        ids = self.trace, self.id(span), self.id(parent)
        self.records.append(End(*ids, name, round(start * S), round(end * S), attributes, status=status))

    def foreign(self, end: float, span: str, parent: str, *, flags: int = SAMPLED) -> None:
        """Another library's span ends."""
        ids = self.trace, self.id(span), self.id(parent)
        self.records.append(Foreign(*ids, "GET", round(end * S) - 1, round(end * S), {}, flags, scope="httpx"))

    def play(
        self, span: str, start: float, end: float, calls: int = 4, parent: str = "rollout", *, failed: bool = False,
        reward: float | None = None, **attributes: Any,
    ) -> None:  # fmt: skip
        """A whole trajectory, with so many calls."""
        self.begin(semconv.TRAJECTORY, start, span, parent)
        self.calls(span, start, end, calls)
        known = {semconv.TRAJECTORY_REWARD: reward} if reward is not None else {}
        self.end(span, end, status=ERROR if failed else UNSET, **known, **attributes)

    def calls(self, parent: str, start: float, end: float, calls: int, name: str = semconv.GENERATE) -> None:
        """Calls that end at even distances."""
        for number in range(calls):
            at = start + (end - start) * (number + 1) / (calls + 1)
            self.add(name, at, at, f"{parent}.{number}", parent)


@dataclass
class Sent:
    """What a selector had sent of a story, as the names of the spans, and in which requests."""

    spans: list[Span] = field(default_factory=list)
    size: int = 0  # bytes of all requests
    at: dict[bytes, int] = field(default_factory=dict)  # by span: after how many records it left

    def named(self, story: Story) -> list[str]:
        """Return the names of what was sent."""
        return [story.names[span.span] for span in self.spans]

    def one(self, story: Story, span: str) -> Span:
        """Return the one span of that name as it was sent."""
        (found,) = [each for each in self.spans if story.names[each.span] == span]
        return found


def selector(spans: int = 10_000, *, quota: int | None = None, batch: int = 512, room: int = 0) -> Selector:
    """Return a selector that measures as the real one does."""
    measure = Measure(RESOURCE)
    budget = Budget.of(spans, envelope=measure.envelope, window=5.0, batch=batch)
    return Selector(budget, measure.write, quota=quota, room=room)


def played(records: list[Record], selector: Selector, *, batch: int = 512, finish: bool = True) -> Sent:
    """Return what a selector has sent, in requests of up to `batch` spans and 5 s."""
    write = Writer(encoding_of("grpc"), RESOURCE)
    sent, since, now = Sent(), 0, 0
    request: list[Piece] = []
    places = {
        record.span: spot_of(number, 0) for number, record in enumerate(records) if isinstance(record, End | Foreign)
    }
    for number, record in enumerate([*records, None]):
        if record is None and not finish:
            break
        if isinstance(record, Start | End | Foreign):
            now = max(now, record.start if isinstance(record, Start) else record.end)
        if record is not None and selector.hold(Batch([record], [number], 0), 0):
            continue
        for each in selector.take(record, number) if record is not None else selector.finish():
            if isinstance(each, Piece):
                each = places[each.id]
            span = records[place_of(each)] if isinstance(each, int) else each
            assert isinstance(span, End | Foreign)
            if request and (len(request) == batch or now - since >= 5 * S):
                sent.size += len(Request(write.encoding, request).body())
                request = []
            if not request:
                since = now
            request.append(write(span))
            sent.spans.append(span)
            sent.at[span.span] = number
    sent.size += len(Request(write.encoding, request).body()) if request else 0
    return sent


def ended(records: list[Record]) -> list[Span]:
    """Return the spans that ended and are ours to send or keep."""
    return [each for each in records if isinstance(each, End | Foreign) and not each.flags & LOCAL]


def step(trajectories: int, calls: int, **odd: dict[str, Any]) -> Story:
    """A step with one rollout; `odd` says of some trajectories (t3=…) what is different about them."""
    story = Story()
    story.begin("step", 0)
    story.begin("rollout", 0, parent="step")
    for number in range(trajectories):
        story.play(f"t{number}", **{"start": 0, "end": 10, "calls": calls, **odd.get(f"t{number}", {})})
    story.end("rollout", 20)
    story.add("train", 20, 30, "train", "step", **{semconv.PHASE: "train"})
    story.end("step", 30)
    return story


def full(story: Story, sent: list[str]) -> set[str]:
    """Return the trajectories of which every call was sent."""
    calls: dict[str, set[str]] = {}
    for name in story.names.values():
        if "." in name:
            calls.setdefault(name.partition(".")[0], set()).add(name)
    return {trajectory for trajectory, names in calls.items() if names <= set(sent)}


def shown(span: Any) -> dict[str, int]:
    """Return what a rollout says of what is shown of it."""
    names = ("shown.full", "shown.totals", "shown.none", "spans.shown", "spans.kept")
    return {name: span.attributes[key] for name in names if (key := f"rl.rollout.{name}") in span.attributes}
