"""The stack as `make stack` runs it, on ports and in a folder of its own: `with Stack(folder) as stack:`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from stack import ports, programs, running
from tests.otlp import ReceivedSpan, from_json, values
from tests.process import ROOT
from tests.stack.prometheus import Prometheus
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from typing_extensions import Self


class Stack:
    """Collector, Jaeger and Prometheus, from `with` to its end."""

    def __init__(self, data: Path, **environment: str) -> None:
        self.data = data
        self.ports = dict(zip(ports.DEFAULTS, free_ports(len(ports.DEFAULTS)), strict=True))
        self.endpoint = f"http://127.0.0.1:{self.ports['OTLP_HTTP_PORT']}"
        self.prometheus = Prometheus(f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}")
        self._environment = {name: str(port) for name, port in self.ports.items()} | environment

    def __enter__(self) -> Self:
        self.command("up")
        return self

    def __exit__(self, *_: object) -> None:
        self.command("down")

    def command(self, verb: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `python -m stack VERB`, and expect it to end well."""
        done = run(verb, f"--data={self.data}", **self._environment)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def kill(self, *names: str) -> None:
        """End services as a crash would, and return when they are gone."""
        for name in names:
            process = running.remembered(self.data)[name]
            os.kill(process.pid, signal.SIGKILL)
            until(lambda process=process: not running.lives(process))

    def jaeger(self, path: str, **query: str) -> Any:
        """Return what Jaeger's API answers; None where it has found nothing."""
        return get(f"http://127.0.0.1:{self.ports['JAEGER_PORT']}{path}", query)

    def trace(self, trace_id: str) -> dict[bytes, ReceivedSpan]:
        """Return the spans of one trace, by id."""
        answer = self.jaeger(f"/api/v3/traces/{trace_id}")
        return by_id(json.dumps(answer["result"])) if answer else {}

    def found(self, service: str, **query: str) -> set[str]:
        """Return the ids of the traces that a search finds."""
        answer = self.jaeger("/api/traces", service=service, limit="100", **query)
        return {trace["traceID"] for trace in answer["data"]}


@contextlib.contextmanager
def agent(queue: Path, gateway: str) -> Iterator[str]:
    """Run a node's collector, which sends to `gateway`; hand back its endpoint, and kill it at the end."""
    grpc, http, health = (f"127.0.0.1:{port}" for port in free_ports(3))
    listen = {"OTLP_GRPC_LISTEN": grpc, "OTLP_HTTP_LISTEN": http, "HEALTH_LISTEN": health}
    command = [programs.obtain(programs.COLLECTOR), f"--config={programs.CONFIGS / 'agent.yaml'}"]
    environment = {**os.environ, **listen, "QUEUE_DIR": str(queue), "GATEWAY_ENDPOINT": gateway}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: running.serves(running.Process(process.pid, "", f"http://{health}/")))
            yield f"http://{http}"
        finally:
            process.kill()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m stack` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "stack", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def by_id(otlp_json: str | bytes) -> dict[bytes, ReceivedSpan]:
    """Return the spans of OTLP JSON, by id; no id twice."""
    spans = [
        ReceivedSpan(span, values(resource.resource.attributes), (scope.scope.name, scope.scope.version))
        for resource in from_json(otlp_json).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    found = {span.proto.span_id: span for span in spans}
    assert len(found) == len(spans)
    return found


def get(url: str, query: Mapping[str, str]) -> Any:
    """Return the JSON at a URL; None where there is nothing."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise AssertionError(f"{error.code}: {error.read().decode()}") from error


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return numbers
