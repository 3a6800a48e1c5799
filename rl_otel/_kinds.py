"""What values a setting takes: how an argument of that kind is checked, and how a variable's text is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

JSON: Final = "http/json"
PROTOCOLS: Final = ("http/protobuf", "grpc", JSON)
COMPRESSIONS: Final = ("none", "gzip")
TEMPORALITIES: Final = ("cumulative", "delta", "lowmemory")
EXEMPLARS: Final = ("trace_based", "always_on", "always_off")
SAMPLERS: Final = (
    "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
    "always_on", "always_off", "traceidratio",
)  # fmt: skip


_DAY: Final = 86_400.0  # s; a thread cannot be told to wait for any length
_MOST: Final = 1_000_000_000


class Kind(NamedTuple):
    """What values a knob takes. `check` and `read` raise for any other, whatever it makes them raise."""

    must_be: str  # completes "... must be"
    check: Callable[[Any], Any]  # of an argument
    read: Callable[[str], Any]  # of a variable's text
    secret: bool = False  # its value appears in no message


def _require(truth: bool) -> None:
    if not truth:
        raise ValueError


def _text(value: object) -> str:
    _require(isinstance(value, str) and bool(value.strip()))
    return str(value)


def _path(value: Any) -> Path:
    path = Path(value).expanduser()
    _require(b"\0" not in os.fsencode(path))  # it raises for half an emoji, of which no system has a name
    return path


def _file(value: Any) -> Path:
    return _path(value).absolute()  # it is opened late, and the host may have gone elsewhere


def _flag(value: object) -> bool:
    _require(isinstance(value, bool))
    return bool(value)


def _read_flag(text: str) -> bool:
    yes, no = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
    _require(text.lower() in yes + no)
    return text.lower() in yes


def _count(value: Any) -> int:
    _require(_index(value) > 0)
    return int(value)


def _index(value: Any) -> int:
    _require(isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST)
    return int(value)


def _seconds(value: Any) -> float:
    _require(isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _DAY)
    return float(value)


def _read_otlp_timeout(text: str) -> float:
    # The specification counts milliseconds, OpenTelemetry for Python seconds; nobody waits 1000 s for one request.
    value = float(text)
    return _seconds(value / 1000 if value >= 1000 else value)


def _ratio(value: Any) -> float:
    _require(isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1)
    return float(value)


def _attributes(value: Any) -> dict[str, Any]:
    def plain(item: object) -> bool:
        return isinstance(item, (str, bool, int, float))

    _require(isinstance(value, Mapping))
    for key, item in value.items():
        _require(isinstance(key, str) and bool(key))
        _require(plain(item) or (isinstance(item, (list, tuple)) and all(map(plain, item))))
    return dict(value)


def _headers(value: Any) -> dict[str, str]:
    _require(isinstance(value, Mapping))
    for key, item in value.items():
        _require(isinstance(key, str) and isinstance(item, str) and bool(key.strip()))
        _require((key + item).isprintable())
    return dict(value)


def _read_pairs(text: str) -> dict[str, str]:
    """Return `a=b,c=d` as a mapping, percent-decoded."""
    pairs = [entry.partition("=") for entry in text.split(",") if entry.strip()]
    _require(all(equals and key.strip() for key, equals, _ in pairs))
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}


def _exporter(value: Any) -> Any:
    _require(callable(getattr(value, "export", None)) and callable(getattr(value, "shutdown", None)))
    return value


def _read_sending(text: str) -> bool:
    names = {name.strip().lower() for name in text.split(",")}
    _require(names in ({"otlp"}, {"none"}))
    return names == {"otlp"}


def one_of(*choices: str) -> Kind:
    def check(value: object) -> str:
        _require(value in choices)
        return str(value)

    return Kind(" or ".join(choices), check, lambda text: check(text.lower()))


TEXT: Final = Kind("a text that is not empty", _text, _text)
PATH: Final = Kind("a path", _path, _path)
FILE: Final = Kind("a path", _file, _file)
ENDPOINT: Final = Kind("an address such as http://host:4318", _text, _text, secret=True)  # it may hold a password
FLAG: Final = Kind("True or False (in the environment 1 or 0)", _flag, _read_flag)
COUNT: Final = Kind(f"a whole number from 1 to {_MOST}", _count, lambda text: _count(int(text)))
INDEX: Final = Kind(f"a whole number from 0 to {_MOST}", _index, lambda text: _index(int(text)))
SECONDS: Final = Kind("a number of seconds above 0, a day at most", _seconds, lambda text: _seconds(float(text)))
TIMEOUT: Final = Kind("a number of seconds above 0, a day at most", _seconds, _read_otlp_timeout)
MILLISECONDS: Final = Kind(
    "a number of milliseconds above 0, a day at most", _seconds, lambda text: _seconds(float(text) / 1000)
)
RATIO: Final = Kind("a number from 0 to 1", _ratio, lambda text: _ratio(float(text)))
ATTRIBUTES: Final = Kind(
    "a mapping of names to str, bool, int, float or lists of them (in the environment key=value,key=value)",
    _attributes,
    _read_pairs,
)
HEADERS: Final = Kind(
    "a mapping of str to str without control characters (in the environment key=value,key=value)",
    _headers,
    lambda text: _headers(_read_pairs(text)),
    secret=True,
)
EXPORTER: Final = Kind("an OpenTelemetry SpanExporter", _exporter, _exporter)
PROTOCOL: Final = one_of(*PROTOCOLS)
COMPRESSION: Final = one_of(*COMPRESSIONS)
SAMPLER: Final = one_of(*SAMPLERS)
TEMPORALITY: Final = one_of(*TEMPORALITIES)
EXEMPLAR: Final = one_of(*EXEMPLARS)
SENDING: Final = Kind("otlp or none", _flag, _read_sending)
GPU_PEAK: Final = one_of("reset", "observe", "off")
SERVICES: Final = Kind("one or three", _flag, lambda text: one_of("one", "three").read(text) == "one")
