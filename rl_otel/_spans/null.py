"""What stands where no span is: it takes everything and does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_otel._spans.otel import OtelSpan

if TYPE_CHECKING:
    from typing_extensions import Never, Self


class Null(OtelSpan):
    """A handle that records nothing; false in a condition."""

    name = ""
    id = ""
    index = -1
    trace_id = ""
    span_id = ""
    recording = False
    ended = True

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing."""

    def start(self) -> Self:
        """Do nothing."""
        return self

    def end(self, error: BaseException | None = None, end_time: object = None) -> None:
        """Do nothing."""

    def record(self, mapping: Mapping[str, Any] | None = None, /, *more: Never, **words: Any) -> None:
        """Do nothing."""

    def consume(self, ids: object, policy_versions: object = None) -> None:
        """Do nothing."""

    def part(self, name: str, *, bytes: int | None = None) -> Self:  # noqa: A002 - the word of `record`
        """Return itself."""
        return self

    @property
    def attributes(self) -> dict[str, Any]:
        """Nothing is known."""
        return {}

    @property
    def summary(self) -> dict[str, float | int]:
        """Nothing is known."""
        return {}

    def summary_with(self, prefix: str) -> dict[str, float | int]:
        """Return nothing."""
        return {}


NULL = Null()
