"""One trace: what is open in it, what is held, and what each record that ends does about it."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from rl_otel import semconv
from rl_otel._budget.candidates import failed
from rl_otel._budget.decision import Decision
from rl_otel._budget.opened import ROLLOUTS, Phase, Trajectory, is_phase
from rl_otel._budget.purse import NOTHING, Purse
from rl_otel._budget.rank import in_share
from rl_otel._budget.refs import Held, Refs
from rl_otel._budget.repeats import Repeat, Repeats
from rl_otel._otlp import Span
from rl_otel._record import End, Start
from rl_otel._split import percentile

#: To be sent: a span as it is, or one to be read back.
Send: TypeAlias = "Span | Held"

_PATIENCE: Final = 60_000_000_000  # ns that a rollout runs before its stragglers are shown
_ENOUGH: Final = 10  # trajectories that have ended: from then on their durations tell who is slow


class Counts:
    """Spans of all traces: decided to stay in the journal alone, and not decided yet."""

    def __init__(self) -> None:
        self.kept = 0
        self.held = 0


class Trace:
    """Routes the records of one trace.

    Args:
        purse: What it may still send.
        size: How large a span is, encoded.
        counts: Those of all traces.
    """

    __slots__ = (
        "_counts", "_durations", "_early", "_now", "_open", "_pending", "_repeats", "_rollouts", "_running", "_size",
        "over", "purse",
    )  # fmt: skip

    def __init__(self, purse: Purse, size: Callable[[Span], int], counts: Counts) -> None:
        self.purse = purse
        self.over = False  # its root has ended, and nothing in it is open
        self._size = size
        self._counts = counts
        self._now = 0
        self._open: dict[bytes, Phase | Trajectory] = {}
        self._rollouts: list[Phase] = []  # the open ones
        self._running: dict[bytes, Trajectory] = {}  # open, of an open rollout, not live; the oldest first
        self._pending: dict[bytes, Refs] = {}  # by parent: what ended inside a span that we know nothing of yet
        self._durations = array("q")  # of trajectories that ended, sorted
        self._early = [0, 0]  # trajectories that left as they ended, and their bytes
        self._repeats = Repeats()

    # --- records ------------------------------------------------------------------------------------------------------

    def start(self, record: Start) -> list[Send]:
        """Take a span that began, and return what is to be sent."""
        self._now = max(self._now, record.start)
        if record.name == semconv.TRAJECTORY:
            trajectory = self._open[record.span] = self._begun(record)
            if trajectory.home is not None and trajectory.around is None:
                self._running[record.span] = trajectory
        elif is_phase(record):
            phase = self._open[record.span] = Phase(record.start)
            if record.name in ROLLOUTS:
                self._rollouts.append(phase)
        return self._stragglers()

    def end(self, record: Span, held: Held) -> list[Send]:
        """Take a span that ended, and where it is in the journal; return what is to be sent."""
        self._now = max(self._now, record.end)
        ours = isinstance(record, End) and (record.name == semconv.TRAJECTORY or is_phase(record))
        if not ours or not isinstance(record, End):
            return self._detail(record, held) + self._stragglers()
        if record.name == semconv.TRAJECTORY:
            sends = self._trajectory(record, held)
        elif record.name == semconv.STEP:
            sends = self._step(record)
        else:
            sends = self._phase(record, held)
        if not self._open:
            sends += self._leftovers()
            self.over = record.name == semconv.STEP or not record.parent
        return sends + self._stragglers()

    def pass_on(self, span: bytes, parent: bytes) -> None:
        """Take a span that another exporter sends: what ended inside it is inside its parent."""
        inside = self._pending.pop(span, None)
        if inside is not None:
            self._place(parent).extend(inside)

    def finish(self) -> list[Send]:
        """Nothing more will come: decide what is undecided, and return what is to be sent."""
        sends: list[Send] = []
        phases = [each for each in self._open.values() if isinstance(each, Phase)]
        for phase in reversed(phases):
            sends += self._decided(phase).sends
        for trajectory in self._open.values():
            if isinstance(trajectory, Trajectory):
                sends += self._all_or_none(trajectory.refs)
        self._open.clear()
        return sends + self._leftovers()

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
            return self._inner(record, held, trajectory, trajectory.around)
        insort(self._durations, record.end - record.start)
        if trajectory.home is None or trajectory.home.ended:
            return self._alone(record, trajectory)
        size = self._cost(record)
        sends, own = ([record], None) if self._leaves(size) else ([], (held, size))
        self._counts.held += own is not None
        trajectory.home.candidates.add(record, own, trajectory.refs, trajectory.left + len(sends))
        return list(sends)

    def _inner(self, record: End, held: Held, inner: Trajectory, around: Trajectory) -> list[Send]:
        """One inside another: its own span leaves, its detail shares the other's fate."""
        size = self._cost(record)
        sends: list[Send] = [record] if self._leaves(size) else []
        if not sends:
            self._hold(around.refs, held, size)
        around.left += inner.left + len(sends)
        around.refs.extend(inner.refs)
        return sends + self._live(around)

    def _alone(self, record: End, trajectory: Trajectory) -> list[Send]:
        """One that no rollout here decides on: decide now."""
        rest = self.purse.for_phases if record.parent else NOTHING
        roomy = self.purse.half_full
        if not self.purse.pay(1, self._cost(record), self._now, rest):
            self._counts.kept += 1
            return self._keep(trajectory.refs)
        sends: list[Send] = [record]
        if roomy or not record.parent or failed(record) or in_share(record.span) or self._slow(record):
            return sends + self._all_or_none(trajectory.refs)
        return sends + self._keep(trajectory.refs)

    def _slow(self, record: End) -> bool:
        enough = len(self._durations) >= _ENOUGH
        return enough and record.end - record.start >= percentile(self._durations, 0.9)

    def _leaves(self, size: int) -> bool:
        """Whether a trajectory's own span leaves as it ends: up to half of the budget is for those."""
        spans, bytes_ = self._early[0] + 1, self._early[1] + size
        half = self.purse.part(2)
        if spans > half.spans or bytes_ > half.size or not self.purse.pay(1, size, self._now, self.purse.for_phases):
            return False
        self._early = [spans, bytes_]
        return True

    def _stragglers(self) -> list[Send]:
        """Show what is open for twice as long as most took, in a rollout that runs on: somebody may be waiting."""
        sends: list[Send] = []
        while self._running:
            span, oldest = next(iter(self._running.items()))
            if oldest.home is not None and not oldest.home.ended:
                if self._now - oldest.home.start < _PATIENCE or not self._durations:
                    break
                if self._now - oldest.start <= 2 * percentile(self._durations, 0.9):
                    break
                oldest.live = True
                sends += self._live(oldest)
            del self._running[span]
        return sends

    def _live(self, trajectory: Trajectory) -> list[Send]:
        """Send what is held of a trajectory that is shown as it goes on."""
        if not trajectory.live:
            return []
        refs = trajectory.refs
        trajectory.live = self.purse.pay(refs.spans, refs.size, self._now, self.purse.for_rollouts, detail=True)
        if not trajectory.live:
            return []
        trajectory.refs = Refs()
        trajectory.left += refs.spans
        self._counts.held -= refs.spans
        return [held for held, _ in refs]

    # --- phases -------------------------------------------------------------------------------------------------------

    def _ended(self, record: End) -> Phase:
        phase = self._open.pop(record.span, None)
        if not isinstance(phase, Phase):
            phase = Phase(record.start)
        if phase in self._rollouts:
            self._rollouts.remove(phase)
        phase.ended = True
        self._gather(record.span, phase.refs)
        return phase

    def _phase(self, record: End, held: Held) -> list[Send]:
        phase = self._ended(record)
        # A phase with trajectories is always shown: they would have no parent.
        if self._repeats.count(record.name) and not len(phase.candidates):
            self._counts.held += 1
            if self._repeats.hold(record.name, Repeat(record.end - record.start, held, self._cost(record))):
                self._counts.held -= 1
                self._counts.kept += 1
            return self._keep(phase.refs)
        decision = self._decided(phase)
        if record.name in ROLLOUTS:
            record = msgspec.structs.replace(record, attributes={**record.attributes, **decision.attributes()})
        if self.purse.pay(1, self._cost(record), self._now, self.purse.for_root):
            return [*decision.sends, record]
        self._counts.kept += 1
        return [*decision.sends]

    def _step(self, record: End) -> list[Send]:
        sends = [*self._decided(self._ended(record)).sends, *self._released()]
        if self.purse.overdraw(self._cost(record), self._now):
            return [*sends, record]
        self._counts.kept += 1
        return sends

    def _decided(self, phase: Phase) -> Decision:
        if self._pending and len(phase.candidates):
            phase.candidates.join(self._pending)
        decision = Decision(phase.candidates, phase.refs, self.purse, self._now)
        self._counts.held -= decision.spans
        self._counts.kept += decision.kept
        return decision

    def _released(self) -> list[Send]:
        sends: list[Send] = []
        for phase in self._repeats.release():
            self._counts.held -= 1
            if self.purse.pay(1, phase.size, self._now, self.purse.for_root):
                sends.append(phase.held)
            else:
                self._counts.kept += 1
        return sends

    # --- detail -------------------------------------------------------------------------------------------------------

    def _detail(self, record: Span, held: Held) -> list[Send]:
        size = self._cost(record)
        inside = self._pending.pop(record.span, None)
        if not self._open:  # nothing of ours is around it
            if self.purse.pay(1, size, self._now, self.purse.for_phases, detail=True):
                return [record, *(self._one_by_one(inside) if inside is not None else [])]
            self._counts.kept += 1
            return self._keep(inside) if inside is not None else []
        place = self._open.get(record.parent)
        refs = self._place(record.parent)
        self._hold(refs, held, size)
        if inside is not None:
            refs.extend(inside)
        return self._live(place) if isinstance(place, Trajectory) else []

    def _place(self, parent: bytes) -> Refs:
        """Where detail inside `parent` is held."""
        place = self._open.get(parent)
        if place is not None:
            return place.refs
        return self._pending.get(parent) or self._pending.setdefault(parent, Refs())

    def _hold(self, refs: Refs, held: Held, size: int) -> None:
        refs.add(held, size)
        self._counts.held += 1

    def _gather(self, span: bytes, refs: Refs) -> None:
        """Take what ended inside `span` before we knew of it."""
        pending = self._pending.pop(span, None)
        if pending is not None:
            refs.extend(pending)

    def _leftovers(self) -> list[Send]:
        """Decide on what nothing open holds any longer."""
        sends = self._released()
        for refs in self._pending.values():
            sends += self._one_by_one(refs)
        self._pending.clear()
        return sends

    def _all_or_none(self, refs: Refs) -> list[Send]:
        if not self.purse.pay(refs.spans, refs.size, self._now, self.purse.for_phases, detail=True):
            return self._keep(refs)
        self._counts.held -= refs.spans
        return [held for held, _ in refs]

    def _one_by_one(self, refs: Refs) -> list[Send]:
        rest = self.purse.for_phases
        sends: list[Send] = [held for held, size in refs if self.purse.pay(1, size, self._now, rest, detail=True)]
        self._counts.held -= refs.spans
        self._counts.kept += refs.spans - len(sends)
        return sends

    def _keep(self, refs: Refs) -> list[Send]:
        self._counts.held -= refs.spans
        self._counts.kept += refs.spans
        return []

    def _cost(self, record: Span) -> int:
        try:
            return self._size(record)
        except Exception:
            return 0  # whoever sends it finds the same, and counts it as dropped
