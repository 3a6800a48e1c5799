"""From the journal to a back end: read on, hold what waits for a late value, deliver, try again.

The thread reads the file that the host's threads write, so an outage costs a delay and no memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from rl_otel import _record, _safety
from rl_otel._journal import read
from rl_otel._send import Backoff

Span: TypeAlias = "_record.End | _record.Foreign"

_HOLD: Final = 5.0  # s that a span waits for its late value


class Verdict(NamedTuple):
    """What became of spans that were to be delivered."""

    sent: int = 0
    dropped: int = 0
    rest: list[Span] = []  # noqa: RUF012 - never changed; to be tried again
    wait: float | None = None  # s, what the back end asked for before the next try


class Outlet(Protocol):
    """Delivers spans to a back end."""

    def deliver(self, spans: list[Span]) -> Verdict:
        """Deliver `spans`, and say what became of each. Never raises."""

    def close(self) -> None:
        """Let go of connections."""


@dataclass
class Tally:
    """How many spans were sent, kept in the journal alone, and dropped."""

    sent: int = 0
    kept: int = 0
    dropped: int = 0

    @property
    def total(self) -> int:
        """All that need no more work."""
        return self.sent + self.kept + self.dropped


@dataclass
class _Held:
    span: _record.End
    until: float = field(default_factory=lambda: time.monotonic() + _HOLD)


class Shipper:
    """The thread that delivers one process's journal."""

    def __init__(self, path: Path, outlet: Outlet, *, delay: float, batch: int) -> None:
        self.tally = Tally()
        self._path = path
        self._outlet = outlet
        self._backoff = Backoff()
        self._delay = delay
        self._batch = batch
        self._offset = 0
        self._held: dict[bytes, _Held] = {}
        self._changed = threading.Condition()
        self._hurry = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="rl_otel ship", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down
                self._stopped = True

    def flush(self, ended: int, timeout: float) -> bool:
        """Deliver the first `ended` spans, for at most `timeout` seconds; whether it was enough."""
        deadline = time.monotonic() + max(timeout, 0.0)
        with self._changed:
            self._hurry = True  # once: while the back end is away the pauses between tries stay
            self._changed.notify_all()
            while self.tally.total < ended and self._alive() and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return self.tally.total >= ended

    def stop(self, timeout: float) -> None:
        """End the thread, waiting `timeout` seconds at most; a daemon that hangs in a name look-up holds nobody."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None and self._alive():
            self._thread.join(max(timeout, 0.0))

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._pass()
            except Exception as error:
                _safety.swallow("sending", error)
            self._sleep(self._delay)
        self._outlet.close()

    def _sleep(self, seconds: float, *, patient: bool = False) -> None:
        """Wait, unless someone is in a hurry; `patient` waits all the same."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (self._hurry and not patient), seconds)
            self._hurry = False

    def _pass(self) -> None:
        """Deliver what the journal holds by now."""
        batch: list[Span] = []
        for span in self._ready():
            batch.append(span)
            if len(batch) >= self._batch:
                self._deliver(batch)
                batch = []
            if self._stopped:
                return
        if batch:
            self._deliver(batch)

    def _ready(self) -> Iterator[Span]:
        if not self._path.exists():
            return
        for record, self._offset in read(self._path, self._offset):  # noqa: B020 - the offset is kept as we go
            if isinstance(record, _record.Late):
                held = self._held.pop(record.span, None)
                if held is not None:
                    held.span.attributes.update(record.attributes)
                    yield held.span
            elif isinstance(record, _record.End | _record.Foreign):
                yield from self._sorted(record)
        for id_ in [id_ for id_, held in self._held.items() if held.until < time.monotonic()]:
            yield self._held.pop(id_).span

    def _sorted(self, span: Span) -> Iterator[Span]:
        if span.flags & _record.LOCAL:
            return
        if not span.flags & _record.SAMPLED:
            self._count(kept=1)
        elif span.flags & _record.AWAITED and isinstance(span, _record.End):
            self._held[span.span] = _Held(span)
        else:
            yield span

    def _deliver(self, spans: list[Span]) -> None:
        while spans:
            verdict = self._tried(spans)
            self._count(sent=verdict.sent, dropped=verdict.dropped)
            spans = verdict.rest
            if spans:
                self._sleep(self._backoff.delay(verdict.wait), patient=verdict.wait is not None)
                if self._stopped:
                    return
        self._backoff.reset()

    def _tried(self, spans: list[Span]) -> Verdict:
        try:
            return self._outlet.deliver(spans)
        except Exception as error:
            _safety.swallow("sending", error)
            return Verdict(dropped=len(spans))

    def _count(self, *, sent: int = 0, kept: int = 0, dropped: int = 0) -> None:
        with self._changed:
            self.tally.sent += sent
            self.tally.kept += kept
            self.tally.dropped += dropped
            self._changed.notify_all()
