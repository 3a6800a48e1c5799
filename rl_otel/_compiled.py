"""What mypyc is told. The modules that it compiles where a wheel is built with a C compiler run as they are, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**told: Any) -> Any:
        """Return a class as it is."""
        return lambda cls: cls


__all__ = ["mypyc_attr"]
