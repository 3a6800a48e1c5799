"""The one mutable global: `active`, what a process records with. None until `configure()`, and after `shutdown()`.

A `Runtime` joins the parts that know nothing of each other: settings, identity, journal, timelines, sending, printing.
"""

from __future__ import annotations

import atexit

# Its hooks come before ours and those of OpenTelemetry's SDK, which uses it in a forked child: behind them it would
# free its lock too late, and the child would wait for ever.
import concurrent.futures.thread  # noqa: F401
import dataclasses
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from rl_otel import _clock, _figures, _record, _safety
from rl_otel._budget import quota
from rl_otel._buffers import Buffers
from rl_otel._clock import now
from rl_otel._config import Config
from rl_otel._folder import Folder, earlier_restarts, resource_of, run_folder
from rl_otel._gpu import Gpu
from rl_otel._identity import Identity, identify
from rl_otel._inherited import Left, left_by
from rl_otel._journal import Writer
from rl_otel._keeper import Keeper
from rl_otel._late import Late, Put
from rl_otel._metering import meter_of
from rl_otel._metrics import Outlet as MetricsOutlet
from rl_otel._overhead import Overhead
from rl_otel._printer import Printer
from rl_otel._register import Register
from rl_otel._ship import Delivery, Outlet, Plan, Shipper
from rl_otel._terminal import command, on_terminal
from rl_otel._thread import Worker
from rl_otel._timeline import InFlight, Open, Timelines

_LATE: Final = "rl_otel: what ended at exit, after rl_otel was shut down, is in %s and not sent; to send it: %s"
_ORPHANS: Final = "rl_otel: there was no time to send what processes that are gone have left in %s; to send it: %s"

active: Runtime | None = None
begun = False  # whether this process has ever been configured
_lock = threading.RLock()  # a signal handler may call shutdown()
_away: list[Worker] = []  # while the host forks


class Outlets(NamedTuple):
    """Where spans and metrics of a process go. Asked for anew in a forked child; None is the run folder alone."""

    spans: Callable[[Runtime], Outlet | None]
    metrics: Callable[[Runtime], MetricsOutlet | None]


class Runtime:
    """What one process records with, from `configure()` to `shutdown()`."""

    def __init__(self, config: Config, identity: Identity, folder: Folder, outlets: Outlets) -> None:
        self.config = config
        self.began = now()
        self.folder = folder
        self.identity = identity
        self.resource = resource_of(config, identity)
        self.journal = Writer(self.folder.path, identity.host, identity.pid, identity.instance, self._first_record)
        self.timelines = Timelines(identity.role)
        self.in_flight = InFlight()
        self.gpu = Gpu(config, identity, self.timelines)
        self.printer = Printer(self.began, prints=_prints(config, identity))
        self.late = Late(self.journal.append, self.printer.late)
        self.policy_version: int | None = None
        self.policy_learned = True  # from carriers, if at all
        self.keeper = Keeper(self.in_flight, self.late, self._announce, self._tend)
        self._outlets = outlets
        self.plan = _plan(config, identity)
        self.shipper = self._make_shipper()
        self.overhead = Overhead(lambda: self.journal.ended, self._cpu_of_threads)
        self.buffers = Buffers()
        self.meter = meter_of(self, outlets.metrics)
        self.measure = self.meter.calls.take if self.meter is not None else None  # a call that has ended
        self.register = Register(identity)
        self._left: Left | None = None  # to processes that are started

    def leave_to_children(self) -> None:
        """Tell processes that are started from here on which run this is."""
        folder = self.folder
        self._left = Left(left_by(self.config, self.identity, folder.path, passing=folder.passing, time=self.began))

    def _first_record(self) -> _record.Process:
        """Return what a journal begins with. Asked for with the first span: who records nothing starts no thread."""
        self.keeper.start()
        if self.shipper is not None:
            self.shipper.start()
        self.watch()
        who = self.identity
        monotonic = self.began - _clock.OFFSET
        return _record.Process(
            _record.FORMAT, who.run_id, who.restart, self.resource, self.began, monotonic, self.plan.written()
        )

    def watch(self) -> None:
        """Begin to look at GPUs and to export metrics: with the first span, or at once for who does nothing else."""
        self.gpu.look()
        if self.meter is not None and not self.meter.start():
            self.meter = self.measure = None

    def _make_shipper(self) -> Shipper | None:
        outlet = self._outlets.spans(self)
        if outlet is None:
            return None
        return Shipper(self.journal, self.folder, outlet, self.resource, self.plan)

    def _announce(self, call: Open) -> None:
        self.journal.append(call.start_record())

    def _tend(self) -> None:
        self.journal.tend()
        self.overhead.look()
        self.gpu.look()

    def _cpu_of_threads(self) -> int | None:
        times = [worker.cpu for worker in self.workers]
        return None if None in times else sum(filter(None, times))

    def samples(self, trace: bytes) -> bool:
        """Whether a trace is sent: decided by its id, so by every process alike, as TraceIdRatioBased does."""
        ratio = self.config.sampled
        return ratio >= 1.0 or int.from_bytes(trace[8:], "big") < round(ratio * (1 << 64))

    @property
    def phase(self) -> str:
        """What the loop is doing that this code is part of; empty where it has none."""
        timeline = self.timelines.here()
        return timeline.phase if timeline.steps or timeline.active is not None else ""

    def learn(self, version: int, sync: tuple[bytes, bytes] | None) -> None:
        """Take the policy's version from a carrier, unless a `weight_sync` of this process or a later carrier told."""
        if sync is not None:
            self.register.synced(version, sync, here=False)
        if self.policy_learned and version >= (self.policy_version or version):
            self.policy_version = version

    @property
    def policy_sync(self) -> tuple[bytes, bytes] | None:
        """Trace and span of the weight_sync that made the policy's version, where that is known."""
        return None if self.policy_version is None else self.register.sync(self.policy_version)

    # --- what has ended -----------------------------------------------------------------------------------------------

    def step_ended(
        self, make: Callable[[], _figures.StepFigures], own: Iterable[bytes], phases: Iterable[bytes]
    ) -> None:
        """Take a step that ends, for table and summary: its own span if that waits for a value, and its phases'."""
        self.printer.step(make, lambda: {*own, *filter(self.late.waits, phases)})

    def outside(self, phase: _figures.Phase, trajectories: list[_figures.Trajectory]) -> None:
        """Take a phase outside any step, for the summary."""
        evaluation = None
        if phase.evaluates:
            evaluation = _figures.rollout(trajectories, phase.start, phase.end, phase.attributes, phase.direct)
        self.printer.outside(phase, evaluation)

    def defer(self, span: bytes, put: Put, values: list[Any]) -> None:
        """Wait for values of a span that has ended; they follow as a `late` record."""
        self.late.add(span, put, values)
        self.keeper.look()

    # --- leaving ------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float) -> Delivery:
        """Deliver what has ended, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self.keeper.look()
        report = self._delivery(timeout)
        if self.meter is not None:
            self.meter.flush(deadline - time.monotonic())
        return report

    def close(self, timeout: float) -> Delivery:
        """Deliver what can be delivered in `timeout` seconds, print the summary, stop all threads."""
        deadline = time.monotonic() + timeout
        if self._left is not None:
            self._left.take_back()
        if self.meter is not None:
            self.meter.finish(timeout)
        self.keeper.stop()
        self.gpu.stop(min(timeout, 1.0))
        self.printer.finish(None if self.folder.passing else self.folder.shown)
        report = self._delivery(deadline - time.monotonic(), last=True)
        if self.shipper is not None:
            self.shipper.stop(deadline - time.monotonic())
        if self.meter is not None:
            self.meter.close(deadline - time.monotonic())
        self.journal.close()
        gone = min(report.pending, self.journal.overflow.spans)  # what no disk took ends with the process
        report = dataclasses.replace(report, pending=report.pending - gone, dropped=report.dropped + gone)
        if self.shipper is not None and self.shipper.leaves_orphans:
            _safety.say("orphans", _ORPHANS, self.folder.shown, command("ship", self.folder.shown))
        if self.folder.passing:
            self._tidy(report)
        return report

    def stay(self) -> None:
        """Once closed, take what handlers of the host still end at exit: into a journal of its own, sent by nobody."""
        self.identity = dataclasses.replace(self.identity, instance=str(uuid.uuid4()))
        self.resource = resource_of(self.config, self.identity)
        who = self.identity
        self.journal = Writer(self.folder.path, who.host, who.pid, who.instance, self._first_record_at_exit)

    def _first_record_at_exit(self) -> _record.Process:
        if self.shipper is not None:
            _safety.say("late", _LATE, self.folder.shown, command("ship", self.folder.shown))
        return self._first_record()

    def _tidy(self, report: Delivery) -> None:
        """Remove a folder that only served the sending, or say what it still has."""
        if report and not report.kept:
            self.folder.remove(self.journal.base)
        elif self.journal.written:
            _safety.say(
                "left",
                "rl_otel: %s has what was not sent: %d spans pending, %d kept back, %d dropped%s",
                self.folder.shown,
                report.pending,
                report.kept,
                report.dropped,
                self._how_to_send(report),
                # What the budget kept is said by one process of a run.
                level=logging.WARNING if self.identity.owns_root or not report else logging.INFO,
            )

    def _how_to_send(self, report: Delivery) -> str:
        if not report.pending and not report.kept:
            return ""
        wish = [] if report.pending else ["--all"]
        return f"; to send it: {command('ship', self.folder.shown, *wish)}"

    def _delivery(self, timeout: float, *, last: bool = False) -> Delivery:
        self.journal.save()
        written, lost = self.journal.written, self.journal.lost
        done = self.shipper is None or self.shipper.flush(written, timeout, last=last)
        return dataclasses.replace(self.states(written, lost), timed_out=not done, folder=self.folder.shown)

    def states(self, written: int, lost: int) -> Delivery:
        """Tell what has become of so many spans that were written, and so many that could not be."""
        if self.shipper is None:
            waiting = self.journal.overflow.spans
            return Delivery(pending=waiting, kept=written - waiting, dropped=lost)
        tally = dataclasses.replace(self.shipper.tally)  # the thread goes on counting
        return Delivery(tally.sent, max(written - tally.total, 0), tally.kept, tally.dropped + lost)

    @property
    def workers(self) -> list[Worker]:
        """The threads of this runtime."""
        others = (each.worker for each in (self.shipper, self.meter) if each is not None)
        return [self.keeper.worker, *others, *self.gpu.workers]

    def forked(self) -> Runtime:
        """In a forked child: let go of what is the parent's, and return a runtime of the child's own."""
        self._fall_silent()
        child = Runtime(self.config, self.identity.forked(), self.folder, self._outlets)
        child.policy_version = self.policy_version
        child.policy_learned = self.policy_learned
        # What the child still ends of the parent's uses it too, for a lock of the parent's may be held for ever.
        self.register = child.register = self.register.forked(child.identity)
        child.gpu = Gpu(self.config, child.identity, child.timelines, self.gpu.forget())
        return child

    def _fall_silent(self) -> None:
        """Send nowhere what a forked child still ends of the parent's."""
        self.journal.abandon()
        who = self.identity
        # New ones: a thread that did not come along may have had a lock of the old, and lets go of it no more.
        self.journal = Writer(self.folder.path, who.host, who.pid, who.instance, self._first_record)
        self.journal.abandon()
        self.printer = Printer(self.began, prints=False)
        self.late = Late(self.journal.append, self.printer.late)
        self.overhead.forget()
        if self.shipper is not None:
            self.shipper.forget()
        if self.meter is not None:
            self.meter.forget()
            self.meter = self.measure = None


def configure(outlets: Outlets, config: Config) -> Runtime | None:
    """Make a runtime of `config` the active one, and return it; None where there is one already."""
    global active, begun
    with _lock:
        if active is not None:
            if config != active.config:
                _safety.say("configured", "rl_otel: configure() was called before; the first call's settings stay")
            return None
        identity = identify(config)
        folder = run_folder(config, identity)
        active, begun = Runtime(config, _counted(config, identity, folder), folder, outlets), True
        active.leave_to_children()
        active.folder.remove_old()
        return active


def flush(timeout: float = 5.0) -> Delivery:
    """Deliver what has ended, for at most `timeout` seconds, and tell what became of it."""
    try:
        return active.flush(_bounded(timeout)) if active is not None else Delivery()
    except Exception as error:
        _safety.swallow("flush()", error)
        return Delivery()


def shutdown(timeout: float = 5.0) -> Delivery:
    """Stop recording: deliver what has ended for at most `timeout` seconds, and tell what became of it.

    Called at exit by itself. What ends later is counted as lost; `configure()` begins anew.
    """
    global active
    with _lock:
        runtime, active = active, None
    try:
        return runtime.close(_bounded(timeout)) if runtime is not None else Delivery()
    except Exception as error:
        _safety.swallow("shutdown()", error)
        return Delivery()


def _at_exit() -> None:
    """Shut down, but for what handlers still end that the host registered before: it is in the journal at least."""
    global active
    runtime = active
    shutdown()
    if runtime is not None:
        runtime.stay()
        active = runtime


def _bounded(timeout: Any) -> float:
    """Return a time in s that can be waited for, whatever the host asks for: for ever is a day."""
    try:
        return float(min(max(0.0, float(timeout)), 86_400.0))  # 0 for what is no number at all
    except (TypeError, ValueError, OverflowError):
        _safety.say("timeout", "rl_otel: a timeout must be a number of seconds, not %r; 5 are taken", timeout)
        return 5.0


def _counted(config: Config, identity: Identity, folder: Folder) -> Identity:
    # A launcher counts restarts; a process alone looks for its earlier attempts, else ids of steps would repeat.
    if config.restart is not None or config.run_id is None or identity.world_size > 1 or identity.restart:
        return identity
    if identity.parent is not None:
        return identity
    return dataclasses.replace(identity, restart=earlier_restarts(folder.path, identity))


def _plan(config: Config, who: Identity) -> Plan:
    part = quota(config.trace_budget, who)
    return Plan(config.trace_budget, part, config.schedule_delay, config.batch_size, config.services_one)


def _prints(config: Config, identity: Identity) -> bool:
    if not identity.owns_root or config.print is False:
        return False
    return config.print is True or on_terminal()


def _before_fork() -> None:
    try:
        for worker in active.workers if active is not None else ():
            _away.append(worker)
            worker.before_fork()
    except Exception as error:
        _safety.swallow("a fork", error)


def _after_fork() -> None:
    try:
        while _away:
            _away.pop().after_fork()
    except Exception as error:
        _safety.swallow("a fork", error)


def _after_fork_in_child() -> None:
    global active, _lock
    _away.clear()
    _lock = threading.RLock()
    parent, active = active, None
    try:
        active = parent.forked() if parent is not None else None
    except Exception as error:
        _safety.swallow("a forked child", error)


atexit.register(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
