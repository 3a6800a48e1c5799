"""What both encodings share: how an odd value is made fit for OTLP.

A journal may be old, or have been written by a process that went wrong. Everything is brought into range here rather
than refused; only a span without usable ids is left out, because receivers refuse its whole request.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from rl_otel import semconv
from rl_otel._record import ERROR, UNSET, End, Foreign

Span: TypeAlias = End | Foreign

LARGEST: Final = 2**63 - 1
SMALLEST: Final = -(2**63)

#: Decoders stop at a depth of about 100 messages; each level of a nested value takes three.
DEEPEST: Final = 16

INTERNAL, CLIENT, CONSUMER = 1, 3, 5  # span kinds

#: The flag that says whether the parent is remote is known.
_HAS_IS_REMOTE: Final = 0x100
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


class Unencodable(ValueError):
    """A span without usable ids: receivers refuse it, and its whole request with it."""

    def __init__(self, span: Span) -> None:
        super().__init__(f"span {span.name!r} has no usable ids: trace {span.trace!r}, span {span.span!r}")


def usable(identifier: object, length: int) -> bool:
    """Whether `identifier` is an id of `length` bytes, not all zero."""
    return isinstance(identifier, bytes) and len(identifier) == length and any(identifier)


def text(value: object) -> str:
    """Return `value` as text that UTF-8 can hold: half a surrogate pair becomes U+FFFD."""
    written = value if isinstance(value, str) else str(value)
    return _SURROGATE.sub("\ufffd", str(written))


def whole(value: int) -> int:
    """Return the integer of 64 bits that is nearest to `value`."""
    return max(SMALLEST, min(LARGEST, int(value)))


def moment(time: float) -> int:
    """Return a time in ns since the epoch that every back end can hold."""
    return max(0, min(LARGEST, int(time)))


def kind(span: Span) -> int:
    """Return the span's kind: a `generate` of ours calls an engine, all else happens inside."""
    if isinstance(span, Foreign):
        return span.kind if INTERNAL <= span.kind <= CONSUMER else INTERNAL
    return CLIENT if span.name == semconv.GENERATE else INTERNAL


def flags(span: Span) -> int:
    """Return the flags field of a span: the W3C bit and that its parent is known to be local."""
    return _HAS_IS_REMOTE | (span.flags & 1)


def status(span: Span) -> int:
    """Return the span's status code; one that OTLP does not know is unset."""
    return span.status if UNSET <= span.status <= ERROR else UNSET


def pairs(value: dict[Any, Any]) -> list[tuple[str, Any]]:
    """Return the items of a mapping with keys of text."""
    return [(text(key), item) for key, item in value.items()]
