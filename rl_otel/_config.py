"""Settings: each knob once, with its variables, its default and its sentence; argument over environment over default.

`docs/environment.md` is compared with this module. A wrong argument raises, a wrong environment value is ignored with
one line: a typing error in the code is found at once, one on a cluster must not stop a run. An empty variable counts
as unset. This module and `_identity` alone read the environment.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from rl_otel import semconv
from rl_otel._safety import pass_on, say

PROTOCOLS: Final = ("http/protobuf", "grpc", "http/json")
COMPRESSIONS: Final = ("none", "gzip")
SAMPLERS: Final = (
    "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
    "always_on", "always_off", "traceidratio",
)  # fmt: skip


_DAY: Final = 86_400.0  # s; a thread cannot be told to wait for any length
_MOST: Final = 1_000_000_000


def variable(name: str) -> str | None:
    """Return the environment variable `name`, None where it is unset or blank."""
    return os.environ.get(name, "").strip() or None


class Kind(NamedTuple):
    """What values a knob takes. `check` and `read` raise for any other, whatever it makes them raise."""

    must_be: str  # completes "... must be"
    check: Callable[[Any], Any]  # of an argument
    read: Callable[[str], Any]  # of a variable's text
    secret: bool = False  # its value appears in no message


class Knob(NamedTuple):
    """One setting as data."""

    field: str
    kind: Kind
    variables: dict[str, Kind]  # the first that is set wins
    default: Any
    doc: str


def _require(truth: bool) -> None:
    if not truth:
        raise ValueError


def _text(value: object) -> str:
    _require(isinstance(value, str) and bool(value.strip()))
    return str(value)


def _path(value: Any) -> Path:
    path = Path(value).expanduser()
    _require("\0" not in str(path))
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


def _one_of(*choices: str) -> Kind:
    def check(value: object) -> str:
        _require(value in choices)
        return str(value)

    return Kind(" or ".join(choices), check, lambda text: check(text.lower()))


_TEXT: Final = Kind("a text that is not empty", _text, _text)
_PATH: Final = Kind("a path", _path, _path)
_FILE: Final = Kind("a path", _file, _file)
_ENDPOINT: Final = Kind("an address such as http://host:4318", _text, _text, secret=True)  # it may hold a password
_FLAG: Final = Kind("True or False (in the environment 1 or 0)", _flag, _read_flag)
_COUNT: Final = Kind(f"a whole number from 1 to {_MOST}", _count, lambda text: _count(int(text)))
_INDEX: Final = Kind(f"a whole number from 0 to {_MOST}", _index, lambda text: _index(int(text)))
_SECONDS: Final = Kind("a number of seconds above 0, a day at most", _seconds, lambda text: _seconds(float(text)))
_TIMEOUT: Final = Kind("a number of seconds above 0, a day at most", _seconds, _read_otlp_timeout)
_MILLISECONDS: Final = Kind(
    "a number of milliseconds above 0, a day at most", _seconds, lambda text: _seconds(float(text) / 1000)
)
_RATIO: Final = Kind("a number from 0 to 1", _ratio, lambda text: _ratio(float(text)))
_ATTRIBUTES: Final = Kind(
    "a mapping of names to str, bool, int, float or lists of them (in the environment key=value,key=value)",
    _attributes,
    _read_pairs,
)
_HEADERS: Final = Kind(
    "a mapping of str to str without control characters (in the environment key=value,key=value)",
    _headers,
    lambda text: _headers(_read_pairs(text)),
    secret=True,
)
_EXPORTER: Final = Kind("an OpenTelemetry SpanExporter", _exporter, _exporter)
_PROTOCOL: Final = _one_of(*PROTOCOLS)
_COMPRESSION: Final = _one_of(*COMPRESSIONS)
_SAMPLER: Final = _one_of(*SAMPLERS)
_SENDING: Final = Kind("otlp or none", _flag, _read_sending)
_GPU_PEAK: Final = _one_of("reset", "observe", "off")
_SERVICES: Final = Kind("one or three", _flag, lambda text: _one_of("one", "three").read(text) == "one")


def _knob(default: Any, doc: str, kind: Kind, *names: str, **others: Kind) -> Any:
    """Return the dataclass field of one setting; `others` are variables in a unit of their own."""
    metadata = {"kind": kind, "variables": dict.fromkeys(names, kind) | others, "default": default, "doc": doc}
    return dataclasses.field(default_factory=lambda: copy(default), metadata=metadata, repr=not kind.secret)


def _otlp(name: str) -> tuple[str, str]:
    return f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a process, as `configure()` found them."""

    service_name: str = _knob(
        "rl", "Name of the service in the back end; also `service.name` of the resource.", _TEXT, "OTEL_SERVICE_NAME"
    )
    resource: dict[str, Any] = _knob(
        {}, "Attributes of the resource, as `key=value,key=value`.", _ATTRIBUTES, "OTEL_RESOURCE_ATTRIBUTES"
    )
    endpoint: str | None = _knob(
        None,
        "Where spans are sent, in any spelling; without one they stay in the run folder.",
        _ENDPOINT,
        *_otlp("ENDPOINT"),
    )
    protocol: str | None = _knob(
        None, "http/protobuf, grpc or http/json; the endpoint's port decides if unset.", _PROTOCOL, *_otlp("PROTOCOL")
    )
    headers: dict[str, str] = _knob(
        {}, "Sent with each request, as `key=value,key=value`; never logged.", _HEADERS, *_otlp("HEADERS")
    )
    timeout: float = _knob(
        10.0, "Seconds one request may take; milliseconds from 1000 on, and always in the variable of the BSP.",
        _TIMEOUT, *_otlp("TIMEOUT"),
        OTEL_BSP_EXPORT_TIMEOUT=_MILLISECONDS,
    )  # fmt: skip
    compression: str = _knob("none", "none or gzip.", _COMPRESSION, *_otlp("COMPRESSION"))
    certificate: Path | None = _knob(None, "File with the certificates to trust.", _FILE, *_otlp("CERTIFICATE"))
    client_key: Path | None = _knob(None, "File with the client's private key.", _FILE, *_otlp("CLIENT_KEY"))
    client_certificate: Path | None = _knob(
        None, "File with the client's certificate.", _FILE, *_otlp("CLIENT_CERTIFICATE")
    )
    insecure: bool | None = _knob(
        None, "Whether grpc goes without TLS; the endpoint's scheme decides if unset.", _FLAG, *_otlp("INSECURE")
    )
    exporter: Any = _knob(None, "An OpenTelemetry `SpanExporter` that takes the place of the endpoint.", _EXPORTER)
    sending: bool = _knob(True, "otlp, or none to keep all spans in the run folder.", _SENDING, "OTEL_TRACES_EXPORTER")
    disabled: bool = _knob(False, "true turns every call into a no-op.", _FLAG, "OTEL_SDK_DISABLED")
    sampler: str = _knob(SAMPLERS[0], "Which whole steps are sent; all are recorded.", _SAMPLER, "OTEL_TRACES_SAMPLER")
    sampler_ratio: float = _knob(
        1.0, "Share of the steps for a traceidratio sampler, 0 to 1.", _RATIO, "OTEL_TRACES_SAMPLER_ARG"
    )
    schedule_delay: float = _knob(
        1.0, "Milliseconds between two looks of the sending thread at the journal.", _SECONDS,
        OTEL_BSP_SCHEDULE_DELAY=_MILLISECONDS,
    )  # fmt: skip
    batch_size: int = _knob(512, "Spans in one request at most.", _COUNT, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE")
    trace_budget: int = _knob(10_000, "Spans of one step that are sent at most.", _COUNT, "RL_OTEL_TRACE_BUDGET")
    run_dir: Path | None = _knob(
        None,
        "Folder of the run folders; `./rl-otel-runs`, with an endpoint a temporary folder.",
        _PATH,
        "RL_OTEL_RUN_DIR",
    )
    run_id: str | None = _knob(
        None,
        "Name of the run, the same in all its processes; found by launcher or time if unset.",
        _TEXT,
        "RL_OTEL_RUN_ID",
    )
    restart: int | None = _knob(None, "How often this run was started before.", _INDEX, "RL_OTEL_RESTART")
    role: str | None = _knob(
        None, "What this process does: driver, trainer, generator, env, reward.", _TEXT, "RL_OTEL_ROLE"
    )
    print: bool | None = _knob(
        None, "1 prints the step tables, 0 does not; on a terminal if unset.", _FLAG, "RL_OTEL_PRINT"
    )
    services_one: bool = _knob(
        False, "three, or one: no services of their own for generate and env.step.", _SERVICES, "RL_OTEL_SERVICES"
    )
    gpu_peak: str = _knob(
        "reset",
        "reset makes peak memory exact by resetting torch's peak counters at each phase, observe leaves them alone and "
        "gives lower bounds, off reads none.",
        _GPU_PEAK,
        "RL_OTEL_GPU_PEAK",
    )
    gpu_all: bool = _knob(
        False, "1 watches every GPU of the node, not only those that this process uses.", _FLAG, "RL_OTEL_GPU_ALL"
    )
    text: bool = _knob(False, "1 records prompts, completions, observations and actions.", _FLAG, "RL_OTEL_TEXT")
    endpoint_exact: bool = dataclasses.field(default=False)  # the endpoint is a traces URL already, by its variable

    @classmethod
    def load(cls, **arguments: Any) -> Config:
        """Return the settings in force; an argument that is None counts as not given.

        Raises:
            ValueError: an argument is wrong; the message names it and says what it must be.
        """
        given = {name: _checked(name, value) for name, value in arguments.items() if value is not None}
        found = {knob.field: value for knob in KNOBS if (value := _from_environment(knob)) is not None}
        values = found | given
        values["resource"] = found.get("resource", {}) | given.get("resource", {})
        if "service_name" not in values and semconv.SERVICE_NAME in values["resource"]:
            values["service_name"] = str(values["resource"][semconv.SERVICE_NAME])
        exact = "endpoint" not in given and variable(_otlp("ENDPOINT")[0]) is not None
        return cls(**values, endpoint_exact=exact)

    @property
    def sends(self) -> bool:
        """Whether spans leave the run folder at all."""
        return self.sending and (self.endpoint is not None or self.exporter is not None)

    @property
    def sampled(self) -> float:
        """The share of steps that is sent, 0 to 1. A step is a root, so `parentbased_` changes nothing."""
        name = self.sampler.removeprefix("parentbased_")
        return {"always_on": 1.0, "always_off": 0.0}.get(name, self.sampler_ratio)


#: Every setting, in the order of the documentation.
KNOBS: Final = tuple(
    Knob(f.name, f.metadata["kind"], f.metadata["variables"], f.metadata["default"], f.metadata["doc"])
    for f in dataclasses.fields(Config)
    if f.metadata
)

_KINDS: Final = {knob.field: knob.kind for knob in KNOBS}


def proxies() -> dict[str, str]:
    """Return `HTTP_PROXY` and its kin, which all programs share."""
    return {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}


def run_dir() -> Path | None:
    """Return where the environment wants run folders, for who reads them; None where it says nothing."""
    return _read("RL_OTEL_RUN_DIR", _PATH)  # type: ignore[no-any-return]


def index(name: str) -> int | None:
    """Return the whole number in the variable `name`; None, with one line if it is wrong, where there is none."""
    return _read(name, _INDEX)  # type: ignore[no-any-return]


def _checked(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    try:
        return kind.check(value)
    except Exception as error:
        pass_on(error)
        shown = "this value" if kind.secret else _repr(value)
        raise ValueError(f"configure({name}=...) must be {kind.must_be}, not {shown}") from None


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        pass_on(error)
        return f"this {type(value).__name__}"


def _from_environment(knob: Knob) -> Any:
    values = (_read(name, kind) for name, kind in knob.variables.items())
    return next((value for value in values if value is not None), None)


def _read(name: str, kind: Kind) -> Any:
    if (text := variable(name)) is None:
        return None
    try:
        return kind.read(text)
    except Exception as error:  # `~nobody/runs` is a RuntimeError
        pass_on(error)
        shown = "its value" if kind.secret else repr(text)
        say(name, "rl_otel: ignoring %s: it must be %s, not %s", name, kind.must_be, shown)
        return None


def visible_devices() -> tuple[str | None, bool]:
    """Return what CUDA_VISIBLE_DEVICES says (blank: no device at all), and whether CUDA counts as the bus does."""
    return os.environ.get("CUDA_VISIBLE_DEVICES"), variable("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
