"""What `record()` is given, as attribute values: str, bool, int of 64 bits, float, or a list of one of them.

numpy and torch scalars are recognised by what they can do, so neither is imported. A value on a device is never read
here: reading it would make the host wait for the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from rl_otel._safety import say

MAX_LENGTH: Final = 2048  # bytes of a string; back ends cut there too
MAX_ITEMS: Final = 4096  # of a list
_INT64: Final = 1 << 63

PLAIN: Final = frozenset({str, bool, int, float})
_WHOLE: Final = (str, bytes, bytearray, Mapping)


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
    read = _read(value, MAX_ITEMS)
    return _uniform(read) if type(read) is list else read


def as_type(value: object, type_: type) -> Any:
    """Return `value` as a scalar of `type_`, or as a flat list of them where it holds several.

    None where it has no value, or one of another type, which one log line tells.

    Raises:
        Unreadable: the value lies on a device.
    """
    if type_ is object:
        return plain(value)
    read = _read(value)
    try:
        if type(read) is not list:
            return None if read is None else _cast(read, type_)
        items = [_cast(item, type_) for item in _flat(read)]
        return items[:MAX_ITEMS] if type_ is str else items  # numbers become one number, of all of them
    except (ValueError, OverflowError):
        say(f"type {type_}", "rl_otel: %.60r is no %s and is not recorded", read, type_.__name__)
        return None


def argument(value: object, type_: type) -> Any:
    """Return what an opener was given as one scalar of `type_`, None where it is none or lies on a device."""
    try:
        scalar = as_type(value, type_)
    except Unreadable:
        return None
    return None if type(scalar) is list else scalar


def text(value: str, limit: int = MAX_LENGTH) -> str:
    """Return `value` as valid UTF-8 of at most `limit` bytes: half an emoji becomes a replacement character."""
    if len(value) <= limit and value.isascii():
        return value
    return valid(value).encode()[:limit].decode("utf-8", "ignore")


def valid(value: str) -> str:
    """Return `value` with a replacement character for each half of a surrogate pair that lacks its other half."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def excerpt(name: str, value: object) -> dict[str, Any]:
    """Return a text as attributes: what fits of it under `name`, its length in characters, its hash."""
    whole = valid(str(value))
    cut = text(whole)
    attributes: dict[str, Any] = {
        name: cut,
        f"{name}.length": len(whole),
        f"{name}.sha256": hashlib.sha256(whole.encode()).hexdigest(),
    }
    if cut != whole:
        attributes[f"{name}.truncated"] = True
    return attributes


def on_device(value: object) -> bool:
    """Whether reading `value` could make the host wait for a device (a torch tensor that is not on the CPU)."""
    device = getattr(value, "device", None)
    return hasattr(value, "detach") and getattr(device, "type", "cpu") != "cpu"


def is_several(value: object) -> bool:
    """Whether `value` holds several values one after another, and is no array."""
    return isinstance(value, Collection) and not isinstance(value, _WHOLE) and not hasattr(value, "tolist")


def _cast(value: Any, type_: type) -> Any:
    if type(value) is type_:
        return value
    if type_ is bool and type(value) is str:
        raise ValueError(value)  # bool("no") is True
    return _int64(int(value)) if type_ is int else type_(value)


def _read(value: Any, limit: int | None = None) -> Any:
    """Return what Python knows of `value`: a scalar, None, or a list of such, nested as it was."""
    if value is None:
        return None
    for kind in (str, bool, int, float):  # subclasses too: enums, numpy.float64, strings of frameworks
        if isinstance(value, kind):
            return text(str.__str__(value)) if kind is str else _int64(int(value)) if kind is int else kind(value)
    if hasattr(value, "full_tensor"):  # reading a distributed tensor is a collective: other ranks would have to join
        say("distributed", "rl_otel: a tensor that is spread over processes is not recorded; give its full_tensor()")
        return None
    if on_device(value):
        raise Unreadable
    if hasattr(value, "tolist"):  # numpy and torch, scalar or array
        return _read((value.detach() if hasattr(value, "detach") else value).tolist(), limit)
    if is_several(value):
        return [_read(item, limit) for item in islice(value, limit)]
    return _told(value, limit)


def _told(value: Any, limit: int | None) -> Any:
    """Return what is neither number nor list: as a number if it can be one, else as text."""
    if isinstance(value, bytes | bytearray):
        return text(bytes(value).decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return text(repr({key: _read(item, limit) for key, item in value.items()}))
    return float(value) if hasattr(value, "__float__") else text(str(value))


def _uniform(items: list[Any]) -> Any:
    """Return a list of one type, as attributes must be; as text where the items have nothing in common."""
    kinds = {type(item) for item in items}
    if kinds == {int, float}:
        return [float(item) for item in items]
    return items if len(kinds) <= 1 and not kinds & {list, type(None)} else text(repr(items))


def _flat(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if type(item) is list:
            yield from _flat(item)
        elif item is not None:
            yield item


def _int64(value: int) -> int:
    # JSON readers and OTLP know 64 bits; the nearest number they know beats none.
    return value if -_INT64 <= value < _INT64 else (_INT64 - 1 if value > 0 else -_INT64)
