"""`configure()`: finds the settings, picks where spans go, and joins OpenTelemetry's SDK."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rl_otel import _metrics, _runtime
from rl_otel._config import Config, check_names, variable
from rl_otel._identity import identify
from rl_otel._inherited import VARIABLE, Inherited, inherited
from rl_otel._runtime import Outlets, Runtime
from rl_otel._safety import pass_on, say, say_once, swallow
from rl_otel._send import Target, prepare, shown
from rl_otel._ship import MetricsWire, Outlet, Wire, metrics_target_of, target_of

_NOWHERE: Final = (
    "rl_otel: metrics%s go nowhere: the endpoint that is set is for spans alone. OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, "
    "or OTEL_EXPORTER_OTLP_ENDPOINT for both, sends them; RL_OTEL_RUN_DIR keeps them in the run folder; "
    "OTEL_METRICS_EXPORTER=none makes none"
)

#: Who gives one of these knows how to send.
_WAYS_OUT: Final = frozenset({"endpoint", "exporter", "headers"})

_heard: str | None = None  # what was left to this process, once that was looked at


def configure(
    service_name: str | None = None,
    *,
    endpoint: str | None = None,
    protocol: str | None = None,
    headers: Mapping[str, str] | None = None,
    run_dir: str | Path | None = None,
    run_id: str | None = None,
    resource: Mapping[str, Any] | None = None,
    exporter: Any = None,
    trace_budget: int | None = None,
    gpu_all: bool | None = None,
    text: bool | None = None,
) -> None:
    """Begin to record; until then, and with `OTEL_SDK_DISABLED=true`, every call of rl_otel is a no-op.

    What is not given comes from the environment (`docs/environment.md`), else from defaults. A second call changes
    nothing.

    Args:
        service_name: name of the run's service in the back end.
        endpoint: where spans are sent, in any spelling; without one they stay in the run folder.
        protocol: `http/protobuf`, `grpc` or `http/json`.
        headers: sent with each request.
        run_dir: folder of the run folders; default `./rl-otel-runs`, with an endpoint a temporary one.
        run_id: name of the run, the same in all its processes.
        resource: more attributes of the resource.
        exporter: an OpenTelemetry `SpanExporter` that takes the place of the endpoint.
        trace_budget: how many spans of one step are sent at most.
        gpu_all: whether every GPU of the node is watched, not only those that this process uses.
        text: whether prompts, completions, observations and actions are recorded.

    Raises:
        ValueError: an argument is wrong.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    config = Config.load(**given)
    if endpoint is not None:
        target_of(config)
    begin(_joining(config, given))


def begin(config: Config) -> None:
    """Begin to record with these settings, unless they say not to, or it has begun before."""
    if config.disabled:
        say_once("disabled", "rl_otel: OTEL_SDK_DISABLED is set: nothing is recorded", level=logging.INFO)
        return
    try:
        check_names()
        runtime = _runtime.configure(Outlets(_outlet, _metrics_outlet), config)
        if runtime is not None:
            from rl_otel import _bridge  # the SDK takes long to import: only who records pays for it

            _bridge.join(runtime)
    except Exception as error:
        swallow("configure()", error)


def begin_as_told() -> Runtime | None:
    """Begin to record as the process has told that started this one, and return with what; None where none has.

    Only where nobody has called `configure()` yet: what was shut down stays so.
    """
    global _heard
    told = variable(VARIABLE)
    if _runtime.begun or told is None or told == _heard:
        return _runtime.active
    try:
        left = inherited(socket.gethostname())
        if left is not None:
            begin(_inheriting(left, {}))
        _heard = told
    except Exception as error:
        swallow("what RL_OTEL_PARENT says", error)
    return _runtime.active


def _joining(config: Config, given: Mapping[str, Any]) -> Config:
    """Return the settings of a process that configures itself: those of the run it joins, where it says nothing."""
    try:
        left = identify(config).parent
        return config if left is None else _inheriting(left, given)
    except Exception as error:
        swallow("what RL_OTEL_PARENT says", error)
        return config


def _inheriting(left: Inherited, given: Mapping[str, Any]) -> Config:
    """Return the settings of a process that was started in a run, with these arguments of its own."""
    config = Config.inheriting(left.settings, given)
    return config if left.sends or given.keys() & _WAYS_OUT else replace(config, sending=False)


def _outlet(runtime: Runtime) -> Outlet | None:
    """Return where this process's spans go, None for the run folder alone."""
    if not runtime.config.sends:
        return None
    try:
        return _way_out(runtime.config)
    except Exception as error:  # an endpoint of the environment, or a broken part of OpenTelemetry
        pass_on(error)
        say("endpoint", "rl_otel: nothing is sent, spans stay in %s: %s", runtime.folder.shown, error)
        return None


def _way_out(config: Config) -> Outlet:
    if config.exporter is not None:
        from rl_otel import _bridge

        return _bridge.SdkOutlet(config.exporter)
    target = _prepared(target_of(config), config.endpoint)
    return Wire(target, config.timeout)


def _metrics_outlet(runtime: Runtime) -> _metrics.Outlet | None:
    """Return where this process's metrics go, None where nobody wants them."""
    config = runtime.config
    if not config.metrics:
        return None
    nowhere = config.metrics_endpoint is None and runtime.folder.passing
    if nowhere and not _is_taken_by_host(config):
        return None
    if not _metrics.prepare():
        return None
    if nowhere:
        return _metrics.Nowhere()
    shared = config.metrics_endpoint == config.endpoint
    if config.metrics_endpoint is None:
        return _metrics.File(runtime.journal.base)
    try:
        target = _prepared(metrics_target_of(config), config.metrics_endpoint)
        return MetricsWire(target, shared=shared)
    except Exception as error:  # an endpoint of the environment
        pass_on(error)
        say("endpoint" if shared else "metrics endpoint", "rl_otel: no metrics are sent: %s", error)
        return None


def _is_taken_by_host(config: Config) -> bool:
    """Whether a provider of the host takes metrics that have no way of their own; says which go nowhere."""
    try:
        taken = _metrics.provider_of_host() is not None
    except Exception as error:  # a broken OpenTelemetry
        pass_on(error)
        taken = False
    if config.endpoint is not None:
        say_once("metrics nowhere", _NOWHERE, " of calls" if taken else "")
    return taken


def _prepared(target: Target, endpoint: str | None) -> Target:
    prepare(target)
    for note in target.notes:
        say(f"endpoint {note}", "rl_otel: endpoint %s: %s", shown(endpoint or ""), note)
    return target
