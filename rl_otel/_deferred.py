"""Values that lie on a device: taken hold of now, read when they are there, without making the host wait.

torch is never imported: who hands us a tensor of a device has imported it. An array of JAX answers for itself whether
it is there; those of other libraries cannot be asked, and are left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from rl_otel import _values
from rl_otel._capture import stand_aside

_NEEDED = ("Event", "Stream", "current_stream", "set_device", "stream")


class Pending(Protocol):
    """What is on its way; asked on a thread of ours alone."""

    def ready(self) -> bool:
        """Whether reading would not wait."""

    def read(self) -> Any:
        """Return the value; only of one that is ready."""


class Deferred:
    """A tensor on a device, or a list with such tensors in it, to be read once the device has come to it.

    What is held is a copy on the device, made in the order of its work: the host may change the tensor in place as
    soon as we return. (An array of JAX never changes.) The copy is detached at once, for a loss that is held keeps its
    whole graph alive. An event on the stream that is current there marks the moment when the copy is ready.
    """

    def __init__(self, value: Any):
        self._devices: set[Any] = set()
        self._arrays: list[Any] = []
        budget = _values.Budget(_values.MAX_READ)
        held = self._held(value, budget)
        self._value = None if budget.exceeded else held
        self._marks = {device: _marked(device) for device in self._devices}

    def ready(self) -> bool:
        """Whether reading would not wait; only on a thread of ours. False for ever where there is no event to ask."""
        marked = all(mark is not None and _answers(device, mark) for device, mark in self._marks.items())
        return marked and all(array.is_ready() for array in self._arrays)

    def read(self) -> Any:
        """Return the value; only of one that is ready, and on a thread of ours."""
        return self._on_host(self._value)

    def _held(self, value: Any, budget: _values.Budget) -> Any:
        if _values.on_device(value):
            return self._hold(value)
        if isinstance(value, Mapping):
            return {key: self._held(item, budget) for key, item in budget.of(value.items())}
        return [self._held(item, budget) for item in budget.of(value)] if _values.is_several(value) else value

    def _hold(self, array: Any) -> Any:
        if hasattr(array, "is_ready"):
            self._arrays.append(array)
            return array
        device = getattr(array, "device", None)
        self._devices.add(device)
        copies = _device_module(device) is not None and not _capturing(device)
        return array.detach().clone() if copies else None

    def _on_host(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._on_host(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._on_host(item) for item in value]
        return _fetched(value) if _values.on_device(value) else value


def _marked(device: Any) -> Any:
    module = _device_module(device)
    if module is None or _capturing(device):
        return None
    event = module.Event()
    event.record(module.current_stream(device))
    return event


def _answers(device: Any, mark: Any) -> bool:
    stand_aside()
    # A thread begins on device 0, and what it asks there would make a context on a device that is not ours.
    _device_module(device).set_device(device)
    return bool(mark.query())


def _fetched(tensor: Any) -> Any:
    if hasattr(tensor, "is_ready"):
        return tensor.tolist()
    # A copy waits for the stream it runs on: on a stream of its own it waits for itself alone.
    module = _device_module(tensor.device)
    module.set_device(tensor.device)
    with module.stream(module.Stream(device=tensor.device)):
        return tensor.cpu()


def _capturing(device: Any) -> bool:
    # What runs while a graph is being captured becomes part of it: a copy and an event of ours as well.
    asks = getattr(_device_module(device), "is_current_stream_capturing", None)
    return bool(asks and asks())


def _device_module(device: Any) -> Any:
    module = getattr(sys.modules.get("torch"), getattr(device, "type", ""), None)
    return module if all(hasattr(module, name) for name in _NEEDED) else None
