"""OTLP over HTTP/1.1: one kept connection, and a deadline that holds.

http.client, because no instrumentation of OpenTelemetry wraps it: our own requests do not become spans.
"""

from __future__ import annotations

import gzip
import http.client
import io
import select
import socket
import ssl
import time
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from rl_otel._otlp import encoding_of
from rl_otel._send import answers
from rl_otel._send.endpoint import Target, authorization
from rl_otel._send.outcome import BadSetting, Outcome
from rl_otel._version import __version__

_CHUNK: Final = 16 * 1024  # bytes; a TLS record, so that the deadline is looked at between two
_LONGEST_ANSWER: Final = 64 * 1024  # bytes
_LEVEL: Final = 1  # of gzip: the CPU is the run's


class HttpSender:
    """Posts requests to one target. One thread at a time; a forked child makes its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._headers = _headers(target)
        self._connection: _Connection | None = None
        self._context: ssl.SSLContext | None = None

    def send(self, body: bytes, spans: int, timeout: float) -> Outcome:
        """Send one request and return what came of it, after `timeout` seconds at the latest; nothing is raised.

        A name look-up is the exception, for the C library sets it no limit: who must not wait calls from a thread.
        """
        deadline = time.monotonic() + timeout
        try:
            return self._post(gzip.compress(body, _LEVEL, mtime=0) if self._target.gzip else body, spans, deadline)
        except Exception as error:
            self.close()
            return answers.of_error(error)

    def close(self) -> None:
        """Close the connection; the next `send` opens one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's connection; its descriptor may be another file by now."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.sock is not None:
            connection.sock.detach()

    def _post(self, body: bytes, spans: int, deadline: float) -> Outcome:
        connection = self._connected(deadline)
        try:
            connection.request("POST", self._path(), body, self._headers)
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:
                raise
            # The receiver stopped listening; it may have said why, as for a body that is too large.
        response = connection.getresponse()
        answer = response.read(_LONGEST_ANSWER)
        if response.will_close or not response.isclosed():
            self.close()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return answers.of_http(response.status, headers, answer, spans)

    def _connected(self, deadline: float) -> _Connection:
        if self._connection is not None and self._connection.is_stale():
            self.close()
        if self._connection is None:
            if self._target.secure and self._context is None:
                self._context = _trusted(self._target)
            self._connection = _Connection(self._target, self._context)
        self._connection.deadline = deadline
        return self._connection

    def _path(self) -> str:
        # A proxy is told the whole URL, except where it only tunnels.
        target = self._target
        return f"http://{target.authority}{target.path}" if target.proxy and not target.secure else target.path


class _Connection(http.client.HTTPConnection):
    """A connection on which connecting, sending and receiving all end at `deadline`."""

    sock: socket.socket | None

    def __init__(self, target: Target, context: ssl.SSLContext | None) -> None:
        self._target = target
        self._context = context
        self.deadline = 0.0
        proxy = _proxy(target)
        super().__init__(*((proxy.hostname or "", proxy.port or 80) if proxy else (target.host, target.port)))
        self.response_class = self._response  # type: ignore[assignment]
        if proxy and context:
            self.set_tunnel(target.host, target.port, _proxy_authorization(target))

    def connect(self) -> None:
        """Open the connection, through a proxy's tunnel and with TLS where those are wanted."""
        self.sock = _dial(self.host, self.port, self.deadline)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return
        if self._target.proxy:
            self._tunnel()  # type: ignore[attr-defined]
        self.sock.settimeout(_left(self.deadline))
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._target.host)

    def send(self, data: Any) -> None:
        """Send all of `data`, looking at the deadline as it goes."""
        if self.sock is None:
            self.connect()
        assert self.sock is not None  # noqa: S101
        rest = memoryview(data)
        for at in range(0, len(rest), _CHUNK):
            self.sock.settimeout(_left(self.deadline))
            self.sock.sendall(rest[at : at + _CHUNK])

    def is_stale(self) -> bool:
        """Whether the other side has closed the connection: on one at rest there is nothing to read."""
        if self.sock is None:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def _response(self, sock: socket.socket, *arguments: Any, **options: Any) -> http.client.HTTPResponse:
        response = http.client.HTTPResponse(sock, *arguments, **options)
        response.fp.close()
        response.fp = io.BufferedReader(_Bounded(sock, self.deadline))
        return response


class _Bounded(io.RawIOBase):
    """What a socket receives until a deadline: a receiver that sends a byte a second does not outlive it."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Wait for something to read, no longer than until the deadline."""
        self._sock.settimeout(_left(self._deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


def _dial(host: str, port: int, deadline: float) -> socket.socket:
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure = OSError(f"{host} has no address")
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            # One address that swallows packets leaves time for the next.
            sock.settimeout(_left(deadline) / (len(addresses) - index))
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
    raise failure


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _headers(target: Target) -> dict[str, str]:
    fixed = {"Content-Type": encoding_of(target.protocol).CONTENT_TYPE}
    if target.gzip:
        fixed["Content-Encoding"] = "gzip"
    if target.proxy and not target.secure:
        fixed |= _proxy_authorization(target)
    taken = {name.lower() for name in fixed} | {"content-length", "host", "transfer-encoding"}
    return {
        "User-Agent": f"rl_otel/{__version__}",
        **{name: value for name, value in target.headers.items() if name.lower() not in taken},
        **fixed,
    }


def _proxy(target: Target) -> SplitResult | None:
    if not target.proxy:
        return None
    return urlsplit(target.proxy if "//" in target.proxy else f"//{target.proxy}")


def _proxy_authorization(target: Target) -> dict[str, str]:
    proxy = _proxy(target)
    return {f"Proxy-{name}": value for name, value in authorization(proxy).items()} if proxy else {}


def _trusted(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.certificate)
        if target.client_certificate:
            context.load_cert_chain(target.client_certificate, target.client_key)
    except (OSError, ssl.SSLError) as error:
        files = (target.certificate, target.client_certificate, target.client_key)
        raise BadSetting(f"{error} ({', '.join(file for file in files if file)})") from error
    return context
