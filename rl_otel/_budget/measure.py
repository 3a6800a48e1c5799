"""How large spans become in a back end."""

from __future__ import annotations

from typing import Final

from rl_otel import semconv
from rl_otel._otlp import Request, Span, Writer, encoding_of
from rl_otel._record import Attributes, End

_SAMPLE: Final = End(b"\1" * 16, b"\1" * 8, b"", semconv.GENERATE, 0, 0, {})  # the service with the longest name


class Measure:
    """Sizes as protobuf, in bytes, whatever goes over the wire: that is what back ends count.

    Args:
        resource: What the process says about itself.
    """

    def __init__(self, resource: Attributes) -> None:
        self.write = Writer(encoding_of("http/protobuf"), resource)
        self.envelope = Request(self.write.encoding, [self.write(_SAMPLE)]).size  # with one span: never too little

    def __call__(self, span: Span) -> int:
        """Return what `span` takes at most, with its scope where that is another library's.

        Raises:
            Exception: it cannot be encoded.
        """
        return self.write(span).size
