"""Threads of ours beside a host that captures CUDA graphs."""

from __future__ import annotations

import os
import threading
from typing import Final

_THREAD_LOCAL: Final = 1  # the capture mode in which a thread minds its own captures alone
_EXCHANGE: Final = {
    "libcuda.so.1": "cuThreadExchangeStreamCaptureMode",
    **{f"libamdhip64.so.{version}": "hipThreadExchangeStreamCaptureMode" for version in (5, 6, 7)},
}

_thread: Final = threading.local()


def stand_aside() -> None:
    """Let nothing that this thread asks a device spoil a graph which another thread is capturing.

    While one captures, by default no other may ask whether an event was reached: the capture would fail.
    """
    if getattr(_thread, "aside", False):
        return
    _thread.aside = True
    import ctypes  # not needed where no device is asked

    for library, function in _EXCHANGE.items():
        try:
            # Only what the host has loaded: this brings no driver into a process.
            exchange = getattr(ctypes.CDLL(library, mode=os.RTLD_NOLOAD), function)
        except (OSError, AttributeError):
            continue
        exchange(ctypes.byref(ctypes.c_int(_THREAD_LOCAL)))
