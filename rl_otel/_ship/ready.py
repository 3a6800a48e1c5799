"""Spans on their way out."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rl_otel._otlp import Piece, Span


class Ready(NamedTuple):
    """A span to be sent, and the segment it is in."""

    span: Span
    segment: int

    @property
    def id(self) -> bytes:
        """The span's id."""
        return self.span.span


#: A span to be sent, as it is or as it was written already.
Due: TypeAlias = "Ready | Piece"
