"""How large spans become in a back end."""

from __future__ import annotations

from typing import Final

from rl_otel import semconv
from rl_otel._otlp import Request, Span, encoding_of
from rl_otel._record import Attributes, End, Foreign

_FRAME: Final = 10  # bytes at most in front of a span
_SAMPLE: Final = End(b"\1" * 16, b"\1" * 8, b"", semconv.GENERATE, 0, 0, {})  # the service with the longest name


class Measure:
    """Sizes as protobuf, in bytes, whatever goes over the wire: that is what back ends count.

    Args:
        resource: What the process says about itself.
    """

    def __init__(self, resource: Attributes) -> None:
        encoding = encoding_of("http/protobuf")
        self._encode = encoding.encode_span
        self.envelope = Request(encoding, resource).add(_SAMPLE)  # with one small span: never too little

    def __call__(self, span: Span) -> int:
        """Return what `span` takes at most, with its scope where that is another library's.

        Raises:
            Exception: it cannot be encoded.
        """
        size = _FRAME + len(self._encode(span))
        if isinstance(span, Foreign):
            size += 2 * _FRAME + 4 * (len(span.scope) + len(span.scope_version))  # UTF-8 at its longest
        return size
