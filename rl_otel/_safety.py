"""The boundary to the host: no exception of ours crosses it, and what went wrong is said once.

Public calls catch `Exception` around their own work and hand it to `swallow`; `BaseException` always passes, since a
KeyboardInterrupt belongs to the host. So does what a signal handler of the host raised while our code was running: a
time limit of the host's is often made so. `rl_otel.testing` sets `strict`, and then our errors surface in tests.
"""

from __future__ import annotations

import functools
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])

_log: Final = logging.getLogger("rl_otel")
_EVERY: Final = 60.0  # s between two lines of one key
_CLOSE: Final = 0.8  # of `difflib`: "los" and "loss" are, "kl_loss" and "loss" are words of their own

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
        _log.log(level, _formatted(message, args) + (f" ({held} more like this)" if held else ""))
    except Exception as error:  # a broken handler of the host: there is nowhere left to tell it
        pass_on(error)
    finally:
        _busy.here = False


def _formatted(message: str, args: tuple[object, ...]) -> str:
    # Not left to logging, which prints a traceback where an argument of the host cannot be shown.
    try:
        return message % args if args else message
    except Exception as error:
        pass_on(error)
        return f"{message} (with values that cannot be shown)"


def say_once(key: str, message: str, *args: object, level: int = logging.WARNING) -> None:
    """Log one line, once in the life of the process for each `key`."""
    if key not in _said:
        say(key, message, *args, level=level)


@functools.lru_cache(maxsize=1024)
def nearest(word: str, known: tuple[str, ...]) -> str | None:
    """Return the known word that was probably meant; remembered, for looking is slow."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, 1, _CLOSE)), None)


def swallow(where: str, error: Exception) -> None:
    """Keep an error of ours from the host: the run goes on with less telemetry."""
    if strict:
        raise error
    pass_on(error)
    say(
        f"internal {where}",
        "rl_otel: internal error in %s, your run goes on without this piece of telemetry: %s: %s",
        where,
        type(error).__name__,
        words_of(error),
    )


def guarded(method: _Method) -> _Method:
    """Make a public method a boundary: an error in it is swallowed, and None returned."""

    @functools.wraps(method)
    def guard(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            swallow(f"{method.__name__}()", error)
            return None

    return guard  # type: ignore[return-value]


def words_of(error: BaseException) -> str:
    """Return what an exception says; exceptions of the host may fail to say anything."""
    try:
        return str(error)
    except Exception as failure:
        pass_on(failure)
        return f"<{type(error).__qualname__} without a message>"


def pass_on(error: BaseException) -> None:
    """Raise `error` again where it was a signal handler of the host that raised it.

    To be asked before an error is taken for ours, or for one of the disk: a host's TimeoutError is an OSError.
    """
    handlers = set(_handlers())
    traceback = error.__traceback__
    while handlers and traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            raise error
        traceback = traceback.tb_next


def _handlers() -> Iterator[CodeType]:
    """Yield the code of each signal handler that is written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        if callable(handler):
            code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
            if code is not None:  # a bound method has that of its function
                yield code


def forget() -> None:
    """Forget what was said, for tests."""
    _said.clear()
