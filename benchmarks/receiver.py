"""An OTLP http receiver that only acknowledges, in a process of its own: its work is nobody's figure.

It keeps the bodies as they came. Asked with GET what arrived since it was last asked, it decodes them, when nothing
is being measured any more. SIGUSR1 makes it go away, with all its connections, and come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

CALLS = ("generate", "env.step")

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"


class _Received:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.open: set[asyncio.Transport] = set()
        self._seen: set[bytes] = set()

    def counts(self) -> dict[str, int]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as Request

        taken, self.bodies = self.bodies, []
        groups = (group for body in taken for group in Request.FromString(body).resource_spans)
        spans = [span for group in groups for scope in group.scope_spans for span in scope.spans]
        attributes = [len(span.attributes) for span in spans if span.name in CALLS]
        new = {span.span_id for span in spans} - self._seen
        self._seen |= new
        return {"calls": len(attributes), "attributes": sum(attributes), "spans": len(spans), "new": len(new)}


class _Connection(asyncio.Protocol):
    def __init__(self, received: _Received) -> None:
        self._received = received
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received.open.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._received.open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head, start = bytes(self._buffer[:end]), end + 4
            length = _content_length(head)
            if len(self._buffer) < start + length:
                return
            body = bytes(self._buffer[start : start + length])
            del self._buffer[: start + length]
            self._transport.write(self._answer(head, body))

    def _answer(self, head: bytes, body: bytes) -> bytes:
        if not head.startswith(b"GET"):
            if b"/v1/metrics" not in head.partition(b"\r\n")[0]:
                self._received.bodies.append(body)
            return _OK
        counts = json.dumps(self._received.counts()).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(counts), counts)


def _content_length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0]) if found else 0


def take(endpoint: str) -> dict[str, int]:
    """Return what came since the last call: generate and env.step spans, their attributes, spans, those never seen."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(endpoint, timeout=60) as answer:
        return dict(json.loads(answer.read()))


@contextlib.contextmanager
def receiver() -> Iterator[str]:
    """Run a receiver, and give its endpoint."""
    command = [sys.executable, "-m", "benchmarks.receiver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def _serve() -> None:
    received, toggled = _Received(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, toggled.set)
    port = 0
    while True:
        server = await loop.create_server(lambda: _Connection(received), "127.0.0.1", port)
        if not port:
            port = server.sockets[0].getsockname()[1]
            print(port, flush=True)
        await _next(toggled)
        server.close()
        for transport in list(received.open):
            transport.abort()
        await _next(toggled)


async def _next(event: asyncio.Event) -> None:
    await event.wait()
    event.clear()


if __name__ == "__main__":
    asyncio.run(_serve())
