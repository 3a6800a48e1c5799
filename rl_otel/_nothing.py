"""What stands for a public name while it cannot be loaded: it takes everything, and does nothing to the host's objects.

It imports nothing of ours: whatever it needed might be half loaded as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Nothing:
    """An opener, a handle and a delivery that hold nothing; false in a condition."""

    def __call__(self, *given: Any, **words: Any) -> Any:
        """Return a function that was to be decorated or bound, else itself."""
        return given[0] if given and isinstance(given[0], Callable) else self  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

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


NOTHING = Nothing()
