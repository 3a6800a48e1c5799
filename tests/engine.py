"""An inference server in a process of its own that answers requests, and traces them, as vLLM and SGLang do.

    with engine.running(engine.VLLM, receiver.http) as server:
        ...                                   # post to f"{server.url}/v1/chat/completions"
        server.flush()                        # its spans are with the receiver now

Both read the W3C headers with OpenTelemetry's own propagator and record by its SDK, with names and attributes as in
vLLM 0.33.0 (`vllm/v1/engine/output_processor.py`) and SGLang 0.5.23 (`sglang/srt/observability/`). A server of the kind
`DEAF` knows nothing of tracing. A request with the header `x-together: N` is answered when N such are there.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VLLM, SGLANG, DEAF = "vllm", "sglang", "deaf"
TRACED = (VLLM, SGLANG)
HEADERS = ("traceparent", "tracestate")

#: s that one request may take: a hundred are under way at once.
PATIENCE = 90.0

_ROOT = Path(__file__).parent.parent


# --- In the test's process --------------------------------------------------------------------------------------------


class Engine:
    """A server that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def flush(self) -> None:
        """Have it deliver the spans that have ended."""
        self._get("flush")

    def headers(self) -> dict[str, list[list[str]]]:
        """Return what headers each request had, in small letters and with their values, by the name of the request."""
        return dict(self._get("headers"))

    def _get(self, what: str) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/-/{what}", timeout=PATIENCE) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def running(kind: str, receiver: str) -> Iterator[Engine]:
    """Run a server of that kind which sends its spans to `receiver`."""
    command = [sys.executable, "-m", "tests.engine", kind, f"{receiver}/v1/traces"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        assert process.stdout
        try:
            yield Engine(json.loads(process.stdout.readline()))
        finally:
            process.kill()


# --- In its own -------------------------------------------------------------------------------------------------------


class Times(NamedTuple):
    """When a request had come how far, in ns since the epoch."""

    arrived: int
    scheduled: int
    first_token: int
    last_token: int

    def between(self, start: str, end: str) -> float:
        """Return the s from one to another."""
        return float(getattr(self, end) - getattr(self, start)) / 1e9


class Deaf:
    """Knows nothing of tracing."""

    def __init__(self, endpoint: str) -> None:
        """Take no notice of where spans would go."""

    def request(self, name: str, headers: Mapping[str, str], times: Times) -> None:
        """Trace a request that was answered."""

    def flush(self) -> None:
        """Deliver."""


class Vllm(Deaf):
    """One span a request, made when it ends."""

    def __init__(self, endpoint: str) -> None:
        resource = Resource.create({"service.name": "vllm", "vllm.instrumenting_module_name": "vllm.llm_engine"})
        self._provider = _provider(resource, endpoint)
        self._tracer = self._provider.get_tracer("vllm.tracing.otel")

    def request(self, name: str, headers: Mapping[str, str], times: Times) -> None:
        given = {header: headers[header] for header in HEADERS if header in headers}
        span = self._tracer.start_span(
            "llm_request",
            context=TraceContextTextMapPropagator().extract(given) if given else None,
            kind=trace.SpanKind.SERVER,
            start_time=times.arrived,
        )
        span.set_attributes(
            {
                "gen_ai.latency.time_to_first_token": times.between("arrived", "first_token"),
                "gen_ai.latency.e2e": times.between("arrived", "last_token"),
                "gen_ai.latency.time_in_queue": times.between("arrived", "scheduled"),
                "gen_ai.usage.prompt_tokens": 5,
                "gen_ai.usage.completion_tokens": 7,
                "gen_ai.latency.time_in_model_prefill": times.between("scheduled", "first_token"),
                "gen_ai.latency.time_in_model_decode": times.between("first_token", "last_token"),
                "gen_ai.latency.time_in_model_inference": times.between("scheduled", "last_token"),
                "gen_ai.request.id": name,
            }
        )
        span.end()

    def flush(self) -> None:
        self._provider.force_flush()


class Sglang(Deaf):
    """A span a request, one for each thread that worked on it beneath, and its stages beneath that."""

    def __init__(self, endpoint: str) -> None:
        self._provider = _provider(Resource.create({"service.name": "sglang"}), endpoint)
        self._tracer = self._provider.get_tracer("sglang server")

    def request(self, name: str, headers: Mapping[str, str], times: Times) -> None:
        given = {header: headers[header] for header in HEADERS if header in headers}
        request = self._tracer.start_span(
            f" Req {name[:8]}",
            context=TraceContextTextMapPropagator().extract(given),
            start_time=times.arrived,
            attributes={"rid": name, "module": "sglang::request"},
        )
        scheduler = self._below(request, f"Scheduler [TP 0] (host:{'0' * 8} | pid:1)", times.arrived)
        scheduler.set_attributes({"tp_rank": 0, "host_id": "0" * 32, "pid": 1, "thread_label": "Scheduler"})
        stages = {"prefill_waiting": times[:2], "prefill_forward": times[1:3], "decode_forward": times[2:]}
        for stage, (start, end) in stages.items():
            self._below(scheduler, stage, start).end(end)
        scheduler.end(times.last_token)
        request.set_attributes(
            {
                "gen_ai.usage.prompt_tokens": 5,
                "gen_ai.usage.completion_tokens": 7,
                "gen_ai.usage.cached_tokens": 0,
                "gen_ai.request.id": name,
                "gen_ai.latency.time_to_first_token": times.between("arrived", "first_token"),
                "gen_ai.latency.e2e": times.between("arrived", "last_token"),
                "gen_ai.latency.time_in_model_decode": times.between("first_token", "last_token"),
                "gen_ai.latency.time_in_model_inference": times.between("scheduled", "last_token"),
                "gen_ai.latency.time_in_model_prefill": times.between("scheduled", "first_token"),
            }
        )
        request.end(times.last_token)

    def _below(self, parent: trace.Span, name: str, start: int) -> trace.Span:
        return self._tracer.start_span(name, context=trace.set_span_in_context(parent), start_time=start)

    def flush(self) -> None:
        self._provider.force_flush()


KINDS: dict[str, type[Deaf]] = {VLLM: Vllm, SGLANG: Sglang, DEAF: Deaf}


def _provider(resource: Resource, endpoint: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, tracing: Deaf) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tracing = tracing
        self.headers: dict[str, list[tuple[str, str]]] = {}
        self._crowd: dict[int, threading.Barrier] = {}
        self._lock = threading.Lock()

    def gather(self, together: int) -> None:
        """Wait until so many requests are there."""
        with self._lock:
            barrier = self._crowd.setdefault(together, threading.Barrier(together, timeout=PATIENCE))
        barrier.wait()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_POST(self) -> None:
        arrived = time.time_ns()
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = self.headers["x-request-id"]
        self.server.headers[name] = [(header.lower(), value) for header, value in self.headers.items()]
        self.server.gather(int(self.headers.get("x-together", "1")))
        scheduled = time.time_ns()
        times = Times(arrived, scheduled, time.time_ns(), time.time_ns())
        self.server.tracing.request(name, {key.lower(): value for key, value in self.headers.items()}, times)
        self._reply(_chat(name, asked))

    def do_GET(self) -> None:
        if self.path == "/-/flush":
            self.server.tracing.flush()
        self._reply(self.server.headers)

    def _reply(self, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _chat(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what the OpenAI route of both answers."""
    message = {"role": "assistant", "content": f"to {name}"}
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
    }


def _main(kind: str, endpoint: str) -> None:
    # What a test sets for its own process is not for the engine.
    for name in list(os.environ):
        if name.startswith(("OTEL_", "RL_OTEL_")):
            del os.environ[name]
    server = _Server(KINDS[kind](endpoint))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps(f"http://127.0.0.1:{server.server_port}"), flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    _main(*sys.argv[1:])
