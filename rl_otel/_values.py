"""What `record()` is given, as attribute values: str, bool, int of 64 bits, float, or a list of one of them.

numpy and torch scalars are recognised by what they can do, so neither is imported. A value on a device is never read
here: reading it would make the host wait for the device.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from rl_otel._safety import pass_on, say, say_once

MAX_LENGTH: Final = 2048  # bytes of a string; back ends cut there too
MAX_ITEMS: Final = 4096  # of a list
MAX_NAMED: Final = 128  # attributes of a span under names that are not ours
MAX_READ: Final = 1 << 15  # numbers that become one: some 50 ms of the host's time
_INT64: Final = 1 << 63

PLAIN: Final = frozenset({str, bool, int, float})
_TYPES: Final[dict[type, str]] = {int: "whole number", float: "number", bool: "flag (True or False)", str: "text"}
_WHOLE: Final = (str, bytes, bytearray, Mapping)

Item = TypeVar("Item")


class Unreadable(Exception):
    """The value lies on a device, or has none yet."""


class Budget:
    """How many items of a value are looked at, in all its lists and mappings together: the host waits meanwhile."""

    __slots__ = ("exceeded", "left")

    def __init__(self, items: int) -> None:
        self.left = items
        self.exceeded = False

    def of(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield those of `items` that are looked at."""
        for item in items:
            if not self.left:
                self.exceeded = True
                return
            self.left -= 1
            yield item


class Unfit(Exception):
    """The value is of another type than the wanted one, which this says in words."""


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
    read = _read(value, Budget(MAX_ITEMS))
    return _uniform(read) if type(read) is list else read


def as_type(value: object, type_: type) -> Any:
    """Return `value` as a scalar of `type_`, or as a flat list of them where it holds several.

    A large array says itself what its numbers come to. None where there is no value, or more of them than can be
    read, which one log line tells.

    Raises:
        Unreadable: the value lies on a device.
        Unfit: it is of another type.
    """
    if type_ is object:
        return plain(value)
    budget = Budget(MAX_ITEMS if type_ is str else MAX_READ)
    read = _figure(value, type_) if type_ is not str and _is_large(value) else _read(value, budget)
    if budget.exceeded and type_ is not str:  # numbers become one number, of all of them
        say("long", "rl_otel: a list of more than %d numbers is not recorded; give their sum or mean", MAX_READ)
        return None
    try:
        if type(read) is not list:
            return None if read is None else _cast(read, type_)
        return [_cast(item, type_) for item in _flat(read)]
    except (ValueError, OverflowError):
        raise Unfit(_TYPES[type_]) from None


def summed(values: list[Any], type_: type) -> Any:
    """Return one value for a batch: counts add up, flags hold if all do, figures are averaged."""
    if not values or not all(isinstance(value, int | float) for value in values):
        return None
    if type_ is bool:
        return all(values)
    return sum(values) if type_ is int else sum(values) / len(values)


def argument(value: object, type_: type) -> Any:
    """Return what an opener was given as one scalar of `type_`, or None for no value.

    Raises:
        Unfit: it is something else, or lies on a device.
    """
    try:
        scalar = as_type(value, type_)
    except Unfit:
        raise
    except Exception as error:  # on a device, or what the host's object raises
        pass_on(error)
        raise Unfit(_TYPES[type_]) from None
    if type(scalar) is list:
        raise Unfit(_TYPES[type_])
    return scalar


def shown(value: object) -> str:
    """Return a value for a log line, without making the host wait for a device."""
    if not on_device(value):
        try:
            return f"{value!r:.60}"
        except Exception:  # noqa: S110 - what it cannot show is not the point
            pass
    return f"<{type(value).__name__}>"


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
    """Whether reading `value` could make the host wait: an array of any library that is not plainly on the CPU."""
    if not hasattr(value, "tolist"):
        return False
    device = getattr(value, "device", None)
    if device is None:
        return hasattr(value, "devices")
    kind = getattr(device, "type", None) or getattr(device, "platform", device)  # of torch, of JAX, of numpy
    return not (isinstance(kind, str) and "cpu" in kind.lower())


def is_several(value: object) -> bool:
    """Whether `value` holds several values one after another, and is no array."""
    return isinstance(value, Collection) and not isinstance(value, _WHOLE) and not hasattr(value, "tolist")


def _cast(value: Any, type_: type) -> Any:
    if type(value) is type_ and type_ is not int:
        return value
    if type_ is bool and type(value) is str:
        raise ValueError(value)  # bool("no") is True
    return _int64(int(value)) if type_ is int else type_(value)


def _read(value: Any, budget: Budget) -> Any:
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
        return _read(_first(_detached(value), budget).tolist(), budget)
    if is_several(value):
        return [item if type(item) is float else _read(item, budget) for item in budget.of(value)]
    return _told(value, budget)


def _told(value: Any, budget: Budget) -> Any:
    """Return what is neither number nor list: as a number if it can be one, else as text."""
    if isinstance(value, bytes | bytearray):
        return text(bytes(value).decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return text(repr({key: _read(item, budget) for key, item in budget.of(value.items())}))
    return float(value) if hasattr(value, "__float__") else text(str(value))


def _size(value: Any) -> int:
    """Return how many items an array has; 0 for what is none."""
    size = getattr(value, "numel", None) or getattr(value, "size", 0)  # torch, numpy
    size = size() if callable(size) else size
    return size if isinstance(size, int) and hasattr(value, "tolist") else 0


def _is_large(value: Any) -> bool:
    """Whether `value` is an array on the host, of more numbers than are read one by one."""
    return _size(value) > MAX_READ and not hasattr(value, "full_tensor") and not on_device(value)


def _detached(array: Any) -> Any:
    return array.detach() if hasattr(array, "detach") else array


def _first(array: Any, budget: Budget) -> Any:
    """Return as much of an array as may be looked at: all of it, or the first items one after another."""
    if _size(array) <= budget.left:
        return array
    budget.exceeded = True
    return (array.reshape(-1) if hasattr(array, "reshape") else array)[: budget.left]


def _figure(array: Any, type_: type) -> Any:
    """Return what a large array comes to, as a list would: its mean, its sum, or whether all of it holds."""
    array = _detached(array)
    numpy = sys.modules.get("numpy")  # it would warn where infinities meet
    with numpy.errstate(all="ignore") if numpy is not None else contextlib.nullcontext():
        if type_ is float:
            return float((array.double() if hasattr(array, "double") else array).mean())
        return bool(array.all()) if type_ is bool else array.sum().item()


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
    if -_INT64 <= value < _INT64:
        return value
    # JSON readers and OTLP know 64 bits; the nearest number they know beats none.
    say_once("int64", "rl_otel: a number beyond 64 bits is recorded as the nearest of 64 bits")
    return _INT64 - 1 if value > 0 else -_INT64
