"""What stands where no span is: it takes everything and does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Null:
    """A handle that records nothing; false in a condition."""

    name = ""
    id = ""
    index = -1
    trace_id = ""
    span_id = ""
    recording = False

    def __bool__(self) -> bool:
        return False

    def record(self, mapping: Mapping[str, Any] | None = None, /, **words: Any) -> None:
        """Do nothing."""

    def end(self, error: BaseException | None = None) -> None:
        """Do nothing."""

    @property
    def summary(self) -> dict[str, float | int]:
        """Nothing is known."""
        return {}

    def summary_with(self, prefix: str) -> dict[str, float | int]:
        """Return nothing."""
        return {}


NULL = Null()
