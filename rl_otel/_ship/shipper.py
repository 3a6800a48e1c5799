"""The thread that delivers the journal of its process, and those that processes of the run have left behind.

It reads the files that the host's threads write, so an outage costs a delay and no memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rl_otel import _record, _safety
from rl_otel._budget import Measure
from rl_otel._clock import now
from rl_otel._folder import Folder
from rl_otel._journal import Cursor, Lock, Room, Writer, segment_path, segments
from rl_otel._ship.courier import Courier, Outlet
from rl_otel._ship.notes import Notes
from rl_otel._ship.plan import Plan
from rl_otel._ship.ready import Due
from rl_otel._ship.replay import Orphans
from rl_otel._ship.route import Route
from rl_otel._thread import Worker

_AT_A_TIME: Final = 8  # batches of other processes between two looks at our own journal
_TRIM: Final = 5.0  # s between two looks at the disk
_ORPHANS: Final = 30.0  # s between two looks for journals whose processes have gone


@dataclass
class Tally:
    """How many spans were sent, kept in the journal alone, and dropped."""

    sent: int = 0
    kept: int = 0
    dropped: int = 0
    held: int = 0  # of which nothing is decided yet

    @property
    def total(self) -> int:
        """All that need no more work."""
        return self.sent + self.kept + self.dropped


class Shipper:
    """Delivers one process's journal.

    Args:
        journal: of the process.
        folder: where that is.
        outlet: where to.
        resource: what the process says of itself.
        plan: how it sends.
    """

    def __init__(
        self,
        journal: Writer,
        folder: Folder,
        outlet: Outlet,
        resource: _record.Attributes,
        plan: Plan,
    ) -> None:
        cursor = Cursor(journal.base, overflow=journal.overflow)
        self.tally = Tally()
        self._folder = folder
        self._overflow = journal.overflow
        self._outlet = outlet
        self._plan = plan
        measure, write = Measure(resource), outlet.writer(resource, one_service=plan.one_service)
        self._selector = plan.selector(measure, write)
        self._route = Route(cursor, self._selector)
        self._notes = Notes(cursor.base, journal.overflow)
        self._courier = Courier(
            outlet, resource, one_service=plan.one_service, notes=self._notes, pause=self._pause, count=self._count
        )
        self._lock = Lock(cursor.base)
        self._room = Room(cursor)
        self._trimmed = 0.0
        self._lost_place = False  # whether the segment went that was being read
        self._delivering: list[Due] = []
        self._orphans = Orphans(folder, cursor.base, outlet, self._pause_if_last)
        self._inherited: Iterator[bool] | None = self._orphans.batches()
        self._looked_again = False  # for orphans, at last
        self.leaves_orphans = False  # once it was flushed for the last time: there was no time for them
        self._asked = time.monotonic()  # when they were looked for
        self._changed = threading.Condition()
        self._hurry = self._last = self._done = self._stopped = False
        self.worker = Worker("rl_otel ship", self._run, self._wake)

    # --- for the process ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, once."""
        if not self._stopped:
            self._stopped = not self.worker.start()

    def flush(self, ended: int, timeout: float, *, last: bool = False) -> bool:
        """Deliver what is decided of the first `ended` spans, for at most `timeout` seconds; whether it was enough.

        `last` where no more will come: then all is decided, and what other processes left is delivered as well.
        """
        if ended or (last and self._orphans.waiting()):
            self.start()
        deadline = time.monotonic() + max(timeout, 0.0)
        with self._changed:
            self._last |= last
            self._hurry = True  # once: while the back end is away the pauses between tries stay
            self._changed.notify_all()
            self._wait(lambda: self._settled(ended), deadline)
            self._done = last and self._settled(ended)
            if self._done:
                self._wait(self._inherited_all, deadline)
            in_time, settled = self._inherited_all(), self._settled(ended)
        self.leaves_orphans = last and not in_time and self._orphans.waiting()
        return settled

    def stop(self, timeout: float) -> None:
        """End the thread, waiting `timeout` seconds at most; a daemon that hangs in a name look-up holds nobody."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.worker.join(timeout)

    def forget(self) -> None:
        """In a forked child: let go of the parent's lock."""
        self._lock.release()

    def _wait(self, until: Callable[[], bool], deadline: float) -> None:
        while not until() and self.worker.alive and (left := deadline - time.monotonic()) > 0:
            self._changed.wait(left)

    def _inherited_all(self) -> bool:
        return self._looked_again and self._inherited is None

    def _settled(self, ended: int) -> bool:
        return self.tally.total + (0 if self._last else self.tally.held) >= ended

    def _wake(self) -> None:
        with self._changed:
            self._hurry = True
            self._changed.notify_all()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._look()
            except Exception as error:
                _safety.swallow("sending", error)
            with self.worker.pause():
                self._sleep(self._plan.delay)
            if self.worker.leaves(self._outlet.rest):
                return
        self._close()

    def _look(self) -> None:
        last = self._last  # asked first: what is said to be the last must have been written before
        if not self._lock.take():
            return  # `rl-otel ship` is at it
        self._pass(self._route.ready(now()))
        if last and not self._stopped:
            self._pass(self._route.finish())
        self._tend()
        self._inherit(last=last)

    def _pass(self, due: Iterator[list[Due]]) -> None:
        """Deliver what is due by now."""
        batch: list[Due] = []
        for ready in due:
            unsent = self._notes.unsent(ready)
            if len(unsent) < len(ready):
                self._count(len(ready) - len(unsent), 0)
            batch += unsent
            while len(batch) >= self._plan.batch:
                self._deliver(batch[: self._plan.batch])
                del batch[: self._plan.batch]
            if self._stopped or self._lost_place:
                break
        self._lost_place = False
        self._deliver(batch)

    def _deliver(self, batch: list[Due]) -> None:
        self._publish()
        if batch and not self._stopped:
            self._delivering = batch
            self._courier.deliver(batch)
            self._delivering = []

    def _inherit(self, *, last: bool) -> None:
        """Go on with what other processes have left; at last look for it once more, and go on to the end."""
        if last and not self._looked_again:
            self._inherited = self._orphans.batches()
            self._looked_again = True
        elif self._inherited is None and time.monotonic() - self._asked > _ORPHANS:
            self._asked, self._inherited = time.monotonic(), self._orphans.batches()
        rounds = 0
        while self._inherited is not None and not self._stopped and (last or rounds < _AT_A_TIME):
            rounds += 1
            if next(self._inherited, None) is None:
                self._inherited = None
        self._publish()

    def _close(self) -> None:
        self._inherited = None
        if self._done:
            self._notes.add_all()
        self._notes.close()
        self._route.cursor.close()
        self._outlet.close()
        self._lock.release()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _pause(self, seconds: float, patient: bool) -> bool:
        self._tend()
        with self.worker.pause(may_leave=False):
            self._sleep(seconds, patient=patient)
        return not self._stopped

    def _pause_if_last(self, seconds: float, patient: bool) -> bool:
        return self._last and self._pause(seconds, patient)  # until then our own spans come first

    def _sleep(self, seconds: float, *, patient: bool = False) -> None:
        """Wait, unless someone is in a hurry; `patient` waits all the same."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (self._hurry and not patient), seconds)
            self._hurry = False

    # --- counts and room ----------------------------------------------------------------------------------------------

    def _count(self, sent: int, dropped: int) -> None:
        with self._changed:
            self.tally.sent += sent
            self.tally.dropped += dropped
        self._publish()

    def _publish(self) -> None:
        """Let who waits see how far it is."""
        with self._changed:
            self.tally.kept, self.tally.held = self._selector.kept, self._selector.held
            self.tally.dropped += self._route.missing
            self._route.missing = 0
            self._changed.notify_all()

    def _tend(self) -> None:
        """Make room: in memory, and on the disk where the journal only serves the sending."""
        if self._overflow.numbers:
            for segment in self._delivered(self._overflow.numbers):
                self._overflow.release(segment)
        if self._folder.passing and time.monotonic() - self._trimmed > _TRIM:
            self._trimmed = time.monotonic()
            if self._room.is_short:
                self._trim(self._route.cursor)

    def _trim(self, cursor: Cursor) -> None:
        unread = self._room.trim(self._delivered(segments(cursor.base)))
        self._count(0, unread)
        self._lost_place = bool(unread) and not segment_path(cursor.base, cursor.segment).exists()

    def _delivered(self, numbers: list[int]) -> set[int]:
        """Return the segments of which nothing is left to be sent."""
        busy = self._route.segments() | self._selector.segments() | {ready.segment for ready in self._delivering}
        return {number for number in numbers if number < self._route.cursor.segment and number not in busy}
