"""Records that the encoder refused, made such that it takes them."""

from __future__ import annotations

from typing import Any

from rl_otel import _record, _values
from rl_otel._safety import pass_on


def cleaned(record: Any) -> Any:
    """Return `record` with every string valid and every number one that a back end knows."""
    fields = {name: _clean(getattr(record, name)) for name in record.__struct_fields__}
    return type(record)(**fields)


def _clean(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return {_values.text(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], _record.Link | _record.Event):
        return [cleaned(item) for item in value]
    try:
        return _values.plain(value) if value is not None else ""
    except Exception as error:  # whatever it is, the rest of its record is none the worse
        pass_on(error)
        return f"<{type(value).__qualname__}>"
