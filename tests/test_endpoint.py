"""Any spelling of an endpoint that can only be meant one way is understood, and what was repaired is said (C35)."""

from __future__ import annotations

import traceback

import pytest

from rl_otel._send import Fault, Outcome, State, Target, diagnose, proxy_for, resolve, shown


@pytest.mark.parametrize(
    "endpoint",
    ["", "  ", "http://", "://", ":4318", "http://host:99999", "host:0", "host:port", "two words:4318", "[::1", "//h"],
)
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    """An endpoint without a host or with an impossible port is named in the error, with the way to write it."""
    with pytest.raises(ValueError, match=r"is no address; write it as http://host:4318") as refusal:
        resolve(endpoint)
    assert repr(endpoint.strip()) in str(refusal.value) or repr(endpoint) in str(refusal.value)


def test_scheme_that_nobody_knows_is_refused() -> None:
    """A scheme that is neither http nor grpc is named."""
    with pytest.raises(ValueError, match="ftp:// is not known; write http:// or https://"):
        resolve("ftp://host:4318")


def test_protocol_that_nobody_knows_is_refused() -> None:
    """A protocol that OTLP does not have is answered with those it has."""
    with pytest.raises(ValueError, match="'http' is not known; write one of grpc, http/protobuf, http/json"):
        resolve("http://host:4318", "http")


def test_error_shows_no_password() -> None:
    """The password in an address that cannot be read stays out of the message."""
    with pytest.raises(ValueError, match=r"\*\*\*@") as refusal:
        resolve("http://me:secret@host:99999")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("http://host:4318/", "http://host:4318/v1/traces"),
        ("http://host:4318/v1/traces", "http://host:4318/v1/traces"),
        ("http://host:4318/v1/traces/", "http://host:4318/v1/traces"),
        ("http://host:4318/v1/traces/v1/traces", "http://host:4318/v1/traces"),
        ("http://host:4318//v1//traces", "http://host:4318/v1/traces"),
        ("http://host:4318/v1/metrics", "http://host:4318/v1/traces"),
        ("http://host:4318/v1", "http://host:4318/v1/traces"),
        ("host:4318", "http://host:4318/v1/traces"),
        ("host:4318/v1/traces", "http://host:4318/v1/traces"),
        ("host", "http://host:4318/v1/traces"),
        ("localhost:4318", "http://localhost:4318/v1/traces"),
        (" http://host:4318 ", "http://host:4318/v1/traces"),
        ("HTTP://Host:4318", "http://host:4318/v1/traces"),
        ("http:/host:4318", "http://host:4318/v1/traces"),
        ("http//host:4318", "http://host:4318/v1/traces"),
        ("http:host:4318", "http://host:4318/v1/traces"),
        ("httpbin:4318", "http://httpbin:4318/v1/traces"),
        ("https://host", "https://host:443/v1/traces"),
        ("host:443", "https://host:443/v1/traces"),
        ("http://host", "http://host:80/v1/traces"),
        ("https://gateway/otlp", "https://gateway:443/otlp/v1/traces"),
        ("https://gateway/api/public/otel/v1/traces", "https://gateway:443/api/public/otel/v1/traces"),
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ("[::1]:4318", "http://[::1]:4318/v1/traces"),
        ("fe80::1", "http://[fe80::1]:4318/v1/traces"),
    ],
)
def test_spelling_leads_to_the_url_that_is_meant(endpoint: str, url: str) -> None:
    """A base or full URL, with or without scheme, port and slash, posts to the traces path once."""
    target = resolve(endpoint)
    assert (target.url, target.protocol) == (url, "http/protobuf")


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("http://host:4318/custom", "/custom"),
        ("http://host:4318/v1/traces", "/v1/traces"),
        ("http://host:4318/", "/"),
        ("http://host:4318", "/v1/traces"),
        ("http://host:4318/v1/traces/v1/traces", "/v1/traces"),
    ],
)
def test_endpoint_for_traces_is_used_as_it_is(endpoint: str, path: str) -> None:
    """What OTEL_EXPORTER_OTLP_TRACES_ENDPOINT says gets no path of ours, unless it has none at all or one twice."""
    assert resolve(endpoint, as_is=True).path == path


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://host:4317", "http://host:4317"),
        ("host:4317", "http://host:4317"),
        ("https://host:4317/", "https://host:4317"),
        ("grpc://host", "http://host:4317"),
        ("grpcs://host", "https://host:443"),
        ("[::1]:4317", "http://[::1]:4317"),
    ],
)
def test_grpc_is_taken_where_port_or_scheme_say_so(endpoint: str, url: str) -> None:
    """Without a protocol the port of OTLP over grpc means grpc."""
    target = resolve(endpoint)
    assert (target.url, target.protocol) == (url, "grpc")


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [("http://host:4317", "http/protobuf"), ("http://host:4317", "http/json"), ("http://host:4318", "grpc")],
)
def test_protocol_that_was_asked_for_is_tried_on_any_port(endpoint: str, protocol: str) -> None:
    """An explicit protocol wins over what the port suggests."""
    assert resolve(endpoint, protocol).protocol == protocol


def test_path_to_the_grpc_port_means_http() -> None:
    """A full URL for http is believed even on the other port."""
    assert resolve("http://host:4317/v1/traces").protocol == "http/protobuf"


@pytest.mark.parametrize(
    ("endpoint", "note"),
    [
        ("host:4318", "without a scheme, http:// is used"),
        ("host:443", "without a scheme, https:// is used"),
        ("http:/host:4318", "http:/ was read as http://"),
        ("http://host:4318/v1/traces/v1/traces", "the path /v1/traces/v1/traces was read as /v1/traces"),
        ("h:4317/v1/traces", "without a scheme, http:// is used"),
        ("http://host:4318", None),
        ("http://host:4318/v1/traces/", None),
    ],
)  # fmt: skip
def test_repairs_are_said_and_nothing_else(endpoint: str, note: str | None) -> None:
    """What was understood otherwise than written is in the notes; a correct endpoint has none."""
    assert resolve(endpoint).notes == (() if note is None else (note,))


@pytest.mark.parametrize(
    ("endpoint", "as_is", "notes"),
    [
        ("http://host:4318/v1/traces", False, ()),
        ("http://host:4318/otlp/v1/traces/", False, ()),
        ("http://host:4318/v1/traces", True, ("the path /v1/traces was read as /v1/metrics",)),
        ("http://host:4318/v1/logs", False, ("the path /v1/logs was read as /v1/metrics",)),
    ],
)
def test_a_path_for_traces_of_both_signals_is_not_said(endpoint: str, as_is: bool, notes: tuple[str, ...]) -> None:
    """Metrics go beside the traces without a word; an endpoint for metrics alone with that path gets one."""
    target = resolve(endpoint, signal="metrics", as_is=as_is)
    assert target.path.endswith("/v1/metrics")
    assert target.notes == notes


def test_grpc_taken_from_the_port_is_said() -> None:
    """Whoever meant http on that port reads how to say so."""
    assert resolve("http://host:4317").notes == (
        "port 4317 is OTLP's port for grpc, so grpc is used; for http set protocol='http/protobuf'",
    )


def test_endpoint_for_traces_without_a_path_is_said() -> None:
    """The path that was missing is named."""
    assert resolve("http://host:4318", as_is=True).notes == (
        "an endpoint for traces needs its path: /v1/traces was appended",
    )


@pytest.mark.parametrize(
    ("endpoint", "insecure", "secure"),
    [("h:4317", None, False), ("h:4317", True, False), ("h:4317", False, True), ("https://h:4317", True, True)],
)
def test_insecure_counts_only_without_a_scheme(endpoint: str, insecure: bool | None, secure: bool) -> None:
    """OTEL_EXPORTER_OTLP_INSECURE decides for a bare host and never against a scheme."""
    assert resolve(endpoint, "grpc", insecure=insecure).secure is secure


def test_user_and_password_become_a_header() -> None:
    """Credentials in the URL are sent as basic authorization and never shown; a header of the same name wins."""
    target = resolve("https://me:p%40ss@host/otlp?region=eu")
    assert dict(target.headers) == {"Authorization": "Basic bWU6cEBzcw=="}
    assert (target.path, target.url) == ("/otlp/v1/traces?region=eu", "https://host:443/otlp/v1/traces")
    assert "bWU6" not in repr(target)
    assert dict(resolve("http://me:p@host", headers={"authorization": "x"}).headers) == {"authorization": "x"}


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("http://host:4318/otlp", "http://host:4318/otlp"),
        ("http://me:s3cret@host:4318", "http://***@host:4318"),
        ("me:s3cret@host:4318", "***@host:4318"),
        ("http://me:s3/c?r#e@t@host", "http://***@host"),
        ("https://host/otlp?api-key=s3cret", "https://host/otlp?***"),
        ("host#s3cret", "host?***"),
    ],
)
def test_an_endpoint_is_shown_without_its_secrets(endpoint: str, told: str) -> None:
    """What comes before the @ and what comes behind the ? may be a key."""
    assert shown(endpoint) == told


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://me:s3cret@host",
        "http://me:s3cret@",
        "http://me:s3cret@[host",
        "http://host/a b?api-key=s3cret",
        "http://host?api-key=s3cret\x1b",
    ],
)
def test_no_error_shows_a_secret(endpoint: str) -> None:
    """The traceback that a wrong endpoint ends in may be logged by anyone."""
    with pytest.raises(ValueError, match="endpoint") as raised:
        resolve(endpoint)
    error = raised.value
    assert "s3cret" not in "".join(traceback.format_exception(type(error), error, error.__traceback__))


# --- Proxies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "secure", "environment", "proxy"),
    [
        ("h", False, {}, None),
        ("h", False, {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("h", True, {"HTTP_PROXY": "http://p:1"}, None),
        ("h", True, {"https_proxy": "http://p:2"}, "http://p:2"),
        ("h", False, {"HTTP_PROXY": "http://p:1", "http_proxy": "http://p:3"}, "http://p:3"),
        ("h", True, {"ALL_PROXY": "http://p:4"}, "http://p:4"),
        ("h", False, {"http_proxy": "", "HTTP_PROXY": ""}, None),
        ("h", False, {"http_proxy": "http://p:1", "no_proxy": "*"}, None),
        ("a.b.c", False, {"http_proxy": "http://p:1", "no_proxy": "x, .b.c"}, None),
        ("a.b.c", False, {"http_proxy": "http://p:1", "NO_PROXY": "b.c"}, None),
        ("ab.c", False, {"http_proxy": "http://p:1", "no_proxy": "b.c"}, "http://p:1"),
        ("h", False, {"http_proxy": "http://p:1", "no_proxy": "h:4318"}, None),
        ("h", False, {"http_proxy": "http://p:1", "no_proxy": "h:99"}, "http://p:1"),
    ],
)
def test_proxy_is_the_one_the_environment_names(
    host: str, secure: bool, environment: dict[str, str], proxy: str | None
) -> None:
    """HTTP_PROXY and its kin are honoured as other exporters do."""
    assert proxy_for(host, 4318, secure, environment) == proxy


def test_resolve_finds_the_proxy_for_http_alone() -> None:
    """Grpc reads the same variables by itself."""
    proxies = {"http_proxy": "http://p:1"}
    assert resolve("http://h:4318", proxies=proxies).proxy == "http://p:1"
    assert resolve("http://h:4317", proxies=proxies).proxy is None


# --- The one line when it fails ---------------------------------------------------------------------------------------


def failure(fault: Fault, message: str) -> Outcome:
    return Outcome(State.RETRY, fault, message)


@pytest.mark.parametrize(
    ("target", "fault", "tried", "remedy"),
    [
        (
            resolve("http://h:4317", "http/protobuf"),
            Fault.PROTOCOL,
            "http/protobuf to http://h:4317/v1/traces",
            "port 4317 is OTLP's port for grpc: set protocol='grpc', or endpoint='http://h:4318'",
        ),
        (
            resolve("http://h:4318", "grpc"),
            Fault.PROTOCOL,
            "grpc to http://h:4318",
            "port 4318 is OTLP's port for http: set protocol='http/protobuf', or endpoint='http://h:4317'",
        ),
        (
            resolve("http://h:9999", "http/json"),
            Fault.PROTOCOL,
            "http/json to http://h:9999/v1/traces",
            "the receiver there speaks something else: set protocol='grpc', or take the receiver's http port",
        ),
        (
            resolve("http://h:4318/otlp"),
            Fault.PATH,
            "http/protobuf to http://h:4318/otlp/v1/traces",
            "OTLP receivers take traces at /v1/traces: try endpoint='http://h:4318'",
        ),
        (
            resolve("http://h:4318"),
            Fault.NO_RECEIVER,
            "http/protobuf to http://h:4318/v1/traces",
            "no OTLP receiver answers so; is the host right, and does it take traces there?",
        ),
        (
            resolve("http://h:4318"),
            Fault.UNREACHABLE,
            "http/protobuf to http://h:4318/v1/traces",
            "is a collector running there, and are host, port and http or https right?",
        ),
        (
            resolve("http://[::1]"),
            Fault.UNREACHABLE,
            "http/protobuf to http://[::1]:80/v1/traces",
            "no port was given: OTLP listens on 4318, so try endpoint='http://[::1]:4318'",
        ),
    ],
)
def test_line_says_what_was_tried_what_came_back_and_what_would_be_right(
    target: Target, fault: Fault, tried: str, remedy: str
) -> None:
    """A wrong endpoint is explained in one line."""
    assert diagnose(target, failure(fault, "what came back")) == f"{tried}: what came back; {remedy}"


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("endpoint", ["http://h:4318", "https://h", "http://h:4317", "grpc://h:4318", "grpcs://h:1"])
def test_every_fault_has_a_line(endpoint: str, fault: Fault) -> None:
    """No failure goes without a word on what to do, nor over more than one line."""
    line = diagnose(resolve(endpoint), failure(fault, "x"))
    assert line.startswith((f"grpc to {resolve(endpoint).url}: x; ", f"http/protobuf to {resolve(endpoint).url}: x; "))
    assert len(line.splitlines()) == 1
