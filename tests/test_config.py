"""Where settings come from, and what a wrong one does."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rl_otel._config import KNOBS, Config

DOCS = Path(__file__).parent.parent / "docs" / "environment.md"


class Mute:
    """What cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError

    __fspath__ = __repr__


WRONG_ARGUMENTS: list[tuple[str, Any]] = [
    ("run_dir", Mute()),
    ("run_dir", "a\0b"),
    ("run_dir", "half \ud83d an emoji"),
    ("run_dir", "~nobody-of-that-name/runs"),
    ("trace_budget", 10**30),
    ("timeout", 1e300),
    ("timeout", 10**400),
    ("service_name", ""),
    ("service_name", 3),
    ("endpoint", " "),
    ("protocol", "http"),
    ("headers", ["authorization"]),
    ("headers", {"authorization": "a\r\nb"}),
    ("timeout", 0),
    ("timeout", float("nan")),
    ("timeout", True),
    ("run_dir", 1),
    ("run_id", b"x"),
    ("resource", {"a": object()}),
    ("resource", {"a": [object()]}),
    ("exporter", "console"),
    ("trace_budget", 0),
    ("trace_budget", 1.5),
    ("sampler", "sometimes"),
    ("sampler_ratio", 1.1),
    ("restart", -1),
    ("text", "yes"),
]

WRONG_VARIABLES = [
    ("RL_OTEL_RUN_DIR", "~nobody-of-that-name/runs"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "~nobody-of-that-name/ca.pem"),
    ("OTEL_BSP_SCHEDULE_DELAY", "1e300"),
    ("OTEL_BSP_SCHEDULE_DELAY", "86400001"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "1e300"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "inf"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9" * 5000),
    ("RL_OTEL_RESTART", "99999999999"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "thrift"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "authorization"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
    ("OTEL_EXPORTER_OTLP_INSECURE", "maybe"),
    ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b"),
    ("OTEL_SDK_DISABLED", "perhaps"),
    ("OTEL_TRACES_EXPORTER", "console"),
    ("OTEL_TRACES_EXPORTER", "otlp,zipkin"),
    ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
    ("OTEL_METRICS_EXPORTER", "prometheus"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes"),
    ("OTEL_METRICS_EXEMPLAR_FILTER", "slow"),
    ("OTEL_TRACES_SAMPLER_ARG", "nan"),
    ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
    ("RL_OTEL_RESTART", "first"),
    ("RL_OTEL_PRINT", "loud"),
    ("RL_OTEL_SERVICES", "two"),
    ("RL_OTEL_TEXT", "2"),
    ("RL_OTEL_GPU_PEAK", "sample"),
    ("RL_OTEL_GPU_ALL", "all"),
    ("RL_OTEL_TRACE_BUDGET", "1e4"),
]

READ: list[tuple[str, str, str, Any]] = [
    ("OTEL_SERVICE_NAME", "grpo", "service_name", "grpo"),
    ("OTEL_RESOURCE_ATTRIBUTES", "a=1, b = x%20y%2C ,", "resource", {"a": "1", "b": "x y,"}),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317", "endpoint", "h:4317"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "GRPC", "protocol", "grpc"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a=b", "headers", {"Authorization": "Bearer a=b"}),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "2.5", "timeout", 2.5),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "10000", "timeout", 10.0),
    ("OTEL_BSP_EXPORT_TIMEOUT", "500", "timeout", 0.5),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "compression", "gzip"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/tls/ca.pem", "certificate", Path("/tls/ca.pem")),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317", "metrics_endpoint", "h:4317"),
    ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "h:4317", "metrics_endpoint", "h:4317"),
    ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc", "metrics_protocol", "grpc"),
    ("OTEL_METRIC_EXPORT_TIMEOUT", "500", "metrics_timeout", 0.5),
    ("OTEL_METRIC_EXPORT_INTERVAL", "60000", "metrics_interval", 60.0),
    ("OTEL_METRICS_EXPORTER", "none", "metrics", False),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "DELTA", "metrics_temporality", "delta"),
    ("OTEL_METRICS_EXEMPLAR_FILTER", "always_off", "metrics_exemplars", "always_off"),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/tls/key.pem", "client_key", Path("/tls/key.pem")),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/tls/c.pem", "client_certificate", Path("/tls/c.pem")),
    ("OTEL_EXPORTER_OTLP_INSECURE", "true", "insecure", True),
    ("OTEL_TRACES_EXPORTER", "none", "sending", False),
    ("OTEL_SDK_DISABLED", "TRUE", "disabled", True),
    ("OTEL_TRACES_SAMPLER", "always_off", "sampler", "always_off"),
    ("OTEL_BSP_SCHEDULE_DELAY", "250", "schedule_delay", 0.25),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "64", "batch_size", 64),
    ("RL_OTEL_RUN_DIR", "~/runs", "run_dir", Path.home() / "runs"),
    ("RL_OTEL_RUN_ID", "r1", "run_id", "r1"),
    ("RL_OTEL_RESTART", "0", "restart", 0),
    ("RL_OTEL_ROLE", "generator", "role", "generator"),
    ("RL_OTEL_PRINT", "0", "print", False),
    ("RL_OTEL_SERVICES", "one", "services_one", True),
    ("RL_OTEL_TEXT", "1", "text", True),
    ("RL_OTEL_GPU_PEAK", "Observe", "gpu_peak", "observe"),
    ("RL_OTEL_GPU_ALL", "1", "gpu_all", True),
    ("RL_OTEL_TRACE_BUDGET", "500", "trace_budget", 500),
]


@pytest.mark.parametrize(("name", "value"), WRONG_ARGUMENTS)
def test_a_wrong_argument_raises_and_is_named(name: str, value: Any) -> None:
    """A typing error in the code is found at once, with what would be right."""
    with pytest.raises(ValueError, match=rf"^configure\({name}=\.\.\.\) must be \S+"):
        Config.load(**{name: value})


@pytest.mark.parametrize(("name", "value"), WRONG_VARIABLES)
def test_a_wrong_variable_is_ignored_with_one_line(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong value in the environment never stops a run: the default holds, and one line names the variable."""
    monkeypatch.setenv(name, value)
    assert Config.load() == Config()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("rl_otel", logging.WARNING)
    assert record.getMessage().startswith(f"rl_otel: ignoring {name}: it must be ")


@pytest.mark.parametrize(("variable", "value", "field", "expected"), READ)
def test_each_variable_is_read(
    variable: str, value: str, field: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable becomes a value of the right type, and an argument wins over it."""
    monkeypatch.setenv(variable, value)
    found = getattr(Config.load(), field)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("knob", [knob for knob in KNOBS if knob.variables], ids=lambda knob: str(knob.field))
def test_an_empty_variable_counts_as_unset(
    knob: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`export NAME=` is how scripts unset a variable."""
    for name in knob.variables:
        monkeypatch.setenv(name, " ")
    assert Config.load() == Config()
    assert not caplog.records


def test_an_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument over environment over default."""
    monkeypatch.setenv("RL_OTEL_TRACE_BUDGET", "500")
    assert Config.load(trace_budget=7).trace_budget == 7
    assert Config.load(trace_budget=None).trace_budget == 500


def test_the_variable_for_traces_wins_over_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each OTEL_EXPORTER_OTLP_ variable has a form for traces alone; a wrong one leaves the general one in force."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json")
    assert Config.load().protocol == "http/json"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "smoke")
    assert Config.load().protocol == "grpc"


def test_only_the_traces_endpoint_of_the_environment_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is taken as it is, every other endpoint gets its path."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318")
    assert not Config.load().endpoint_exact
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:4318/x")
    assert (Config.load().endpoint, Config.load().endpoint_exact) == ("http://b:4318/x", True)
    assert not Config.load(endpoint="http://c:4318").endpoint_exact


def test_metrics_go_where_spans_go_unless_they_are_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument and a general variable hold for both signals, a variable for one signal for that alone."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/x")
    assert (Config.load().endpoint, Config.load().metrics_endpoint) == ("http://t/x", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m/y")
    config = Config.load(headers={"a": "b"})
    assert (config.metrics_endpoint, config.metrics_endpoint_exact) == ("http://m/y", True)
    assert config.headers == config.metrics_headers == {"a": "b"}
    config = Config.load(endpoint="http://c", protocol="http/json")
    assert (config.endpoint, config.metrics_endpoint) == ("http://c", "http://c")
    assert (config.protocol, config.metrics_protocol, config.metrics_endpoint_exact) == ("http/json",) * 2 + (False,)


def test_headers_appear_in_no_text(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Headers carry keys: neither repr nor an error nor a log line shows them."""
    assert "hunter2" not in repr(Config.load(headers={"authorization": "hunter2"}))
    with pytest.raises(ValueError, match="headers") as raised:
        Config.load(headers={"authorization": "hunter2\n"})
    assert "hunter2" not in str(raised.value)
    assert raised.value.__suppress_context__
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "hunter2")
    assert Config.load().headers == {}
    assert "hunter2" not in caplog.text
    assert "OTEL_EXPORTER_OTLP_HEADERS" in caplog.text


def test_an_endpoint_appears_in_no_text() -> None:
    """An endpoint may hold a password or a key: neither repr nor an error shows one."""
    assert "hunter2" not in repr(Config.load(endpoint="http://me:hunter2@host?api-key=hunter2"))
    with pytest.raises(ValueError, match="endpoint") as raised:
        Config.load(endpoint=b"http://me:hunter2@host")
    assert "hunter2" not in str(raised.value)


def test_a_certificate_is_found_after_a_change_of_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is that of the moment of `configure()`, though the file is opened later."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem")
    assert Config.load().certificate == Path("ca.pem").absolute()


def test_resource_attributes_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says stays where the argument says nothing else."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=a,tier=1")
    assert Config.load(resource={"tier": 2, "gpus": ["a", "b"]}).resource == {
        "team": "a",
        "tier": 2,
        "gpus": ["a", "b"],
    }


def test_the_service_name_may_stand_among_the_resource_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`service.name` of the resource names the service, unless OTEL_SERVICE_NAME or the argument does."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=a")
    assert Config.load().service_name == "a"
    assert Config.load(resource={"service.name": "b"}).service_name == "b"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "c")
    assert Config.load().service_name == "c"
    assert Config.load(service_name="d").service_name == "d"


@pytest.mark.parametrize(
    ("sampler", "argument", "share"),
    [
        ("", "0.25", 1.0),
        ("always_on", "0.25", 1.0),
        ("parentbased_always_off", "0.25", 0.0),
        ("traceidratio", "0.25", 0.25),
        ("parentbased_traceidratio", "", 1.0),
    ],
)
def test_the_sampler_is_a_share_of_the_steps(
    sampler: str, argument: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is a root: `parentbased_` makes no difference, and the argument counts for a ratio only."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    assert Config.load().sampled == share


def test_no_default_is_shared() -> None:
    """Two configurations have mappings of their own."""
    assert Config().headers is not Config().headers


def test_the_list_of_settings_grows_only_on_purpose() -> None:
    """A new setting is a decision: this list and `docs/environment.md` say so."""
    assert [knob.field for knob in KNOBS] == [
        "service_name", "resource", "endpoint", "protocol", "headers", "timeout", "compression", "certificate",
        "client_key", "client_certificate", "insecure", "exporter", "sending", "disabled", "sampler", "sampler_ratio",
        "schedule_delay", "batch_size", "trace_budget", "run_dir", "run_id", "restart", "role", "print",
        "services_one", "gpu_peak", "gpu_all", "metrics", "metrics_interval", "metrics_temporality",
        "metrics_exemplars", "metrics_endpoint", "metrics_protocol", "metrics_headers", "metrics_timeout",
        "metrics_compression", "metrics_certificate", "metrics_client_key", "metrics_client_certificate",
        "metrics_insecure", "text",
    ]  # fmt: skip


#: Defaults that a variable spells in another way than Python.
SPELLED = {
    "disabled": "false", "schedule_delay": "1000", "sending": "otlp", "services_one": "three", "text": "0",
    "metrics": "otlp", "metrics_interval": "10000", "gpu_all": "0",
}  # fmt: skip


def test_the_documentation_has_each_variable_default_and_sentence() -> None:
    """The table of `docs/environment.md` is the table of the code."""
    assert "\n".join(table()) in DOCS.read_text(), "docs/environment.md should hold:\n" + "\n".join(table())


def test_a_default_as_documented_is_read_as_the_default() -> None:
    """Setting a variable to its documented default changes nothing."""
    for knob in KNOBS:
        if knob.variables and knob.default not in (None, {}):
            kind = next(iter(knob.variables.values()))
            assert kind.read(SPELLED.get(knob.field, str(knob.default))) == knob.default


def table() -> list[str]:
    """Return the settings that have variables, as a Markdown table."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for knob in KNOBS:
        if knob.variables:
            names = ", ".join(f"`{name}`" for name in knob.variables)
            default = "" if knob.default in (None, {}) else f"`{SPELLED.get(knob.field, knob.default)}`"
            rows.append(f"| {names} | {default} | {knob.doc} |")
    return rows
