"""Settings: each knob once, with its variables, its default and its sentence; argument over environment over default.

`docs/environment.md` is compared with this module. A wrong argument raises, a wrong environment value is ignored with
one line: a typing error in the code is found at once, one on a cluster must not stop a run. An empty variable counts
as unset. This module and `_identity` alone read the environment.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, Final, NamedTuple

from rl_otel import _kinds as kinds
from rl_otel import semconv
from rl_otel._safety import nearest, pass_on, say, say_once

_OURS: Final = "RL_OTEL_"
_NO_SETTINGS: Final = ("RL_OTEL_PARENT", "RL_OTEL_TEST_")  # what a process tells its children, and what our tests say


def variable(name: str) -> str | None:
    """Return the environment variable `name`, None where it is unset or blank."""
    return os.environ.get(name, "").strip() or None


def put_variable(name: str, value: str | None) -> str | None:
    """Set an environment variable for what this process starts, None for not at all; return what it was."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    return before


class Knob(NamedTuple):
    """One setting as data."""

    field: str
    kind: kinds.Kind
    variables: dict[str, kinds.Kind]  # the first that is set wins
    default: Any
    doc: str


def _knob(default: Any, doc: str, kind: kinds.Kind, *names: str, **others: kinds.Kind) -> Any:
    """Return the dataclass field of one setting; `others` are variables in a unit of their own."""
    metadata = {"kind": kind, "variables": dict.fromkeys(names, kind) | others, "default": default, "doc": doc}
    return dataclasses.field(default_factory=lambda: copy(default), metadata=metadata, repr=not kind.secret)


def _otlp(name: str) -> tuple[str, str]:
    return f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"


def _of_metrics(knob: Any) -> Any:
    """Return the field of a setting of sending for metrics, of which the general variable is the same."""
    told = knob.metadata
    variables = {
        name.replace("_TRACES_", "_METRICS_").replace("_BSP_", "_METRIC_"): kind
        for name, kind in told["variables"].items()
    }
    return dataclasses.field(
        default_factory=lambda: copy(told["default"]),
        metadata={**told, "variables": variables, "doc": "The same for metrics."},
        repr=knob.repr,
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a process, as `configure()` found them."""

    service_name: str = _knob(
        "rl",
        "Name of the service in the back end; also `service.name` of the resource.",
        kinds.TEXT,
        "OTEL_SERVICE_NAME",
    )
    resource: dict[str, Any] = _knob(
        {}, "Attributes of the resource, as `key=value,key=value`.", kinds.ATTRIBUTES, "OTEL_RESOURCE_ATTRIBUTES"
    )
    endpoint: str | None = _knob(
        None,
        "Where spans are sent, in any spelling; without one they stay in the run folder.",
        kinds.ENDPOINT,
        *_otlp("ENDPOINT"),
    )
    protocol: str | None = _knob(
        None,
        "http/protobuf, grpc or http/json; the endpoint's port decides if unset.",
        kinds.PROTOCOL,
        *_otlp("PROTOCOL"),
    )
    headers: dict[str, str] = _knob(
        {}, "Sent with each request, as `key=value,key=value`; never logged.", kinds.HEADERS, *_otlp("HEADERS")
    )
    timeout: float = _knob(
        10.0, "Seconds one request may take; milliseconds from 1000 on, and always in the variable of the BSP.",
        kinds.TIMEOUT, *_otlp("TIMEOUT"),
        OTEL_BSP_EXPORT_TIMEOUT=kinds.MILLISECONDS,
    )  # fmt: skip
    compression: str = _knob("none", "none or gzip.", kinds.COMPRESSION, *_otlp("COMPRESSION"))
    certificate: Path | None = _knob(None, "File with the certificates to trust.", kinds.FILE, *_otlp("CERTIFICATE"))
    client_key: Path | None = _knob(None, "File with the client's private key.", kinds.FILE, *_otlp("CLIENT_KEY"))
    client_certificate: Path | None = _knob(
        None, "File with the client's certificate.", kinds.FILE, *_otlp("CLIENT_CERTIFICATE")
    )
    insecure: bool | None = _knob(
        None, "Whether grpc goes without TLS; the endpoint's scheme decides if unset.", kinds.FLAG, *_otlp("INSECURE")
    )
    exporter: Any = _knob(None, "An OpenTelemetry `SpanExporter` that takes the place of the endpoint.", kinds.EXPORTER)
    sending: bool = _knob(
        True, "otlp, or none to keep all spans in the run folder.", kinds.SENDING, "OTEL_TRACES_EXPORTER"
    )
    disabled: bool = _knob(False, "true turns every call into a no-op.", kinds.FLAG, "OTEL_SDK_DISABLED")
    sampler: str = _knob(
        kinds.SAMPLERS[0], "Which whole steps are sent; all are recorded.", kinds.SAMPLER, "OTEL_TRACES_SAMPLER"
    )
    sampler_ratio: float = _knob(
        1.0, "Share of the steps for a traceidratio sampler, 0 to 1.", kinds.RATIO, "OTEL_TRACES_SAMPLER_ARG"
    )
    schedule_delay: float = _knob(
        1.0, "Milliseconds between two looks of the sending thread at the journal.", kinds.SECONDS,
        OTEL_BSP_SCHEDULE_DELAY=kinds.MILLISECONDS,
    )  # fmt: skip
    batch_size: int = _knob(512, "Spans in one request at most.", kinds.COUNT, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE")
    trace_budget: int = _knob(10_000, "Spans of one step that are sent at most.", kinds.COUNT, "RL_OTEL_TRACE_BUDGET")
    run_dir: Path | None = _knob(
        None,
        "Folder of the run folders; `./rl-otel-runs`, with an endpoint a temporary folder.",
        kinds.PATH,
        "RL_OTEL_RUN_DIR",
    )
    run_id: str | None = _knob(
        None,
        "Name of the run, the same in all its processes; found by launcher or time if unset.",
        kinds.TEXT,
        "RL_OTEL_RUN_ID",
    )
    restart: int | None = _knob(None, "How often this run was started before.", kinds.INDEX, "RL_OTEL_RESTART")
    role: str | None = _knob(
        None, "What this process does: driver, trainer, generator, env, reward.", kinds.TEXT, "RL_OTEL_ROLE"
    )
    print: bool | None = _knob(
        None, "1 prints the step tables, 0 does not; on a terminal if unset.", kinds.FLAG, "RL_OTEL_PRINT"
    )
    services_one: bool = _knob(
        False, "three, or one: no services of their own for generate and env.step.", kinds.SERVICES, "RL_OTEL_SERVICES"
    )
    gpu_peak: str = _knob(
        "reset",
        "reset makes peak memory exact by resetting torch's peak counters at each phase, observe leaves them alone and "
        "gives lower bounds, off reads none.",
        kinds.GPU_PEAK,
        "RL_OTEL_GPU_PEAK",
    )
    gpu_all: bool = _knob(
        False, "1 watches every GPU of the node, not only those that this process uses.", kinds.FLAG, "RL_OTEL_GPU_ALL"
    )
    metrics: bool = _knob(True, "otlp, or none: no metrics at all.", kinds.SENDING, "OTEL_METRICS_EXPORTER")
    metrics_interval: float = _knob(
        10.0,
        "Milliseconds between two exports of metrics.",
        kinds.SECONDS,
        OTEL_METRIC_EXPORT_INTERVAL=kinds.MILLISECONDS,
    )
    metrics_temporality: str = _knob(
        kinds.TEMPORALITIES[0], "cumulative, delta or lowmemory.", kinds.TEMPORALITY,
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
    )  # fmt: skip
    metrics_exemplars: str = _knob(
        kinds.EXEMPLARS[0], "What becomes an exemplar: trace_based (if its span is sent), always_on or always_off.",
        kinds.EXEMPLAR, "OTEL_METRICS_EXEMPLAR_FILTER",
    )  # fmt: skip
    metrics_endpoint: str | None = _of_metrics(endpoint)
    metrics_protocol: str | None = _of_metrics(protocol)
    metrics_headers: dict[str, str] = _of_metrics(headers)
    metrics_timeout: float = _of_metrics(timeout)
    metrics_compression: str = _of_metrics(compression)
    metrics_certificate: Path | None = _of_metrics(certificate)
    metrics_client_key: Path | None = _of_metrics(client_key)
    metrics_client_certificate: Path | None = _of_metrics(client_certificate)
    metrics_insecure: bool | None = _of_metrics(insecure)
    text: bool = _knob(False, "1 records prompts, completions, observations and actions.", kinds.FLAG, "RL_OTEL_TEXT")
    endpoint_exact: bool = dataclasses.field(default=False)  # the endpoint is a traces URL already, by its variable
    metrics_endpoint_exact: bool = dataclasses.field(default=False)

    @classmethod
    def load(cls, **arguments: Any) -> Config:
        """Return the settings in force; an argument that is None counts as not given.

        Raises:
            ValueError: an argument is wrong; the message names it and says what it must be.
        """
        given = {name: _checked(name, value) for name, value in arguments.items() if value is not None}
        given |= {metrics: given[name] for name, metrics in _SHARED.items() if name in given and metrics not in given}
        found = {knob.field: value for knob in KNOBS if (value := _from_environment(knob)) is not None}
        values = found | given
        values["resource"] = found.get("resource", {}) | given.get("resource", {})
        if "service_name" not in values and semconv.SERVICE_NAME in values["resource"]:
            values["service_name"] = str(values["resource"][semconv.SERVICE_NAME])
        exact, metrics_exact = (
            name not in given and variable(_FIRST[name]) is not None for name in ("endpoint", "metrics_endpoint")
        )
        return cls(**values, endpoint_exact=exact, metrics_endpoint_exact=metrics_exact)

    @classmethod
    def inheriting(cls, left: Mapping[str, Any], given: Mapping[str, Any]) -> Config:
        """Return the settings in force: `left` counts where neither an argument nor the environment says anything.

        Raises:
            ValueError: an argument is wrong, or what was left.
        """
        silent = unset_knobs()
        return cls.load(**{**{name: value for name, value in left.items() if name in silent}, **given})

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
_FIRST: Final = {knob.field: next(iter(knob.variables), "") for knob in KNOBS}
#: Settings of sending, and those of the same for metrics: one argument sets both.
_SHARED: Final = {
    name.removeprefix("metrics_"): name
    for name in _KINDS
    if name.removeprefix("metrics_") in _KINDS and name.startswith("metrics_")
}


def unset_knobs() -> set[str]:
    """Return the settings of which the environment says nothing."""
    return {knob.field for knob in KNOBS if _from_environment(knob) is None}


def proxies() -> dict[str, str]:
    """Return `HTTP_PROXY` and its kin, which all programs share."""
    return {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}


def check_names() -> None:
    """Tell of variables with our prefix that are none of ours: a setting that is misspelt is not in force."""
    known = tuple(name for knob in KNOBS for name in knob.variables if name.startswith(_OURS))
    for name in os.environ:
        if name.startswith(_OURS) and not name.startswith(_NO_SETTINGS) and name not in known:
            meant = nearest(name, known)
            say_once(
                f"variable {meant}",
                "rl_otel: %s is no setting, and is ignored%s",
                name[:100],
                f"; did you mean {meant}?" if meant else ": docs/environment.md has them all",
            )


def run_dir() -> Path | None:
    """Return where the environment wants run folders, for who reads them; None where it says nothing."""
    return _read("RL_OTEL_RUN_DIR", kinds.PATH)  # type: ignore[no-any-return]


def index(name: str) -> int | None:
    """Return the whole number in the variable `name`; None, with one line if it is wrong, where there is none."""
    return _read(name, kinds.INDEX)  # type: ignore[no-any-return]


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


def _read(name: str, kind: kinds.Kind) -> Any:
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
