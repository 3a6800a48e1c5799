"""What a running or killed run has open, and since when."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

from rl_otel import semconv
from rl_otel._analysis import Unfinished
from rl_otel._read import Source
from rl_otel._record import Start
from rl_otel._render.words import described
from rl_otel._table import LONGEST_ID, cut, short, wrapped
from rl_otel._terminal import command

_LISTED = 24
_HOUR = 3600_000_000_000  # ns
_UNNAMED = "(a generate or env.step is named once it has been open for 10 to 15 s)"


class _Ages:
    """Ages of open spans: until now where their process still runs on this host, else until its last sign of life."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}
        self._living: set[str] = set()
        self._notes: dict[str, str] = {}

    def of(self, source: Source, start: int) -> str:
        if source.name not in self._until:
            self._look(source)
        age = max(self._until[source.name] - start, 0)
        told = short(age) if age >= _HOUR else f"{age / 1e9:.0f} s"
        return told if source.name in self._living else f"{told} when last heard of"

    def notes(self) -> list[str]:
        """Return a sentence for each process on what its ages mean."""
        return [line for note in self._notes.values() for line in wrapped(note, indent="    ")]

    def _look(self, source: Source) -> None:
        who = f"process {source.resource.get(semconv.PROCESS_PID)}"
        if source.lives():
            self._living.add(source.name)
            self._until[source.name] = time.time_ns()
            self._notes[source.name] = f"({who} is running: ages are as of now)"
            return
        self._until[source.name] = source.last
        moment = f"{datetime.fromtimestamp(source.last / 1e9, tz=timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
        host = source.resource.get(semconv.HOST_NAME)
        state = "is gone" if source.is_here else f"is on another host, {host}"
        self._notes[source.name] = f"({who} {state}; last heard of at {moment})"


def open_lines(unfinished: Unfinished) -> list[str]:
    """Return a line for each thing that is open in a trace, the oldest first."""
    ages = _Ages()
    opened = sorted(unfinished.trace.opened.values(), key=lambda pair: pair[1].start)
    around = {id(unfinished.trace.trajectory_around(start.parent)) for _, start in opened}
    # A trajectory is told by what is open in it.
    shown = [(source, start) for source, start in opened if id(start) not in around]
    where = "outside a step" if unfinished.index is None else f"in step {unfinished.index}"
    lines = [f"  Open {where}:"]
    for source, start in shown[:_LISTED]:
        lines.append(f"    {_what(unfinished, start)}, open {ages.of(source, start.start)}")
    if len(shown) > _LISTED:
        lines.append(f"    and {len(shown) - _LISTED} more, opened later")
    between = any(start.name == semconv.TRAJECTORY for _, start in shown)
    return lines + ages.notes() + ([f"    {_UNNAMED}"] if between else [])


def open_summary(unfinished: Unfinished, run: Path) -> list[str]:
    """Return what is open in a trace in one sentence, and how to see more."""
    ages = _Ages()
    opened = sorted(unfinished.trace.opened.values(), key=lambda pair: pair[1].start)
    source, oldest = opened[0]
    closed, index = unfinished.trace.closed, unfinished.index
    names = Counter(_named(start) for _, start in opened if closed or start.name != semconv.STEP)
    inside = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in names.items())
    age = ages.of(source, oldest.start)
    if index is None:
        return [f"Outside a step: {inside}, open {age}", *ages.notes()]
    if closed:
        are = "is" if names.total() == 1 else "are"
        state = f"Step {index} has ended, but {inside} {are} still open in it, for {age}"
    else:
        state = f"Step {index} has not ended{f': {inside}' if inside else ''}, open {age}"
    return [state, *ages.notes(), f"    What is open: {command('report', run, '--step', str(index))}"]


def _named(start: Start) -> str:
    rank = start.attributes.get(semconv.RANK)
    return start.name if rank is None else f"{start.name} of rank {rank}"


def _what(unfinished: Unfinished, start: Start) -> str:
    around = start if start.name == semconv.TRAJECTORY else unfinished.trace.trajectory_around(start.parent)
    if around is None:
        return described(_named(start), start.attributes)
    words = [cut(str(around.attributes.get(semconv.TRAJECTORY_ID, around.span.hex())), LONGEST_ID)]
    turn = start.attributes.get(semconv.TURN, _last_turn(unfinished, around))
    if turn is not None:
        words.append(f"turn {turn}")
    if start is not around:
        words.append(described(start.name, start.attributes))
    return " ".join(words)


def _last_turn(unfinished: Unfinished, around: Start) -> int | None:
    calls = (call for call in unfinished.trace.calls if call.parent == around.span)
    return max((call.attributes[semconv.TURN] for call in calls if semconv.TURN in call.attributes), default=None)


__all__ = ["open_lines", "open_summary"]
