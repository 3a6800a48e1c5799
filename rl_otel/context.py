"""The context on its way to other processes, threads and services, so that what they record is in the step's trace.

`inject` writes it into whatever travels anyway (headers, a message, arguments), `use` opens a place there on the other
side. W3C Trace Context is the format; `docs/processes.md` shows what to write at each kind of call.
"""

from __future__ import annotations

from typing import Any

from rl_otel import _runtime
from rl_otel._carrier import BAGGAGE, PARENT, STATE, Origin, bagged, read, written
from rl_otel._safety import swallow
from rl_otel._spans.handed import here
from rl_otel._spans.remote import Remote

__all__ = ["extract", "inject", "use"]

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
