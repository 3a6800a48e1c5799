"""A real OTLP receiver: http (protobuf and JSON) and grpc, on ports of its own, which records what arrives.

In the test's process:

    with Receiver() as receiver:
        receiver.script(Answer(503, retry_after=2))
        ...                                   # send to receiver.http or receiver.grpc
        receiver.wait(spans=3)
        assert [span.name for span in receiver.spans] == ...

In a process of its own, so that its work is not the test's, and forks and kills leave it alone: `with remote() as
receiver:`, used the same way. `python -m tests.receiver` prints its ports and runs until its standard input ends.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import json_format

from tests.otlp import METRICS, REQUESTS, TRACES, ReceivedSpan, from_json, values
from tests.receiver_grpc import response, serve
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from typing_extensions import Self

#: A certificate for localhost and 127.0.0.1 that nobody trusts unless told to, and its key.
CERTIFICATE, KEY = (str(Path(__file__).parent / "tls" / name) for name in ("certificate.pem", "key.pem"))

_ROOT = Path(__file__).parent.parent


@dataclasses.dataclass
class Answer:
    """How to answer one request; by default as a receiver that takes everything."""

    status: int = 200  # of http; any other than 200 is `code` over grpc
    code: str = "UNAVAILABLE"
    text: str = ""
    retry_after: float | str | None = None  # s, or a date over http
    rejected: int = 0  # partial success
    delay: float = 0.0  # s before the answer
    drip: float = 0.0  # s between two bytes of the answer, over http
    cut: bool = False  # no answer: the connection is closed, over http
    page: str = ""  # what a server of pages answers, over http
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def accepts(self) -> bool:
        return self.status == 200 and not self.cut and not self.page


@dataclasses.dataclass
class Received:
    """One request as it arrived."""

    protocol: str
    path: str
    headers: dict[str, str]  # names in small letters; metadata over grpc
    body: bytes  # without compression
    accepted: bool
    at: float  # s, monotonic

    @property
    def signal(self) -> str:
        return METRICS if "metrics" in self.path else TRACES

    @property
    def message(self) -> Any:
        kind = REQUESTS[self.signal]
        return from_json(self.body, kind) if self.protocol == "http/json" else kind.FromString(self.body)


class Receiver:
    """Listens on 127.0.0.1 from `with` to its end; grpc from the first use of `grpc`."""

    def __init__(self, *, http_port: int = 0, grpc_port: int = 0, tls: bool = False, keep: bool = True) -> None:
        self.counts = {"requests": 0, "accepted": 0, "spans": 0}
        self.connections = 0
        self.requests: list[Received] = []
        self.exports: list[Received] = []  # of metrics, which take no answer of a script
        self.metrics_answer = Answer()
        self._keep = keep
        self._tls = tls
        self._ports = http_port, grpc_port
        self._changed = threading.Condition()
        self._answers: deque[Answer] = deque()
        self._default = Answer()
        self._grpc: grpc.Server | None = None
        self._grpc_port = 0

    def __enter__(self) -> Self:
        self._http = _HttpServer(("127.0.0.1", self._ports[0]), self, tls=self._tls)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        if self._grpc:
            self._grpc.stop(0).wait()

    @property
    def http(self) -> str:
        """The endpoint over http."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._http.server_address[1]}"

    @property
    def grpc(self) -> str:
        """The endpoint over grpc."""
        if self._grpc is None:
            self._grpc, self._grpc_port = serve(self.take, self._ports[1], (KEY, CERTIFICATE) if self._tls else None)
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._grpc_port}"

    @property
    def spans(self) -> list[ReceivedSpan]:
        """What was accepted, in order of arrival."""
        return spans_of(self.requests)

    def script(self, *answers: Answer, then: Answer | None = None) -> None:
        """Give these answers to the next requests, one each, and `then` to all that follow."""
        self._answers.extend(answers)
        self._default = then or Answer()

    def hang_up(self) -> None:
        """Close the kept http connections."""
        self._http.hang_up()

    def wait(self, *, spans: int = 0, requests: int = 0, timeout: float = PATIENCE) -> None:
        """Wait until so many spans were accepted and so many requests seen."""

        def enough() -> bool:
            return self.counts["spans"] >= spans and self.counts["requests"] >= requests

        with self._changed:
            assert self._changed.wait_for(enough, timeout), f"after {timeout} s only {self.counts} arrived"

    def wait_for_metrics(self, enough: Callable[[], bool]) -> None:
        """Wait until an export of metrics has arrived after which that is true."""
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.exports) and enough(), PATIENCE), "no such metrics arrived"

    def take(self, protocol: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Record a request and return how to answer it."""
        if "metrics" in path:
            return self._take_metrics(protocol, path, headers, body)
        with self._changed:
            answer = self._answers.popleft() if self._answers else self._default
            received = Received(protocol, path, headers, body, answer.accepts, time.monotonic())
            # Decoded here, so that what no decoder takes fails at once.
            spans = sum(len(s.spans) for r in received.message.resource_spans for s in r.scope_spans)
            self.counts["requests"] += 1
            if answer.accepts:
                self.counts["accepted"] += 1
                self.counts["spans"] += spans - answer.rejected
            if self._keep:
                self.requests.append(received)
            self._changed.notify_all()
        return answer

    def _take_metrics(self, protocol: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        answer = self.metrics_answer
        received = Received(protocol, path, headers, body, answer.accepts, time.monotonic())
        assert received.message.resource_metrics
        with self._changed:
            if self._keep:
                self.exports.append(received)
            self._changed.notify_all()
        return answer


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], receiver: Receiver, *, tls: bool) -> None:
        super().__init__(address, _Handler)
        self.receiver = receiver
        self._open: set[socket.socket] = set()
        self._tls = tls
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE, KEY)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.receiver.connections += 1
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        self.hang_up()

    def hang_up(self) -> None:
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: tests cut connections on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HttpServer

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/-/script":
            given = json.loads(body)
            self.server.receiver.script(*(Answer(**a) for a in given["answers"]), then=Answer(**given["then"]))
            return self._reply(200, b"", {})
        if not self.path.endswith(("/v1/traces", "/v1/metrics")):
            return self._reply(404, b"404 page not found\n", {"content-type": "text/plain"})
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        protocol = "http/json" if "json" in headers["content-type"] else "http/protobuf"
        return self._answer(self.server.receiver.take(protocol, self.path, headers, body), headers["content-type"])

    def do_GET(self) -> None:
        receiver = self.server.receiver
        known: dict[str, Any] = {"/-/counts": receiver.counts, "/-/requests": [_packed(r) for r in receiver.requests]}
        known["/-/exports"] = [_packed(r) for r in receiver.exports]
        self._reply(200, json.dumps(known[self.path]).encode(), {"content-type": "application/json"})

    def _answer(self, answer: Answer, content_type: str) -> None:
        time.sleep(answer.delay)
        if answer.cut:
            self.close_connection = True
            return None
        if answer.page:
            return self._reply(
                200, answer.page.encode(), {"content-type": "text/html; charset=utf-8", **answer.headers}
            )
        headers = {"content-type": content_type if answer.accepts else "text/plain", **answer.headers}
        if answer.retry_after is not None:
            headers["retry-after"] = str(answer.retry_after)
        answered = response(answer, METRICS if "metrics" in self.path else TRACES)
        body = answered.SerializeToString()
        if "json" in content_type:
            body = json_format.MessageToJson(answered).encode()
        return self._reply(answer.status, body if answer.status == 200 else answer.text.encode(), headers, answer.drip)

    def _reply(self, status: int, body: bytes, headers: dict[str, str], drip: float = 0.0) -> None:
        lines = [f"HTTP/1.1 {status} {self.responses.get(status, ('?',))[0]}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        whole = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        for piece in (whole[at : at + 1] for at in range(len(whole))) if drip else [whole]:
            self.wfile.write(piece)
            time.sleep(drip)


# --- A process of its own ---------------------------------------------------------------------------------------------


class Remote:
    """A receiver in another process."""

    def __init__(self, process: subprocess.Popen[str], ports: dict[str, int]) -> None:
        self.process = process
        self.http = f"http://127.0.0.1:{ports['http']}"
        self.grpc = f"http://127.0.0.1:{ports['grpc']}"

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._call("counts"))

    @property
    def requests(self) -> list[Received]:
        return [_unpacked(packed) for packed in self._call("requests")]

    @property
    def exports(self) -> list[Received]:
        return [_unpacked(packed) for packed in self._call("exports")]

    @property
    def spans(self) -> list[ReceivedSpan]:
        return spans_of(self.requests)

    def script(self, *answers: Answer, then: Answer | None = None) -> None:
        given = {"answers": [dataclasses.asdict(a) for a in answers], "then": dataclasses.asdict(then or Answer())}
        self._call("script", json.dumps(given).encode())

    def wait(self, *, spans: int = 0, requests: int = 0) -> None:
        def enough() -> bool:
            counts = self.counts
            return counts["spans"] >= spans and counts["requests"] >= requests

        until(enough)

    def _call(self, what: str, body: bytes | None = None) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.http}/-/{what}", body, timeout=10) as answer:
            return json.loads(answer.read() or b"null")


@contextlib.contextmanager
def remote(*, http_port: int = 0, grpc_port: int = 0, keep: bool = True) -> Iterator[Remote]:
    """Run a receiver in a process of its own; `keep=False` counts only."""
    command = [sys.executable, "-m", "tests.receiver", str(http_port), str(grpc_port), str(int(keep))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        assert process.stdout
        try:
            yield Remote(process, json.loads(process.stdout.readline()))
        finally:
            process.kill()


def _main(http_port: str = "0", grpc_port: str = "0", keep: str = "1") -> None:
    with Receiver(http_port=int(http_port), grpc_port=int(grpc_port), keep=keep == "1") as receiver:
        ports = {name: int(getattr(receiver, name).rpartition(":")[2]) for name in ("http", "grpc")}
        print(json.dumps(ports), flush=True)  # noqa: T201
        sys.stdin.read()


def _packed(received: Received) -> dict[str, Any]:
    return {**dataclasses.asdict(received), "body": base64.b64encode(received.body).decode()}


def _unpacked(packed: dict[str, Any]) -> Received:
    return Received(**{**packed, "body": base64.b64decode(packed["body"])})


# --- Ports where nobody answers ---------------------------------------------------------------------------------------

_held = contextlib.ExitStack()


def close_ports() -> None:
    """Let go of the ports: who still waits for an answer there gets none."""
    _held.close()


def dead_port() -> int:
    """Return a port of 127.0.0.1 that refuses connections until a receiver is put there; no other test gets it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    _held.enter_context(sock)
    return int(sock.getsockname()[1])


def black_hole() -> int:
    """Return a port of 127.0.0.1 that accepts connections and never answers."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=64)
    _held.enter_context(sock)
    return int(sock.getsockname()[1])


def spans_of(requests: Iterable[Received]) -> list[ReceivedSpan]:
    """Return the spans of the requests that were accepted."""
    return [
        ReceivedSpan(span, values(resource.resource.attributes), (scope.scope.name, scope.scope.version))
        for received in requests
        if received.accepted
        for resource in received.message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


if __name__ == "__main__":
    _main(*sys.argv[1:])
