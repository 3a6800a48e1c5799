"""Our own requests must not become spans, which would be sent in their turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

#: What instrumentations look for before they make a span of a call.
_SUPPRESS: Final = "suppress_instrumentation"


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Tell instrumentations to leave alone what is called inside."""
    from opentelemetry.context import attach, detach, set_value

    token = attach(set_value(_SUPPRESS, True))
    try:
        yield
    finally:
        detach(token)
