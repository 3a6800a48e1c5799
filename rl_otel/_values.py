"""What `record()` is given, as attribute values: str, bool, int of 64 bits, float, or a list of one of them.

numpy and torch scalars are recognised by what they can do, so neither is imported. A value on a device is never read
here: reading it would make the host wait for the device.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

MAX_LENGTH: Final = 2048  # bytes of a string; back ends cut there too
MAX_ITEMS: Final = 4096  # of a list
_INT64: Final = 1 << 63

PLAIN: Final = frozenset({str, bool, int, float})


class Unreadable(Exception):
    """The value lies on a device, or has none yet."""


def plain(value: object) -> Any:
    """Return `value` as an attribute, or None for what has no value.

    Raises:
        Unreadable: the value lies on a device.
    """
    kind = type(value)
    if kind is int:
        return _int64(value)  # type: ignore[arg-type]
    if kind is str:
        return text(value)  # type: ignore[arg-type]
    if kind in PLAIN or value is None:
        return value
    return _converted(value)


def as_type(value: object, type_: type) -> Any:
    """Return `value` as a scalar of `type_`, or as a list of them where it holds several; None for no value."""
    value = plain(value)
    if type_ is object:
        return value
    if type(value) is list:
        return [_cast(item, type_) for item in value]
    return None if value is None else _cast(value, type_)


def text(value: str, limit: int = MAX_LENGTH) -> str:
    """Return `value` as valid UTF-8 of at most `limit` bytes: half an emoji becomes a replacement character."""
    if len(value) * 4 <= limit and value.isascii():
        return value
    data = value.encode("utf-8", "replace") if _is_valid(value) else _repaired(value)
    return data[:limit].decode("utf-8", "ignore")


def excerpt(name: str, value: object) -> dict[str, Any]:
    """Return a text as attributes: what fits of it under `name`, its length in characters, its hash."""
    whole = str(value)
    cut = text(whole)
    attributes: dict[str, Any] = {
        name: cut,
        f"{name}.length": len(whole),
        f"{name}.sha256": hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest(),
    }
    if len(cut) < len(whole):
        attributes[f"{name}.truncated"] = True
    return attributes


def on_device(value: object) -> bool:
    """Whether reading `value` could make the host wait for a device (a torch tensor that is not on the CPU)."""
    device = getattr(value, "device", None)
    return hasattr(value, "detach") and getattr(device, "type", "cpu") != "cpu"


def _cast(value: Any, type_: type) -> Any:
    if type(value) is type_ or type(value) is str:
        return value  # a word that should be a number but is not one is kept as the host wrote it
    try:
        return _int64(int(value)) if type_ is int else type_(value)
    except (ValueError, OverflowError):  # int(nan), int(inf)
        return value


def _converted(value: object) -> Any:
    if isinstance(value, bool | int | float | str):  # subclasses: enums, numpy.float64, strings of frameworks
        base = next(t for t in (bool, int, float, str) if isinstance(value, t))
        return plain(base.__call__(value) if base is not str else str.__str__(value))
    if on_device(value):
        raise Unreadable
    if isinstance(value, bytes | bytearray):
        return text(bytes(value).decode("utf-8", "replace"))
    if hasattr(value, "tolist"):  # numpy and torch, scalar or array
        return plain(_detached(value).tolist())
    if isinstance(value, dict):
        return text(repr(value))
    return _listed(value)


def _listed(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset) or hasattr(value, "__iter__"):
        items = [plain(item) for item, _ in zip(value, range(MAX_ITEMS), strict=False)]
        kinds = {type(item) for item in items}
        if kinds <= {int, float} and len(kinds) == 2:
            return [float(item) for item in items]
        return items if len(kinds) <= 1 and not kinds & {list, type(None)} else text(repr(items))
    return text(str(value))


def _detached(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value


def _int64(value: int) -> int:
    # JSON readers and OTLP know 64 bits; the nearest number they know beats none.
    return value if -_INT64 <= value < _INT64 else (_INT64 - 1 if value > 0 else -_INT64)


def _is_valid(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _repaired(value: str) -> bytes:
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
