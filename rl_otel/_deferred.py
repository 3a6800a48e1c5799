"""Values that lie on a device: taken hold of now, read when they are there, without making the host wait.

torch is never imported: who hands us a tensor of a device has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

from rl_otel import _values


class Deferred:
    """A tensor on a device, to be read once the device has come to it.

    The tensor is detached at once, for a loss that is held keeps its whole graph alive. An event on the stream that
    is current marks the moment when its value is there.
    """

    def __init__(self, tensor: Any):
        self._tensor = tensor.detach()
        self._module = _device_module(self._tensor.device)
        self._event = self._marked()

    def ready(self) -> bool:
        """Whether reading would not wait. False for ever where there is no event to ask."""
        return self._event is not None and bool(self._event.query())

    def read(self) -> Any:
        """Return the value; only for one that is ready, and on a thread of ours."""
        # A copy waits for the stream it runs on: on a stream of its own it waits for itself alone.
        with self._module.stream(self._module.Stream(device=self._tensor.device)):
            return _values.plain(self._tensor.cpu().tolist())

    def _marked(self) -> Any:
        if self._module is None or self._capturing():
            return None
        event = self._module.Event()
        event.record()
        return event

    def _capturing(self) -> bool:
        # An event recorded into a graph that is being captured would become part of it.
        asks = getattr(self._module, "is_current_stream_capturing", None)
        return bool(asks and asks())


def _device_module(device: Any) -> Any:
    torch = sys.modules.get("torch")
    module = getattr(torch, getattr(device, "type", ""), None)
    return module if all(hasattr(module, name) for name in ("Event", "Stream", "stream")) else None
