"""One trace: what is open in it, and what each record that begins or ends does about what is held."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec

from rl_otel import semconv
from rl_otel._budget.books import Books
from rl_otel._budget.candidates import failed
from rl_otel._budget.decision import Decision
from rl_otel._budget.opened import ROLLOUTS, Phase, Trajectory, is_phase
from rl_otel._budget.pace import Pace
from rl_otel._budget.purse import NOTHING
from rl_otel._budget.rank import in_share
from rl_otel._budget.refs import Held, Late, Refs, size_of, spot_of
from rl_otel._budget.repeats import Repeat, Repeats
from rl_otel._journal import Batch, Place, segment_of
from rl_otel._otlp import Span
from rl_otel._record import SAMPLED, End, Start

#: To be sent: a span as it is, or as it was written, or one to be read back.
Send: TypeAlias = "Span | Held"

_APART: Final = (semconv.TRAJECTORY, semconv.STEP)
_PHASE: Final = semconv.PHASE

_PATIENCE: Final = 60_000_000_000  # ns that a rollout runs before its stragglers are shown


class Trace:
    """Routes the records of one trace.

    Args:
        books: Its purse, and the counts of all traces.
    """

    __slots__ = (
        "_alarm", "_early", "_open", "_pace", "_pending", "_repeats", "_rollouts", "_rooted", "_running", "books",
    )  # fmt: skip

    def __init__(self, books: Books) -> None:
        self.books = books
        self._rooted = False  # whether its root has ended
        self._open: dict[bytes, Phase | Trajectory] = {}
        self._rollouts: list[Phase] = []  # the open ones
        self._running: dict[bytes, Trajectory] = {}  # open, of an open rollout, not live; the oldest first
        self._pending: dict[bytes, Refs] = {}  # by parent: what ended inside a span that we know nothing of yet
        self._alarm = 0.0  # when the next of those becomes a straggler, if no trajectory or phase ends before
        self._pace = Pace()
        self._early = (0, 0)  # trajectories that left as they ended, and their bytes
        self._repeats = Repeats()

    @property
    def over(self) -> bool:
        """Whether its root has ended, and nothing in it is open."""
        return self._rooted and not self._open

    # --- records ------------------------------------------------------------------------------------------------------

    def hold(self, id_: bytes, batch: Batch, at: int, until: float) -> int:
        """Hold the spans of a batch from one on as long as there is nothing else to do about them, as about most.

        Returns which is the first that is more, or ended at `until` or later.
        """
        if self._pending:
            return at
        records, places, first, books = batch.records, batch.begins, at, self.books
        now, alarm = books.now, min(until, self._alarm)
        around_of, write, room, segment = self._open.get, books.write, books.counts.room, segment_of(places[at])
        for record, place in zip(records[at:], places[at:], strict=True):
            if type(record) is not End or record.flags != SAMPLED or record.trace != id_:
                break
            around, moment = around_of(record.parent), record.end
            if around is None or around.live or moment >= alarm or record.name in _APART or _PHASE in record.attributes:
                break
            try:
                piece = write(record, segment)
            except Exception:
                break
            size = piece.size
            if size <= room:
                room -= size
                around.refs.append(piece)
            else:
                around.refs.append(spot_of(place, size))
            now = max(now, moment)
            at += 1
        books.take_room(books.counts.room - room)
        books.now = now
        books.counts.held += at - first
        return at

    def start(self, record: Start) -> list[Send]:
        """Take a span that began, and return what is to be sent."""
        self.books.now = max(self.books.now, record.start)
        if record.name == semconv.TRAJECTORY:
            trajectory = self._open[record.span] = self._begun(record)
            if trajectory.home is not None and trajectory.around is None:
                self._running[record.span] = trajectory
        elif is_phase(record):
            phase = self._open[record.span] = Phase(record.start)
            if record.name in ROLLOUTS:
                self._rollouts.append(phase)
        return self._stragglers()

    def end(self, record: Span, place: Place, late: Late = ()) -> list[Send]:
        """Take a span that ended, and where it is in the journal; return what is to be sent."""
        self.books.now = max(self.books.now, record.end)
        if not isinstance(record, End) or not (record.name == semconv.TRAJECTORY or is_phase(record)):
            sends = self._detail(record, self.books.written(record, place, late))
            return sends + self._stragglers()
        if record.name == semconv.TRAJECTORY:
            sends = self._trajectory(record, self.books.written(record, place, late))
        elif record.name == semconv.STEP:
            sends = self._step(record)
        else:
            sends = self._phase(record, place, late)
        self._rooted |= record.name == semconv.STEP or not record.parent
        return sends + (self._stragglers() if self._open else self._leftovers())

    def pass_on(self, span: bytes, parent: bytes) -> None:
        """Take a span that is not ours to send: what ended inside it is inside its parent."""
        if span in self._pending:
            inside = self._pending.pop(span)
            self._place(parent).extend(inside)

    def finish(self) -> list[Send]:
        """Nothing more will come: decide what is undecided, and return what is to be sent."""
        sends: list[Send] = []
        for each in reversed(self._open.values()):
            if isinstance(each, Phase):
                sends += self._decided(each).sends
        for each in self._open.values():
            if isinstance(each, Trajectory):
                sends += self._all_or_none(each)
        self._open.clear()
        return sends + self._leftovers()

    def held(self) -> list[Refs]:
        """Return all that is held."""
        held = [*self._pending.values(), *(each.refs for each in self._open.values()), self._repeats.held()]
        for each in self._open.values():
            if isinstance(each, Phase):
                held += each.candidates.refs
        return held

    # --- trajectories -------------------------------------------------------------------------------------------------

    def _begun(self, record: Start | End) -> Trajectory:
        around = self._open.get(record.parent)
        if isinstance(around, Trajectory):
            return Trajectory(record.start, around, around.home)
        if around is None and record.parent and self._rollouts:
            around = self._rollouts[-1]  # another library's span is between
        return Trajectory(record.start, None, around)

    def _trajectory(self, record: End, held: Held) -> list[Send]:
        trajectory = self._open.pop(record.span, None)
        if not isinstance(trajectory, Trajectory):
            trajectory = self._begun(record)  # recorded afterwards, or its start is lost
        self._running.pop(record.span, None)
        self._gather(record.span, trajectory.refs)
        trajectory.ended = True
        if trajectory.around is not None and not trajectory.around.ended:
            return self._inner(held, trajectory, trajectory.around)
        self._pace.add(record.end - record.start)
        if trajectory.home is None or trajectory.home.ended:
            return self._alone(record, held, trajectory)
        return self._candidate(record, held, trajectory, trajectory.home)

    def _candidate(self, record: End, held: Held, trajectory: Trajectory, home: Phase) -> list[Send]:
        if self._leaves(size_of(held)):
            home.candidates.add(record, None, trajectory.refs, trajectory.left + 1)
            return [held]
        home.candidates.add(record, held, trajectory.refs, trajectory.left)
        self.books.counts.held += 1
        return []

    def _inner(self, held: Held, inner: Trajectory, around: Trajectory) -> list[Send]:
        """One inside another: its own span leaves, its detail shares the other's fate."""
        sends: list[Send] = [held] if self._leaves(size_of(held)) else []
        if not sends:
            self.books.hold(around.refs, held)
        around.left += inner.left + len(sends)
        around.refs.extend(inner.refs)
        return sends + self._live(around)

    def _alone(self, record: End, held: Held, trajectory: Trajectory) -> list[Send]:
        """One that no rollout here decides on: decide now."""
        if not record.parent:
            return self._lone(record, held, trajectory)
        roomy = self.books.purse.half_full
        if not self.books.send_or_keep(size_of(held), self.books.purse.for_phases):
            self.books.keep(trajectory.refs)
            return []
        tells = failed(record) or in_share(record.span) or self._pace.slow(record.end - record.start)
        if roomy or tells:
            return [held, *self._all_or_none(trajectory)]
        self.books.keep(trajectory.refs)
        return [held]

    def _lone(self, record: End, held: Held, trajectory: Trajectory) -> list[Send]:
        """One that is a trace of its own: its span leaves, its detail as far as those of a minute may have some."""
        if not self.books.send_or_keep(size_of(held)):
            self.books.keep(trajectory.refs)
            return []
        window, refs, duration = self.books.window, trajectory.refs, record.end - record.start
        window.add(size_of(held), record.end)
        tells = failed(record) or in_share(record.span)
        if window.pays(duration, len(refs), refs.size, record.end, tells=tells):
            return [held, *self._all_or_none(trajectory, root=True)]
        self.books.keep(refs)
        return [held]

    def _all_or_none(self, trajectory: Trajectory, *, root: bool = False) -> list[Held]:
        sends = self.books.release(trajectory.refs, NOTHING if root else self.books.purse.for_phases)
        if sends is None:
            self.books.keep(trajectory.refs)
        return sends or []

    def _leaves(self, size: int) -> bool:
        """Whether a trajectory's own span leaves as it ends: up to half of the budget is for those."""
        early, half = (self._early[0] + 1, self._early[1] + size), self.books.purse.part(2)
        if early[0] > half.spans or early[1] > half.size or not self.books.send(size, self.books.purse.for_phases):
            return False
        self._early = early
        return True

    def _stragglers(self) -> list[Send]:
        """Show what is open for twice as long as most took, in a rollout that runs on: somebody may be waiting."""
        sends: list[Send] = []
        while self._running:
            span, oldest = next(iter(self._running.items()))
            if oldest.home is not None and not oldest.home.ended:
                self._alarm = max(oldest.home.start + _PATIENCE, oldest.start + self._pace.patience + 1)
                if self.books.now < self._alarm:
                    return sends
                oldest.live = True
                sends += self._live(oldest)
            del self._running[span]
        self._alarm = math.inf
        return sends

    def _live(self, trajectory: Trajectory) -> list[Held]:
        """Send what is held of a trajectory that is shown as it goes on."""
        if not trajectory.live:
            return []
        sends = self.books.release(trajectory.refs, self.books.purse.for_rollouts)
        if sends is None:
            trajectory.live = False
            return []
        trajectory.left += len(sends)
        trajectory.refs = Refs()
        return sends

    # --- phases -------------------------------------------------------------------------------------------------------

    def _phase(self, record: End, place: Place, late: Late) -> list[Send]:
        phase = self._ended(record)
        if record.name == semconv.WAIT and not record.parent and not self._shows_wait(record, phase):
            self.books.counts.kept += 1
            return []
        # A phase with trajectories is always shown: without it they would have no parent.
        if self._repeats.count(record.name) and not len(phase.candidates):
            self._repeated(record, self.books.written(record, place, late))
            self.books.keep(phase.refs)
            return []
        decision = self._decided(phase)
        said = decision.attributes() if record.name in ROLLOUTS else {}
        if said:
            record = msgspec.structs.replace(record, attributes={**record.attributes, **said})
        sent = self.books.send_or_keep(self.books.cost(record), self.books.purse.for_root)
        if said and not sent:
            self.books.counts.keep_said(record.span, said)
        return [*decision.sends, *([record] if sent else [])]

    def _shows_wait(self, record: End, phase: Phase) -> bool:
        """Whether a wait that is a trace of its own is shown."""
        inside = len(phase.refs) or len(phase.candidates)
        return bool(inside) or self.books.window.shows_wait(record.end - record.start, record.end)

    def _repeated(self, record: End, held: Held) -> None:
        replaced = self._repeats.hold(record.name, Repeat(record.end - record.start, held))
        self.books.counts.held += not replaced
        self.books.counts.kept += replaced

    def _step(self, record: End) -> list[Send]:
        sends = [*self._decided(self._ended(record)).sends, *self._released()]
        sent = self.books.purse.overdraw(self.books.cost(record), self.books.now)
        self.books.counts.kept += not sent
        return [*sends, *([record] if sent else [])]

    def _ended(self, record: End) -> Phase:
        phase = self._open.pop(record.span, None)
        if not isinstance(phase, Phase):
            phase = Phase(record.start)
        if phase in self._rollouts:
            self._rollouts.remove(phase)
        self._gather(record.span, phase.refs)
        phase.ended = True
        return phase

    def _decided(self, phase: Phase) -> Decision:
        if self._pending and len(phase.candidates):
            phase.candidates.join(self._pending)
        decision = Decision(phase.candidates, phase.refs, self.books.purse, self.books.now)
        self.books.counts.held -= decision.spans
        self.books.counts.kept += decision.kept
        return decision

    def _released(self) -> list[Held]:
        phases = [each.held for each in self._repeats.release()]
        self.books.counts.held -= len(phases)
        return [held for held in phases if self.books.send_or_keep(size_of(held), self.books.purse.for_root)]

    # --- detail -------------------------------------------------------------------------------------------------------

    def _detail(self, record: Span, held: Held) -> list[Send]:
        """Hold a call or another library's span where it belongs; send it where nothing of ours is around it."""
        if not self._open:
            sent = self.books.send_or_keep(size_of(held), self.books.purse.for_phases, detail=True)
            return [held] if sent else []
        place = self._open.get(record.parent)
        refs = place.refs if place is not None else self._place(record.parent)
        self.books.hold(refs, held)
        self._gather(record.span, refs)
        return [*self._live(place)] if isinstance(place, Trajectory) and place.live else []

    def _place(self, parent: bytes) -> Refs:
        """Where detail inside `parent` is held."""
        place = self._open.get(parent)
        return place.refs if place is not None else self._pending.setdefault(parent, Refs())

    def _gather(self, span: bytes, refs: Refs) -> None:
        """Take what ended inside `span` before it was known where that belongs."""
        if span in self._pending:
            refs.extend(self._pending.pop(span))

    def _leftovers(self) -> list[Held]:
        """Decide on what nothing open holds any longer."""
        sends = self._released()
        for refs in self._pending.values():
            sends += self.books.release_each(refs)
        self._pending.clear()
        return sends
