"""What processes on one node tell each other about GPUs: who watches which, and which phase is active.

Files in `<tmp>/rl-otel-<uid>.node/`, which is made by whoever watches GPUs. A process
tells its phase only where that folder is: the write of a few bytes at each phase boundary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rl_otel._config import variable
from rl_otel._journal import Lock, make_folder
from rl_otel._journal.folder import MODE, PRIVATE
from rl_otel._safety import pass_on

_LENGTH: Final = 512  # bytes, always: a reader never sees the end of an older, longer note
_EVERY: Final = 1.0  # s between two looks for readers
_SUFFIX: Final = ".phase"


def folder() -> Path:
    """Return where the processes of this user meet on this node."""
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    return Path(variable("TMPDIR") or "/tmp") / f"rl-otel-{user}.node"  # noqa: S108 - a folder of ours, or none


class Told(NamedTuple):
    """What a process says of itself; the smallest speaks for its run."""

    follows: bool  # it does not own the root of the step
    rank: int
    run: str
    phase: str


class Note:
    """The active phase of this process, for others to read; free to be removed when its lock is."""

    def __init__(self, run: str, pid: int, rank: int, *, owns_root: bool) -> None:
        self._head = f"{0 if owns_root else 1}\t{rank}\t{run}\t"
        self._base = folder() / str(pid)
        self._lock = Lock(self._base)
        self._file: int | None = None
        self._phase = ""
        self._again = 0.0  # when to look for readers next

    def look(self, phase: str) -> None:
        """Begin to tell, where somebody wants to know."""
        if self._file is None and time.monotonic() >= self._again:
            self._again = time.monotonic() + _EVERY
            self._open()
        self.tell(phase)

    def _open(self) -> None:
        try:
            if self._base.parent.is_dir():
                make_folder(self._base.parent)  # refuses one that is somebody else's
                if self._lock.take():
                    self._file = os.open(self._path, os.O_RDWR | PRIVATE, MODE)
        except OSError as error:
            pass_on(error)  # else nobody is told

    def tell(self, phase: str) -> None:
        """Say which phase is active."""
        if self._file is None or phase == self._phase:
            return
        self._phase = phase
        try:
            os.pwrite(self._file, (self._head + phase).encode().ljust(_LENGTH - 1)[: _LENGTH - 1] + b"\n", 0)
        except OSError as error:
            self.close()  # it shall not go on saying what is over
            pass_on(error)

    def close(self) -> None:
        """End: nobody has a phase here any longer."""
        if self._file is not None:
            _remove(self._path, self._lock.path)
        self.forget()

    def forget(self) -> None:
        """Let go of the files; in a forked child they are the parent's."""
        descriptor, self._file, self._phase = self._file, None, ""
        if descriptor is not None:
            os.close(descriptor)
        self._lock.release()

    @property
    def _path(self) -> Path:
        return self._base.with_name(self._base.name + _SUFFIX)


class Others:
    """The phases that other processes tell."""

    def __init__(self, run: str | None) -> None:
        self._run = run  # None for who watches the node, whoever runs there

    def phase(self) -> str | None:
        """Return the active phase of the run's driver on this node, None where none is told or several runs differ."""
        try:
            make_folder(folder())
            told = sorted(each for each in _told() if self._run in (None, each.run))
        except OSError:
            return None
        return told[0].phase if len({each.run for each in told}) == 1 else None


class Claims:
    """The devices of which this process exports what it sees: no device is told by two."""

    def __init__(self) -> None:
        self._locks: dict[str, Lock] = {}

    def take(self, hw_id: str) -> bool:
        """Whether the device is ours to tell, now if it was nobody's."""
        if hw_id in self._locks:
            return True
        lock = Lock(folder() / hw_id)
        try:
            make_folder(folder())
            taken = lock.take()
        except OSError:
            return True  # where nothing can be agreed upon, telling twice is better than not at all
        if taken:
            self._locks[hw_id] = lock
        return taken

    def release(self) -> None:
        """Let go of all; in a forked child the parent still has them."""
        while self._locks:  # one at a time: a sampler that hung may be taking others
            self._locks.popitem()[1].release()


def _told() -> Iterator[Told]:
    for path in folder().glob(f"*{_SUFFIX}"):
        lock = Lock(path.with_suffix(""))
        if lock.take():  # who wrote it has gone, however it went
            if lock.held:
                _remove(path, lock.path)
            lock.release()
            continue
        try:
            follows, rank, run, phase = path.read_text().rstrip().split("\t")
            yield Told(follows == "1", int(rank), run, phase)
        except (OSError, ValueError):
            continue  # just being made, or gone


def _remove(*paths: Path) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            pass_on(error)
