"""Where to send: any spelling of an endpoint becomes one target, and what was repaired is said.

The path follows OpenTelemetry: `/v1/traces` or `/v1/metrics` is appended to a general endpoint, while one for its
signal alone is used as it is. People confuse the two, forget the scheme, paste the path twice and take one port for
the other; what can only be meant one way is understood.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from rl_otel._send.proxy import proxy_for

GRPC: Final = "grpc"
PROTOBUF: Final = "http/protobuf"
JSON: Final = "http/json"
PROTOCOLS: Final = (GRPC, PROTOBUF, JSON)

GRPC_PORT, HTTP_PORT = 4317, 4318
TRACES: Final = "traces"
METRICS: Final = "metrics"

_SCHEME: Final = re.compile(r"(https?|grpcs?)(:/+|//+|:(?=[^/\d]))", re.IGNORECASE)
_OTHER_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"^([a-z][a-z0-9+.-]*:/+)?.*@", re.IGNORECASE | re.DOTALL)
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_SIGNAL: Final = re.compile(r"(/+v1(/+(traces|metrics|logs))?)+$")


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and how."""

    protocol: str  # one of PROTOCOLS
    host: str
    port: int
    secure: bool = False
    path: str = field(default=f"/v1/{TRACES}", repr=False)  # with its query, which may hold a key; empty for grpc
    signal: str = TRACES
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may hold a token
    gzip: bool = False
    certificate: str | None = None  # files in PEM format: whom to trust,
    client_certificate: str | None = None  # and who we are
    client_key: str | None = None
    proxy: str | None = field(default=None, repr=False)  # URL, for http; it may hold a password
    notes: tuple[str, ...] = ()  # what was understood otherwise than it was written

    @property
    def authority(self) -> str:
        """Host and port as a URL has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address, without secrets."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path.partition('?')[0]}"


def resolve(
    endpoint: str,
    protocol: str | None = None,
    *,
    signal: str = TRACES,
    as_is: bool = False,
    headers: Mapping[str, str] | None = None,
    gzip: bool = False,
    certificate: str | None = None,
    client_certificate: str | None = None,
    client_key: str | None = None,
    insecure: bool | None = None,
    proxies: Mapping[str, str] | None = None,
) -> Target:
    """Return the target that `endpoint` means.

    Args:
        endpoint: A base or a full URL, with or without scheme, port and path.
        protocol: One of `PROTOCOLS`; None for http/protobuf, or grpc where scheme or port say so.
        signal: What is sent there, `traces` or `metrics`.
        as_is: Whether a path is complete, as that of `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is.
        headers: Sent with every request.
        gzip: Whether to compress requests.
        certificate: File with the authorities to trust instead of the system's.
        client_certificate: File with our own certificate.
        client_key: File with its key.
        insecure: Whether an endpoint without scheme goes without TLS; None to go by its port.
        proxies: `HTTP_PROXY` and its kin, as they are in the environment.

    Raises:
        ValueError: no address can be read from `endpoint`, or `protocol` is none that is known.
    """
    notes: list[str] = []
    scheme, url = _split(endpoint.strip(), notes)
    host, port = _host_and_port(url, endpoint)
    secure = _is_secure(scheme, port, insecure, notes)
    protocol = _protocol(protocol, scheme, port, url, notes)
    port = port or _default_port(protocol, scheme, secure)
    return Target(
        protocol=protocol,
        host=host,
        port=port,
        secure=secure,
        path="" if protocol == GRPC else _path(url, signal, as_is, notes),
        signal=signal,
        headers=_headers(url, headers or {}),
        gzip=gzip,
        certificate=certificate,
        client_certificate=client_certificate,
        client_key=client_key,
        proxy=None if protocol == GRPC else proxy_for(host, port, secure, proxies or {}),
        notes=tuple(notes),
    )


def shown(endpoint: str) -> str:
    """Return an endpoint as messages may show it: without user, password and query."""
    # A password may hold any character, so whatever comes before the last @ goes.
    return _QUERY.sub("?***", _CREDENTIALS.sub(r"\1***@", endpoint))


def _split(endpoint: str, notes: list[str]) -> tuple[str, SplitResult]:
    found = _SCHEME.match(endpoint)
    if not found:
        if other := _OTHER_SCHEME.match(endpoint):
            raise ValueError(f"endpoint {shown(endpoint)!r}: {other.group()} is not known; write http:// or https://")
        if _is_ipv6(endpoint):
            endpoint = f"[{endpoint}]"
        return "", _parsed(f"//{endpoint}", endpoint)
    scheme = found.group(1).lower()
    if found.group().lower() != f"{scheme}://":
        notes.append(f"{found.group()} was read as {scheme}://")
    return scheme, _parsed(f"//{endpoint[found.end() :]}", endpoint)


def _parsed(url: str, endpoint: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise _unreadable(endpoint) from None  # what it says may be a part of a password


def _host_and_port(url: SplitResult, endpoint: str) -> tuple[str, int | None]:
    try:
        host, port = url.hostname, url.port
    except ValueError:
        raise _unreadable(endpoint) from None
    if not host or port == 0 or re.search(r"[\s\\<>\"{}|^`]", host) or re.search(r"[\0- \x7f]", url.path + url.query):
        raise _unreadable(endpoint)
    return host, port


def _unreadable(endpoint: str) -> ValueError:
    return ValueError(f"endpoint {shown(endpoint)!r} is no address; write it as http://host:{HTTP_PORT}")


def _protocol(asked: str | None, scheme: str, port: int | None, url: SplitResult, notes: list[str]) -> str:
    if asked is not None:
        if asked not in PROTOCOLS:
            raise ValueError(f"protocol {asked!r} is not known; write one of {', '.join(PROTOCOLS)}")
        return asked
    if scheme in {"grpc", "grpcs"}:
        return GRPC
    if port == GRPC_PORT and url.path in {"", "/"}:
        notes.append(f"port {GRPC_PORT} is OTLP's port for grpc, so grpc is used; for http set protocol={PROTOBUF!r}")
        return GRPC
    return PROTOBUF


def _is_secure(scheme: str, port: int | None, insecure: bool | None, notes: list[str]) -> bool:
    if scheme:
        return scheme in {"https", "grpcs"}
    secure = port == 443 if insecure is None else not insecure
    notes.append(f"without a scheme, {'https' if secure else 'http'}:// is used")
    return secure


def _default_port(protocol: str, scheme: str, secure: bool) -> int:
    if secure:
        return 443
    if protocol == GRPC:
        return GRPC_PORT
    # A URL without a port has the one of its scheme; a bare host name is an OTLP receiver.
    return 80 if scheme == "http" else HTTP_PORT


def _path(url: SplitResult, signal: str, as_is: bool, notes: list[str]) -> str:
    end = f"/v1/{signal}"
    found = _SIGNAL.search(url.path.rstrip("/"))
    base = url.path.rstrip("/")[: found.start() if found else None].rstrip("/")
    if found:
        path, given = base + end, url.path.rstrip("/")
        # One for traces that holds for metrics too is no mistake.
        if given != path and (as_is or given != f"{base}/v1/{TRACES}"):
            notes.append(f"the path {url.path} was read as {path}")
    elif as_is and url.path:
        path = url.path
    else:
        path = base + end
        if as_is:
            notes.append(f"an endpoint for {signal} needs its path: {end} was appended")
    return f"{path}?{url.query}" if url.query else path


def _headers(url: SplitResult, headers: Mapping[str, str]) -> dict[str, str]:
    given = {name.lower() for name in headers}
    return {**headers, **{name: value for name, value in authorization(url).items() if name.lower() not in given}}


def authorization(url: SplitResult) -> dict[str, str]:
    """Return the header for user and password in a URL, if it has them."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
