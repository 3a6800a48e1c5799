"""How large spans become in a back end."""

from __future__ import annotations

from typing import Final

from rl_otel import semconv
from rl_otel._otlp import Request, Span, encoding_of
from rl_otel._record import Attributes, End, Foreign

_FRAME: Final = 10  # bytes at most in front of a span
_SAMPLE: Final = End(b"\1" * 16, b"\1" * 8, b"", semconv.GENERATE, 0, 0, {})  # the service with the longest name

#: Bytes that protobuf needs at most beyond what the journal does, apart from long texts: for tags and lengths.
_ATTRIBUTE: Final = 6
_LIST, _ITEM = 2, 4  # beyond an attribute, and for each text in it
_STATUS: Final = 16
_MOMENT: Final = 1 << 32  # earlier times are shorter in a journal than in protobuf, and never real

_AS_LONG: Final = frozenset({str, float, bool})  # whatever their value, protobuf needs no more than is reckoned


class Measure:
    """Sizes as protobuf, in bytes, whatever goes over the wire: that is what back ends count.

    Args:
        resource: What the process says about itself.
    """

    def __init__(self, resource: Attributes) -> None:
        encoding = encoding_of("http/protobuf")
        self._encode = encoding.encode_span
        self.envelope = Request(encoding, resource).add(_SAMPLE)  # with one small span: never too little

    def __call__(self, span: Span, length: int | None = None) -> int:
        """Return what `span` takes at most, with its scope where that is another library's.

        Args:
            span: With its late values.
            length: Bytes that it takes in the journal. Then most spans need not be encoded to know.

        Raises:
            Exception: it cannot be encoded.
        """
        size = None if length is None else _reckoned(span, length)
        if size is None:
            size = _FRAME + len(self._encode(span))
        if isinstance(span, Foreign):
            size += 2 * _FRAME + 4 * (len(span.scope) + len(span.scope_version))  # UTF-8 at its longest
        return size


def _reckoned(span: Span, length: int) -> int | None:
    """Return how many bytes a span takes at most, from those in the journal; None where that says too little."""
    if span.links or span.events or span.start < _MOMENT:
        return None
    attributes = span.attributes
    # A length of 128 and more takes another byte in protobuf, at each level around a long text.
    size = length + _ATTRIBUTE * len(attributes) + (length >> 5)
    for value in attributes.values():
        kind = type(value)
        if kind in _AS_LONG or (kind is int and value >= 0):
            continue
        if kind is not list or not all(type(item) is str for item in value):
            return None
        size += _LIST + _ITEM * len(value)
    return size + _STATUS if span.status or span.message else size
