"""The host's queues between generation and training: how much is in them, as they say themselves."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from inspect import ismethod
from typing import Any, Final, NamedTuple

from rl_otel import _values
from rl_otel._safety import pass_on, say_once

MOST: Final = 100  # buffers of a process


class Depth(NamedTuple):
    """One buffer, now."""

    name: str
    size: int
    capacity: int | None


class _Buffer(NamedTuple):
    size: Callable[[], Any]  # what it returns is called: None where the queue is gone
    capacity: int | None


class Buffers:
    """The buffers of a process, by name. A bound method is held weakly: no queue lives on because it is watched."""

    def __init__(self) -> None:
        self._known: dict[str, _Buffer] = {}

    def add(self, name: str, size: Callable[[], Any], capacity: int | None) -> None:
        """Watch a buffer; another one of that name is forgotten."""
        if name in self._known or len(self._known) < MOST:
            self._known[name] = _Buffer(_reference(size), _whole(name, capacity))

    def one(self, name: str | None) -> Depth | None:
        """Return how full the buffer of that name is; without a name the only one, None where there are several."""
        if name is None and len(self._known) == 1:
            name = next(iter(list(self._known)), None)
        return None if name is None or name not in self._known else next(self.read(name), None)

    def read(self, *names: str) -> Iterator[Depth]:
        """Yield how full each is, or those of `names`; one that cannot tell is dropped, and that is said once."""
        for name, buffer in [each for each in list(self._known.items()) if not names or each[0] in names]:
            try:
                size = buffer.size()
                depth = None if size is None else _values.plain(int(size()))
            except Exception as error:
                pass_on(error)
                depth = None
                say_once(
                    f"buffer {name}",
                    "rl_otel: buffer %r cannot tell its size and is not asked again: %s: %s",
                    name,
                    type(error).__name__,
                    error,
                )
            if depth is not None:
                yield Depth(name, depth, buffer.capacity)
            elif self._known.get(name) is buffer:
                self._known.pop(name, None)


def _whole(name: str, capacity: Any) -> int | None:
    """Return a capacity as a number; None, with a line, for what is none: the gauge has those of other buffers too."""
    try:
        return _values.argument(capacity, int)  # type: ignore[no-any-return]
    except _values.Unfit as wanted:
        say_once(
            f"capacity {name}",
            "rl_otel: buffer(%r, capacity=%s): not a %s, left out",
            name,
            _values.shown(capacity),
            wanted,
        )
        return None


def _reference(size: Callable[[], Any]) -> Callable[[], Any]:
    if ismethod(size):
        try:
            return weakref.WeakMethod(size)
        except TypeError:
            pass  # an object with slots, of which there is no weak reference
    return lambda: size
