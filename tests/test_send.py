"""One attempt to send, against real receivers, and where nobody answers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from rl_otel._send import Fault, State
from tests.receiver import CERTIFICATE, Answer, Receiver, black_hole, dead_port, remote
from tests.sending import HTTP, PROTOCOLS, body, endpoint, sending, sent
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE = 4.0  # s that a loaded machine may be late


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- Nobody there -----------------------------------------------------------------------------------------------------


def test_dead_port_is_tried_again_later(protocol: str) -> None:
    """A refused connection is known at once and no reason to give a span up."""
    started = time.monotonic()
    outcome = sent(f"http://127.0.0.1:{dead_port()}", protocol)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.UNREACHABLE)
    assert "refused" in outcome.message
    assert time.monotonic() - started < GRACE  # less than the 5 s that it may take


def test_black_hole_costs_the_timeout_and_no_more(protocol: str) -> None:
    """A port that accepts and never answers holds the sender for as long as it allowed."""
    started = time.monotonic()
    outcome = sent(f"http://127.0.0.1:{black_hole()}", protocol, timeout=0.2)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.TIMEOUT)
    assert 0.15 < time.monotonic() - started < 0.2 + GRACE


@pytest.mark.parametrize("protocol", HTTP)
@pytest.mark.parametrize("tls", [False, True])
def test_an_answer_of_a_byte_at_a_time_does_not_outlive_the_timeout(protocol: str, tls: bool) -> None:
    """The timeout bounds the whole attempt, not each read."""
    with Receiver(tls=tls) as receiver:
        receiver.script(Answer(drip=0.1))
        started = time.monotonic()
        outcome = sent(receiver.http, protocol, timeout=0.2, certificate=CERTIFICATE)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.TIMEOUT)
    assert time.monotonic() - started < 0.2 + GRACE


@pytest.mark.parametrize("protocol", HTTP)
def test_receiver_that_does_not_read_does_not_outlive_the_timeout(protocol: str) -> None:
    """A request that does not fit into the buffers on the way is given up in time."""
    started = time.monotonic()
    with sending(f"http://127.0.0.1:{black_hole()}", protocol) as sender:
        outcome = sender.send(bytes(32 << 20), 1, 0.2)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.TIMEOUT)
    assert time.monotonic() - started < 0.2 + GRACE


def test_timeout_of_nothing_gives_up_at_once(receiver: Receiver, protocol: str) -> None:
    """Without time left there is an outcome all the same."""
    assert sent(endpoint(receiver, protocol), protocol, timeout=0.0).fault is Fault.TIMEOUT


def test_unknown_host_is_said(protocol: str) -> None:
    """A name that does not exist is told from a host that does not answer."""
    outcome = sent("http://no-such-host.invalid:1234", protocol)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.UNKNOWN_HOST)


@pytest.mark.parametrize(("asked", "there"), [("grpc", "http"), ("http/protobuf", "grpc"), ("http/json", "grpc")])
def test_other_protocol_at_that_port_is_recognised(receiver: Receiver, asked: str, there: str) -> None:
    """Http at a grpc port, and grpc at an http port, is a fault of the address and not of the spans."""
    outcome = sent(getattr(receiver, there), asked)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.PROTOCOL)
    assert outcome.fault.of_address
    assert outcome.message.isprintable()


# --- What is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gzip", [False, True])
def test_receiver_gets_what_was_sent(receiver: Receiver, protocol: str, gzip: bool) -> None:
    """Spans, headers and the content's type and compression arrive."""
    options = {"gzip": gzip, "headers": {"X-Token": "abc", "content-type": "text/wrong"}}
    if protocol == "grpc":
        del options["headers"]["content-type"]  # type: ignore[attr-defined]
    assert sent(endpoint(receiver, protocol), protocol, **options).ok
    (request,) = receiver.requests
    assert [span.name for span in receiver.spans] == ["s0", "s1", "s2"]
    assert request.protocol == protocol
    assert request.headers["x-token"] == "abc"
    assert "rl_otel/" in request.headers["user-agent"]
    if protocol != "grpc":
        assert request.path == "/v1/traces"
        assert request.headers.get("content-encoding") == ("gzip" if gzip else None)
        kind = {"http/json": "application/json", "http/protobuf": "application/x-protobuf"}[protocol]
        assert request.headers["content-type"] == kind


@pytest.mark.parametrize("protocol", HTTP)
def test_connection_is_kept_and_renewed(protocol: str) -> None:
    """Requests share a connection; one that the receiver closed meanwhile is replaced without a failed attempt."""
    with Receiver() as receiver, sending(receiver.http, protocol) as sender:
        assert all(sender.send(body(protocol), 3, 5.0).ok for _ in range(3))
        assert receiver.connections == 1
        receiver.hang_up()
        assert all(sender.send(body(protocol), 3, 5.0).ok for _ in range(2))
        assert receiver.connections == 2


def test_outage_is_survived_by_the_same_sender(protocol: str) -> None:
    """A receiver that dies and comes back on its port gets the next request."""
    ports = {"http_port": dead_port(), "grpc_port": dead_port()}
    with remote(**ports) as first, sending(endpoint(first, protocol), protocol) as sender:
        assert sender.send(body(protocol), 3, PATIENCE).ok
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        assert sender.send(body(protocol), 3, PATIENCE).state is State.RETRY
        with remote(**ports) as second:
            until(lambda: sender.send(body(protocol), 3, PATIENCE).ok)
            assert second.counts == {"requests": 1, "accepted": 1, "spans": 3}


def test_closed_sender_opens_again(receiver: Receiver, protocol: str) -> None:
    """Closing is for connections; a later request makes a new one."""
    with sending(endpoint(receiver, protocol), protocol) as sender:
        assert sender.send(body(protocol), 3, 5.0).ok
        sender.close()
        assert sender.send(body(protocol), 3, 5.0).ok


@pytest.mark.parametrize("protocol", HTTP)
def test_header_that_cannot_be_sent_is_a_fault_of_the_settings(receiver: Receiver, protocol: str) -> None:
    """A line break in a header is no reason to drop spans, nor to try for ever without a word."""
    outcome = sent(receiver.http, protocol, headers={"x": "a\r\nb"})
    assert (outcome.state, outcome.fault) == (State.REFUSED, Fault.SETTINGS)


def test_our_calls_are_not_traced_by_instrumentations(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What instruments grpc channels finds its own off switch set, so sending makes no spans to be sent."""
    import grpc
    from opentelemetry import context

    seen = []

    class Instrumentation(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            seen.append(context.get_value("suppress_instrumentation"))
            return continuation(details, request)

    plain = grpc.insecure_channel
    monkeypatch.setattr(grpc, "insecure_channel", lambda *a: grpc.intercept_channel(plain(*a), Instrumentation()))
    assert sent(receiver.grpc, "grpc").ok
    assert seen == [True]
    assert context.get_value("suppress_instrumentation") is None


# --- TLS and proxies --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[Receiver]:
    with Receiver(tls=True) as receiver:
        yield receiver


def test_trusted_certificate_is_accepted(secured: Receiver, protocol: str) -> None:
    """With the file that names the authority, requests go through TLS."""
    assert sent(endpoint(secured, protocol), protocol, certificate=CERTIFICATE).ok


def test_untrusted_certificate_is_said(secured: Receiver, protocol: str) -> None:
    """A certificate that nobody vouches for is a fault of TLS and keeps the spans."""
    outcome = sent(endpoint(secured, protocol), protocol)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.TLS)
    assert "CERTIFICATE_VERIFY_FAILED" in outcome.message


def test_tls_to_a_receiver_without_is_said(receiver: Receiver, protocol: str) -> None:
    """Https where http is spoken is a fault of TLS."""
    outcome = sent(endpoint(receiver, protocol).replace("http://", "https://"), protocol)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.TLS)


@pytest.mark.parametrize("missing", ["certificate", "client_certificate"])
def test_missing_certificate_file_is_named(secured: Receiver, protocol: str, missing: str) -> None:
    """A file that is not there is a fault of the settings, and the message names it."""
    outcome = sent(endpoint(secured, protocol), protocol, **{missing: "/no/such.pem"})
    assert (outcome.state, outcome.fault) == (State.REFUSED, Fault.SETTINGS)
    assert "/no/such.pem" in outcome.message


def test_http_goes_through_a_proxy(receiver: Receiver) -> None:
    """A proxy is told the whole URL, and who we are if it asks."""
    proxies = {"http_proxy": receiver.http.replace("//", "//me:pw@")}
    assert sent("http://far.invalid:4318", "http/protobuf", proxies=proxies).ok
    (request,) = receiver.requests
    assert request.path == "http://far.invalid:4318/v1/traces"
    assert request.headers["host"] == "far.invalid:4318"
    assert request.headers["proxy-authorization"] == "Basic bWU6cHc="


def test_https_goes_through_a_tunnel(secured: Receiver) -> None:
    """A proxy that tunnels sees the receiver's name and nothing of the request."""
    port = int(secured.http.rpartition(":")[2])
    before = len(secured.requests)
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked: list[bytes] = []
        thread = threading.Thread(target=_tunnel, args=(server, port, asked))
        thread.start()
        proxies = {"https_proxy": f"127.0.0.1:{server.getsockname()[1]}"}
        outcome = sent("https://localhost:4318", "http/protobuf", proxies=proxies, certificate=CERTIFICATE)
        thread.join()
    assert outcome.ok
    assert asked[0].startswith(b"CONNECT localhost:4318 HTTP/1.")
    assert [request.path for request in secured.requests[before:]] == ["/v1/traces"]


def _tunnel(server: socket.socket, port: int, asked: list[bytes]) -> None:
    client, _ = server.accept()
    with client, socket.create_connection(("127.0.0.1", port)) as far:
        asked.append(client.recv(65536))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = threading.Thread(target=_pump, args=(far, client))
        back.start()
        _pump(client, far)
        back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
