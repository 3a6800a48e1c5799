"""A device that does not exist: as much of `torch` and `torch.cuda` as rl_otel touches, which tells on who waits.

Work is put in order and done when the test says `run()`. Whatever would make the host wait for it fails the test.
"""

from __future__ import annotations

import contextlib
import threading
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Device:
    type: str = "cuda"
    index: int = 0


class Cuda:
    """`torch.cuda`; `waited` lists what would have made the host wait, `fetched` what was read, and by which thread."""

    def __init__(self) -> None:
        self.capturing = False
        self.broken = False
        self.waited: list[str] = []
        self.fetched: list[tuple[str, Any, Any]] = []  # thread, its stream, its device
        self._work: list[Callable[[], None]] = []
        self._done = 0
        self._thread = threading.local()

    # --- for the test -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do all work that was put in order so far."""
        for work in self._work[self._done :]:
            work()
        self._done = len(self._work)

    @property
    def ordered(self) -> int:
        """How many pieces of work were put in order."""
        return len(self._work)

    def tensor(self, value: Any, index: int = 0, type_: str = "cuda") -> Tensor:
        """Return a tensor on the device, there already."""
        return Tensor(self, Device(type_, index), value)

    def order(self, work: Callable[[], None]) -> None:
        """Put work in order."""
        self._work.append(work)

    def wait(self, how: str) -> Any:
        """Fail: the host would wait."""
        self.waited.append(how)
        raise AssertionError(f"{how} makes the host wait for the device")

    def own_stream(self) -> Any:
        """Return the stream that the calling thread has made its current one."""
        return getattr(self._thread, "stream", None)

    def own_device(self) -> Any:
        """Return the device that the calling thread has chosen."""
        return getattr(self._thread, "device", None)

    # --- for rl_otel --------------------------------------------------------------------------------------------------

    def Event(self) -> Event:  # noqa: N802
        return Event(self)

    def Stream(self, device: Device) -> tuple[str, Device]:  # noqa: N802
        return "own", device

    def current_stream(self, device: Device) -> tuple[str, Device]:
        return "current", device

    def set_device(self, device: Device) -> None:
        assert threading.current_thread() is not threading.main_thread(), "the host's device was changed"
        self._thread.device = device

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self._thread.stream = stream
        yield
        self._thread.stream = None

    def synchronize(self, *_: Any) -> None:
        self.wait("synchronize()")


class Event:
    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._reached = False
        self.stream: Any = None

    def record(self, stream: Any) -> None:
        self.stream = stream
        self._cuda.order(self._reach)

    def query(self) -> bool:
        assert self._cuda.own_device() == self.stream[1], "asked from another device"
        return self._reached

    def synchronize(self) -> None:
        self._cuda.wait("event.synchronize()")

    def _reach(self) -> None:
        self._reached = True


class Tensor:
    def __init__(self, cuda: Cuda, device: Device, value: Any = None) -> None:
        self._cuda = cuda
        self.device = device
        self._value = value

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        copy = Tensor(self._cuda, self.device)
        self._cuda.order(lambda: setattr(copy, "_value", self._value))
        return copy

    def zero_(self) -> None:
        self._cuda.order(lambda: setattr(self, "_value", 0.0))

    def cpu(self) -> Any:
        cuda = self._cuda
        if threading.current_thread() is threading.main_thread() or cuda.own_stream() is None:
            cuda.wait("cpu()")
        if cuda.broken:
            raise RuntimeError("device lost")
        cuda.fetched.append((threading.current_thread().name, cuda.own_stream(), cuda.own_device()))
        return types.SimpleNamespace(tolist=lambda: self._value)

    def _waits(self, *_: Any) -> Any:
        return self._cuda.wait("reading a tensor")

    item = tolist = numpy = __float__ = __int__ = __bool__ = __index__ = __iter__ = __repr__ = __len__ = _waits
