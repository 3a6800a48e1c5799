"""The boundary to the host: no exception of ours crosses it, and what went wrong is said once.

Public calls catch `Exception` around their own work and hand it to `swallow`; `BaseException` always passes, since a
KeyboardInterrupt belongs to the host. `rl_otel.testing` sets `strict`, and then our errors surface in tests.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

_log: Final = logging.getLogger("rl_otel")
_EVERY: Final = 60.0  # s between two lines of one key

#: Set by `rl_otel.testing`: raise what would be swallowed.
strict = False

#: Set by `rl_otel.testing` as well: refuse what is no word of `record()`.
strict_words = False

_said: dict[str, tuple[float, int]] = {}  # key -> when last said, how often held back since
_busy = threading.local()  # a logging handler of the host may call us again


def say(key: str, message: str, *args: object, level: int = logging.WARNING) -> None:
    """Log one line, at most once a minute for each `key`; the next one tells how many were held back."""
    if getattr(_busy, "here", False):
        return
    now = time.monotonic()
    when, held = _said.get(key, (-_EVERY, 0))
    if now - when < _EVERY:
        _said[key] = (when, held + 1)
        return
    _said[key] = (now, 0)
    _busy.here = True
    try:
        _log.log(level, message + (f" ({held} more like this)" if held else ""), *args)
    except Exception:  # noqa: S110 - a broken handler of the host: there is nowhere left to tell it
        pass
    finally:
        _busy.here = False


def say_once(key: str, message: str, *args: object, level: int = logging.WARNING) -> None:
    """Log one line, once in the life of the process for each `key`."""
    if key not in _said:
        say(key, message, *args, level=level)


def swallow(where: str, error: Exception) -> None:
    """Keep an error of ours from the host: the run goes on with less telemetry."""
    if strict:
        raise error
    say(
        f"internal {where}",
        "rl_otel: internal error in %s, your run goes on without this piece of telemetry: %s: %s",
        where,
        type(error).__name__,
        error,
    )


def forget() -> None:
    """Forget what was said, for tests."""
    _said.clear()
