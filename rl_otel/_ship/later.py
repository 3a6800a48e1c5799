"""`rl-otel ship` of a run folder: what is pending, with the same cuts as live, and what somebody wants beyond them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rl_otel import _record, semconv
from rl_otel._folder import first_record
from rl_otel._journal import Cursor, base_of, journals, segment_of, segment_path, segments
from rl_otel._life import lives
from rl_otel._ship.courier import Outlet
from rl_otel._ship.extra import Extra
from rl_otel._ship.notes import Notes
from rl_otel._ship.ready import Ready
from rl_otel._ship.replay import Replay, batched, locked
from rl_otel._ship.wanted import Survey, Wish

#: Waits before another try, or says that there is none: as for a `Courier`.
Pause = Callable[[float, bool], bool]


class Refused(NamedTuple):
    """A trace that would become larger than its budget allows."""

    trace: bytes
    step: int | None
    spans: int  # that were to be added
    size: int  # bytes of the whole trace then
    limit: int


@dataclass
class Account:
    """What became of the spans of a run, or of the one step that was asked for."""

    sent: int = 0  # by this command, with those that were asked for
    before: int = 0  # by the run itself, or this command earlier, pending or on demand
    kept: int = 0
    pending: int = 0
    dropped: int = 0
    busy: list[int] = field(default_factory=list)  # processes that deliver themselves
    refused: list[Refused] = field(default_factory=list)
    missing: str = ""  # what was asked for and is not there

    @property
    def complete(self) -> bool:
        """Whether all that was to be sent has been."""
        return not (self.pending or self.dropped or self.refused)


class Journal:
    """One process of a run whose journal is being delivered, here or by itself."""

    def __init__(self, base: Path, process: _record.Process, outlet: Outlet, pause: Pause, *, ours: bool) -> None:
        self.base = base
        self.ours = ours
        self.process = process
        over = Notes(base).tells_all() or not lives(process)
        self.replay = Replay(base, process, outlet, pause, gone=ours and over)
        self.measure = self.replay.measure
        self.limit = self.replay.plan.limits(self.measure).total
        self.chosen: set[bytes] = set()  # ids of what another process delivers
        self.sizes: Counter[bytes] = Counter()  # by trace: bytes that were chosen
        self.spent: dict[bytes, int] = {}  # the same with the resources around them
        self._ended: Counter[bytes] = Counter()  # by trace: spans that were there, and of these
        self._noted: Counter[bytes] = Counter()  # what had been sent

    def look(self, survey: Survey) -> None:
        """Have a survey take all records, and count spans by trace."""
        notes = Notes(self.base)
        survey.begin(self.base, self.process)
        for record, place in Cursor(self.base):
            survey.take(record)
            if isinstance(record, _record.End | _record.Foreign) and not record.flags & _record.LOCAL:
                self._ended[record.trace] += 1
                self._noted[record.trace] += notes.has(Ready(record, segment_of(place)))

    def earlier(self, survey: Survey) -> int:
        """Return how many spans of what is asked for had been sent before what was pending."""
        if survey.whole:
            return self.replay.notes.count() - self.replay.sent - self.replay.dropped
        return sum(spans for trace, spans in self._noted.items() if survey.wants(trace))

    def left_out(self, survey: Survey, others: int) -> int:
        """Return how many spans of what is asked for were not chosen; `others` were, or are not decided on."""
        if survey.whole:
            return self.replay.selector.kept
        return sum(spans for trace, spans in self._ended.items() if survey.wants(trace)) - others

    def note(self, chosen: list[Ready]) -> None:
        """Note how much of each trace was chosen."""
        for each in chosen:
            self.sizes[each.span.trace] += self.measure(each.span)
            self.spent[each.span.trace] = self.replay.selector.spent(each.span.trace)[1]

    def deliver(self, due: list[Ready]) -> int:
        """Deliver spans, and return of how many the back end has decided."""
        before = self.replay.sent + self.replay.dropped
        if due:
            self.replay.courier.deliver(due)
        return self.replay.sent + self.replay.dropped - before


class Later:
    """Delivers a run's journals from outside.

    Args:
        folder: of the run.
        outlet: where to.
        pause: waits before another try, or says that there is none.
    """

    def __init__(self, folder: Path, outlet: Outlet, pause: Pause) -> None:
        self._folder = folder
        self._outlet = outlet
        self._pause = pause
        self._account = Account()
        self._given_up = False  # whether the back end took no more

    def ship(self, wish: Wish, *, own_trace: bool = False, force: bool = False) -> Account:
        """Deliver what is pending, then what is wanted beyond that; say what became of it."""
        with ExitStack() as stack:
            opened = [self._open(base, process, stack) for base, process in _processes(self._folder)]
            survey = Survey(wish)
            if wish.step is not None or wish.more:
                for journal in opened:
                    journal.look(survey)
            if not survey.found:
                self._account.missing = f"no step {wish.step}"
                return self._account
            for journal in opened:
                self._pending(journal, survey)
            if wish.more and not self._given_up:
                self._more(opened, survey, wish, own_trace=own_trace, force=force)
        return self._account

    def _open(self, base: Path, process: _record.Process, stack: ExitStack) -> Journal:
        ours = stack.enter_context(locked(base))
        journal = Journal(base, process, self._outlet, self._pause, ours=ours)
        stack.callback(journal.replay.close)
        if not ours:
            self._account.busy.append(int(process.resource.get(semconv.PROCESS_PID, 0)))
        return journal

    # --- what is pending ----------------------------------------------------------------------------------------------

    def _pending(self, journal: Journal, survey: Survey) -> None:
        """Deliver what the process would have sent, or, where it does so itself, only look."""
        replay, account = journal.replay, self._account
        waiting = before = 0
        for batch in batched(each for each in replay.chosen() if survey.wants(each.span.trace)):
            journal.note(batch)
            due = [each for each in batch if not replay.notes.has(each)]
            before += len(batch) - len(due)
            if not journal.ours:
                journal.chosen.update(each.span.span for each in due)
            waiting += len(due) - (journal.deliver(due) if journal.ours and not waiting else 0)
        self._given_up |= journal.ours and waiting > 0
        held = replay.selector.held_in(survey.wants)
        earlier = max(journal.earlier(survey), before)  # with what was asked for beyond what was chosen
        chosen = before + replay.sent + replay.dropped + waiting
        account.sent += replay.sent
        account.before += earlier
        account.dropped += replay.dropped + replay.missing
        account.pending += waiting + held
        # A process that runs on may have sent more since the look.
        account.kept += max(journal.left_out(survey, chosen + held) - (earlier - before), 0)
        if survey.whole and replay.gone and not waiting:
            replay.notes.add_all()

    # --- what is wanted beyond ----------------------------------------------------------------------------------------

    def _more(self, opened: list[Journal], survey: Survey, wish: Wish, *, own_trace: bool, force: bool) -> None:
        if wish.slowest_rank and not survey.several_ranks:
            self._account.missing = "no step of several ranks has ended"
            return
        whole = wish.slowest_rank or (wish.all and not own_trace)
        roots = None if whole else survey.roots()
        if wish.trajectory is not None and not roots:
            self._account.missing = f"no trajectory {wish.trajectory} has ended"
            return
        extras = [Extra(journal, survey, roots, own_trace=own_trace) for journal in opened]
        refused = set() if force else self._over(opened, extras, own_trace=own_trace)
        for extra in extras:
            sent, dropped, left = extra.deliver(self._outlet, self._pause, refused)
            self._account.sent += sent
            self._account.dropped += dropped
            self._account.pending += left
            if own_trace:
                self._account.before += extra.before  # copies, which what is pending knows nothing of
            else:
                self._account.kept -= sent + dropped + left

    def _over(self, opened: list[Journal], extras: list[Extra], *, own_trace: bool) -> set[bytes]:
        """Note the traces that would become too large, and return them."""
        sizes: Counter[bytes] = Counter()
        spans: Counter[bytes] = Counter()
        steps: dict[bytes, int | None] = {}
        for extra in extras:
            extra.survey()
            sizes.update(extra.sizes)
            spans.update(extra.spans)
            steps |= extra.steps
        if not own_trace:
            for journal in opened:
                sizes.update({trace: size for trace, size in journal.spent.items() if trace in spans})
        limit = max(journal.limit for journal in opened)
        self._account.refused = [
            Refused(trace, steps.get(trace), spans[trace], sizes[trace], limit)
            for trace in spans
            if sizes[trace] > limit
        ]
        return {each.trace for each in self._account.refused}


def _processes(folder: Path) -> list[tuple[Path, _record.Process]]:
    """Return the processes of a run that say who they are, with the bases of their files."""
    bases = sorted({base_of(path) for path in journals(folder)})
    found = [(base, first_record(segment_path(base, segments(base)[0]))) for base in bases]
    return [(base, process) for base, process in found if process is not None and process.format <= _record.FORMAT]
