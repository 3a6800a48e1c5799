"""What a running or killed run has open, and since when."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timezone

from rl_otel import semconv
from rl_otel._analysis import Unfinished
from rl_otel._read import Source
from rl_otel._record import Start
from rl_otel._render.slowest import described
from rl_otel._table import printable, wrapped

_LISTED = 24


class _Ages:
    """Ages of open spans: until now where their process still runs on this host, else until its last record."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}
        self._notes: dict[str, str] = {}

    def of(self, source: Source, start: int) -> str:
        if source.name not in self._until:
            self._look(source)
        return f"open {max(self._until[source.name] - start, 0) / 1e9:.0f} s"

    def notes(self) -> list[str]:
        """Return a sentence for each process on what its ages mean."""
        return [line for note in self._notes.values() for line in wrapped(note, indent="    ")]

    def _look(self, source: Source) -> None:
        who = f"process {source.resource.get(semconv.PROCESS_PID)} on {source.resource.get(semconv.HOST_NAME)}"
        if source.lives():
            self._until[source.name] = time.time_ns()
            note = "is running: ages are as of now"
        else:
            self._until[source.name] = source.last
            moment = datetime.fromtimestamp(source.last / 1e9, tz=timezone.utc)
            note = f"is not running here: ages count to its last record, {moment:%Y-%m-%d %H:%M:%S} UTC"
        self._notes[source.name] = f"({printable(who)} {note})"


def open_lines(unfinished: Unfinished) -> list[str]:
    """Return a line for each thing that is open in a trace, the oldest first."""
    ages = _Ages()
    opened = sorted(unfinished.trace.opened.values(), key=lambda pair: pair[1].start)
    around = {id(unfinished.trace.trajectory_around(start.parent)) for _, start in opened}
    # A trajectory is told by what is open in it.
    shown = [(source, start) for source, start in opened if id(start) not in around]
    where = "outside a step" if unfinished.index is None else f"in step {unfinished.index}"
    lines = [f"  Open {where}:"]
    lines += [f"    {_what(unfinished, start)}, {ages.of(source, start.start)}" for source, start in shown[:_LISTED]]
    if len(shown) > _LISTED:
        lines.append(f"    and {len(shown) - _LISTED} more, opened later")
    return lines + ages.notes()


def open_summary(unfinished: Unfinished, run: str) -> list[str]:
    """Return what is open in a trace in one sentence, and how to see more."""
    ages = _Ages()
    opened = sorted(unfinished.trace.opened.values(), key=lambda pair: pair[1].start)
    source, oldest = opened[0]
    names = Counter(start.name for _, start in opened if start.name != semconv.STEP)
    inside = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in names.items())
    if unfinished.index is None:
        return [f"Outside a step: {inside}, {ages.of(source, oldest.start)}", *ages.notes()]
    told = f": {inside}" if inside else ""
    state = "has ended, but in it is still open" if unfinished.trace.closed else "has not ended"
    return [
        f"Step {unfinished.index} {state}{told}, {ages.of(source, oldest.start)}",
        *ages.notes(),
        f"    What is open: rl-otel report {run} --step {unfinished.index}",
    ]


def _what(unfinished: Unfinished, start: Start) -> str:
    around = start if start.name == semconv.TRAJECTORY else unfinished.trace.trajectory_around(start.parent)
    if around is None:
        return described(start.name, start.attributes)
    words = [str(around.attributes.get(semconv.TRAJECTORY_ID, around.span.hex()))]
    turn = start.attributes.get(semconv.TURN, _last_turn(unfinished, around))
    if turn is not None:
        words.append(f"turn {turn}")
    if start is not around:
        words.append(described(start.name, start.attributes))
    return printable(" ".join(words))


def _last_turn(unfinished: Unfinished, around: Start) -> int | None:
    calls = (call for call in unfinished.trace.calls if call.parent == around.span)
    return max((call.attributes[semconv.TURN] for call in calls if semconv.TURN in call.attributes), default=None)


__all__ = ["open_lines", "open_summary"]
