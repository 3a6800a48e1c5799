"""The context on its way to other processes, threads and services, so that what they record is in the step's trace.

`inject` writes it into whatever travels anyway (headers, a message, arguments), `use` opens a place there on the other
side. W3C Trace Context is the format; `docs/processes.md` shows what to write at each kind of call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple

from rl_otel import _runtime
from rl_otel._carrier import BAGGAGE, PARENT, STATE, Origin, bagged, read, written
from rl_otel._inherited import VARIABLE
from rl_otel._safety import swallow
from rl_otel._spans.handed import here
from rl_otel._spans.remote import Remote

__all__ = ["environ", "executor", "extract", "inject", "use"]

use = Remote


def inject(carrier: Any = None, *, baggage: bool = False) -> Any:
    """Write where spans go here and now into a carrier, and return it; with nothing open nothing is written.

    Args:
        carrier: any mutable mapping of texts; default: a new dict.
        baggage: also write run id and step as W3C baggage: whoever gets it sees them, and may pass them on.
    """
    carrier = {} if carrier is None else carrier
    try:
        origin = here()
        if origin is not None:
            _put(carrier, origin, baggage=baggage)
    except Exception as error:
        swallow("context.inject()", error)
    return carrier


def _put(carrier: Any, origin: Origin, *, baggage: bool) -> None:
    carrier[PARENT], state = written(origin)
    if state:
        carrier[STATE] = state
    else:
        carrier.pop(STATE, None)  # of another trace
    if baggage:
        runtime = _runtime.active
        run = None if runtime is None else runtime.identity.run_id
        told = ",".join(filter(None, (carrier.get(BAGGAGE), bagged(run, origin.step))))
        if told:
            carrier[BAGGAGE] = told


def extract(carrier: Any) -> Origin | None:
    """Return the origin that a carrier tells, for `use`; None where it tells none.

    Args:
        carrier: a mapping, or pairs of names and values as in ASGI; names in any case, text or bytes.
    """
    return read(carrier)


def environ(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a program that is started here and now: `TRACEPARENT` and `TRACESTATE` are in it.

    The program's own side is `with rl_otel.context.use(os.environ):`.

    Args:
        base: what it has besides; default: the environment of this process.
    """
    left = {VARIABLE: told} if (told := os.environ.get(VARIABLE)) else {}
    carrier = inject()
    return {**left, **(os.environ if base is None else base), **{key.upper(): carrier[key] for key in carrier}}


def executor(pool: Executor) -> Executor:
    """Return `pool` as one whose work runs inside the spans that were open where it was submitted.

    Threads carry on with the context itself, as `rl_otel.bind` does for one function; to other processes a carrier goes
    along with the function.

    Args:
        pool: any `concurrent.futures.Executor`; it is shut down with what is returned.
    """
    return _Carrying(pool)


class _Carrying(Executor):
    """Submits to another executor, with the context."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._pool.submit(self._carried(fn), *args, **kwargs)

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **options: Any) -> Iterator[Any]:
        return self._pool.map(self._carried(fn), *iterables, **options)

    def shutdown(self, *given: Any, **options: Any) -> None:
        self._pool.shutdown(*given, **options)

    def _carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # Written now, not when it is pickled: that happens on another thread, when the span here may have ended.
        return _Carried(function, None if isinstance(self._pool, ThreadPoolExecutor) else inject())


class _Carried:
    """A function and where it was submitted: in this process the context, in another one what its carrier tells."""

    def __init__(self, function: Callable[..., Any], carrier: Any) -> None:
        self._function = function
        self._carrier = carrier
        self._context = copy_context()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # A copy for each call: one context cannot be entered by two threads at once.
        return self._context.copy().run(self._function, *args, **kwargs)

    def __reduce__(self) -> Any:
        return _Under, (self._function, self._carrier)


class _Under(NamedTuple):
    """A function that came from another process."""

    function: Callable[..., Any]
    carrier: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with use(self.carrier):
            return self.function(*args, **kwargs)
