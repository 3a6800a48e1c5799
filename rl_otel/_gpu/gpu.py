"""The GPUs of a process, as the rest of rl_otel sees them: told of each phase, asked for its figures."""

from __future__ import annotations

import threading
from typing import Any, Final

from rl_otel import semconv
from rl_otel._config import Config
from rl_otel._gpu.boundaries import Boundaries
from rl_otel._gpu.framework import Framework
from rl_otel._gpu.node import Note, Others
from rl_otel._gpu.vendors import Allocator
from rl_otel._gpu.watch import Watch
from rl_otel._gpu.watching import Watching
from rl_otel._identity import MONITOR, Identity
from rl_otel._readings import Peak, Reading, Time
from rl_otel._thread import Worker
from rl_otel._timeline import Timelines

_MOST: Final = 1024  # peaks of a device in a phase that are kept


class Gpu:
    """The devices that this process uses, or was told to watch; where there is none it costs next to nothing.

    Args:
        config: whether peaks are read, and whether the whole node is watched.
        identity: who tells.
        timelines: where a step is open.
        parents: what a parent before a fork was using.
    """

    def __init__(
        self, config: Config, identity: Identity, timelines: Timelines, parents: tuple[type[Allocator], ...] = ()
    ) -> None:
        self._role = identity.role
        self._timelines = timelines
        self._lock = threading.RLock()  # a signal handler may begin and end phases
        self._framework = Framework(parents)
        self._boundaries = Boundaries(self._framework, config.gpu_peak)
        self._watching = Watching(
            self._framework,
            whole_node=config.gpu_all,
            active=self._active,
            phases=lambda: self._boundaries.open,
            lock=self._lock,
        )
        self._note = Note(identity.run_id, identity.pid, identity.rank, owns_root=identity.owns_root)
        # A monitor that no run was named to watches for whichever is here.
        self._others = Others(None if identity.role == MONITOR and not identity.shared else identity.run_id)
        self._last: dict[tuple[int, str], int] = {}
        self._has_phases = False
        self._over = False
        self.elsewhere = ""  # the phase that the last carrier told of

    # --- phases -------------------------------------------------------------------------------------------------------

    def enter(self, name: str, role: str) -> Watch | None:
        """Take note of a phase that begins; None where nothing is to be known any more."""
        with self._lock:
            if self._over:
                return None
            self._has_phases = True
            watch = self._boundaries.enter(name, role)
            try:
                self._watching.start()
                self._note.look(self._active()[0])
            except BaseException:  # of the host, which has stopped this phase before it began
                self._boundaries.leave(watch)
                raise
            return watch

    def leave(self, watch: Watch) -> None:
        """Take note of its end."""
        with self._lock:
            if self._over or not self._boundaries.leave(watch):
                return
            for device, size in watch.allocated(self._framework.local).items():
                self._last.pop((device, watch.name), None)
                self._last[device, watch.name] = size
            while len(self._last) > _MOST:
                del self._last[next(iter(self._last))]
            self.moved()

    def attributes(self, watch: Watch) -> dict[str, Any]:
        """Return what the span of a phase that has ended carries; nothing where its end was not looked at any more."""
        if not watch.samples and not watch.peak.allocated:
            return {}
        with self._lock:
            return {} if self._over else watch.attributes(self._framework.local)

    def moved(self) -> None:
        """Take note that a step begins or ends."""
        with self._lock:
            if self._has_phases and not self._over:
                self._note.tell(self._active()[0])

    def look(self) -> None:
        """See whether there is a device by now, and somebody who wants to know our phase. Now and then."""
        with self._lock:
            if not self._over:
                self._watching.start()
                if self._has_phases:
                    self._note.look(self._active()[0])

    # --- for the metrics ----------------------------------------------------------------------------------------------

    def readings(self) -> list[Reading]:
        """Return the latest sample of each device of which this process tells."""
        self.look()
        with self._lock:
            return self._watching.board.readings

    def times(self) -> list[Time]:
        """Return how long each was watched, and busy, in each phase so far."""
        self.look()
        with self._lock:
            return self._watching.board.times

    def peaks(self) -> list[Peak]:
        """Return what each phase peaked at when it last ended, on each device of this process."""
        with self._lock:
            return [Peak(self._watching.hw_id(device), name, size) for (device, name), size in self._last.items()]

    @property
    def workers(self) -> list[Worker]:
        """The sampler's thread, once there is one; what it costs is known of it."""
        worker = self._watching.worker
        return [] if worker is None else [worker]

    # --- leaving ------------------------------------------------------------------------------------------------------

    def stop(self, timeout: float) -> None:
        """End the sampler within `timeout` seconds, and leave the devices alone; what was found stays."""
        self._over = True  # without the lock: a thread that hangs in its device may have it
        self._watching.stop(timeout)
        self._note.close()

    def forget(self) -> tuple[type[Allocator], ...]:
        """In a forked child: let go of what is the parent's, and return what it was using."""
        self._lock = threading.RLock()
        self._over = True
        self._watching.forget()
        self._note.forget()
        return self._framework.used

    def _active(self) -> tuple[str, str]:
        """Return the phase that stands for our devices now, and whose it is."""
        opened = self._boundaries.open[::-1]
        if opened:
            # Of several loops in one process the one that works, not the one that waits.
            working = next((watch for watch in opened if watch.name != semconv.WAIT), opened[0])
            return working.name, working.role
        stepping = next((timeline.role for timeline in self._timelines if timeline.steps), None)
        if self._has_phases or stepping is not None:
            return semconv.IDLE if stepping is None else semconv.OTHER, stepping or self._role
        return self._others.phase() or self.elsewhere or semconv.UNKNOWN, self._role
