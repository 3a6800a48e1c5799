"""The thread that looks after what is open: start records of calls that last, values that come late, signs of life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rl_otel import _safety
from rl_otel._clock import monotonic, now
from rl_otel._late import Late
from rl_otel._thread import Bell, Worker
from rl_otel._timeline import InFlight, Open

TICK: Final = 5.0  # s between two looks
SOON: Final = 0.05  # s between two looks while a value is on its way
LONG: Final = 10_000_000_000  # ns after which a call that is still open gets its start record


class Keeper:
    """Started with the first span of the process.

    Args:
        in_flight: the calls that are open.
        late: what waits for its values.
        announce: writes the start record of a call.
        tend: looks after the journal, with each tick.
    """

    def __init__(
        self, in_flight: InFlight, late: Late, announce: Callable[[Open], None], tend: Callable[[], None]
    ) -> None:
        self._in_flight = in_flight
        self._late = late
        self._announce = announce
        self._tend = tend
        self._tended = monotonic()
        self._announced: set[int] = set()
        self._bell = Bell()
        self._stopped = False
        self.worker = Worker("rl_otel keeper", self._run, self._bell.ring)

    def start(self) -> None:
        """Start the thread, once."""
        if not self._stopped:
            self._stopped = not self.worker.start()

    def stop(self) -> None:
        """End the thread with a last look, and wait for that a moment."""
        self._stopped = True
        self._bell.ring()
        self.worker.join(1.0)

    def look(self) -> None:
        """Look now: a value is on its way."""
        self._bell.ring()

    def _run(self) -> None:
        last = False
        while not last:
            with self.worker.pause():
                self._bell.wait(SOON if self._late else TICK)
            if self.worker.leaves():
                return
            last = self._stopped
            try:
                self._look(last=last)
            except Exception as error:
                _safety.swallow("keeper", error)

    def _look(self, *, last: bool) -> None:
        if (moment := monotonic()) - self._tended >= TICK * 1e9:
            self._tended = moment
            self._tend()
        self._late.poll(last=last)
        long = {id(call): call for call in self._in_flight.calls_since(now() - LONG)}
        for key, call in long.items():
            if key not in self._announced:
                self._announce(call)
        self._announced = set(long)
