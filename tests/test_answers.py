"""What an answer means by the rules of OTLP, and what garbage does."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel._otlp import wire
from rl_otel._send import Fault, Outcome, State, answers
from tests.receiver import Answer, Receiver
from tests.sending import HTTP, PROTOCOLS, body, endpoint, sending, sent

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("protocol", HTTP)
@pytest.mark.parametrize(
    ("status", "state", "fault"),
    [
        (429, State.RETRY, Fault.BUSY),
        (502, State.RETRY, Fault.BUSY),
        (503, State.RETRY, Fault.BUSY),
        (504, State.RETRY, Fault.BUSY),
        (400, State.REFUSED, Fault.SPANS),
        (500, State.REFUSED, Fault.SPANS),
        (401, State.REFUSED, Fault.ACCESS),
        (403, State.REFUSED, Fault.ACCESS),
        (405, State.REFUSED, Fault.PATH),
        (301, State.REFUSED, Fault.PATH),
        (415, State.REFUSED, Fault.PROTOCOL),
        (413, State.TOO_LARGE, Fault.SIZE),
    ],
)
def test_http_status_decides_what_to_do(
    receiver: Receiver, protocol: str, status: int, state: State, fault: Fault
) -> None:
    """Only what OTLP calls retryable is tried again; too large is told apart."""
    receiver.script(Answer(status, text="some\nreason"))
    outcome = sent(receiver.http, protocol)
    assert (outcome.state, outcome.fault, outcome.after) == (state, fault, None)
    assert outcome.message.startswith(f"{status} ")
    assert "some reason" in outcome.message


@pytest.mark.parametrize(
    ("code", "state", "fault"),
    [
        ("CANCELLED", State.RETRY, Fault.BUSY),
        ("DEADLINE_EXCEEDED", State.RETRY, Fault.TIMEOUT),
        ("ABORTED", State.RETRY, Fault.BUSY),
        ("OUT_OF_RANGE", State.RETRY, Fault.BUSY),
        ("UNAVAILABLE", State.RETRY, Fault.BUSY),
        ("DATA_LOSS", State.RETRY, Fault.BUSY),
        ("RESOURCE_EXHAUSTED", State.REFUSED, Fault.BUSY),
        ("INVALID_ARGUMENT", State.REFUSED, Fault.SPANS),
        ("INTERNAL", State.REFUSED, Fault.SPANS),
        ("UNIMPLEMENTED", State.REFUSED, Fault.PATH),
        ("UNAUTHENTICATED", State.REFUSED, Fault.ACCESS),
        ("PERMISSION_DENIED", State.REFUSED, Fault.ACCESS),
    ],
)
def test_grpc_code_decides_what_to_do(receiver: Receiver, code: str, state: State, fault: Fault) -> None:
    """Only what OTLP calls retryable is tried again."""
    receiver.script(Answer(500, code=code, text="some reason"))
    outcome = sent(receiver.grpc, "grpc")
    assert outcome == Outcome(state, fault, f"{code}: some reason")


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_grpc_retry_info_says_how_long_to_wait(receiver: Receiver, code: str) -> None:
    """An exhausted receiver that names a delay may be asked again, after it."""
    receiver.script(Answer(500, code=code, text="busy", retry_after=2.5))
    assert sent(receiver.grpc, "grpc") == Outcome(State.RETRY, Fault.BUSY, f"{code}: busy", after=2.5)


@pytest.mark.parametrize("protocol", HTTP)
@pytest.mark.parametrize(("header", "after"), [("7", 7.0), ("1.5", 1.5), ("-3", 0.0), ("soon", None), ("", None)])
def test_retry_after_in_seconds_is_honoured(
    receiver: Receiver, protocol: str, header: str, after: float | None
) -> None:
    """A number in Retry-After is the receiver's wish; anything unreadable is none."""
    receiver.script(Answer(503, retry_after=header))
    assert sent(receiver.http, protocol).after == after


def test_retry_after_as_a_date_is_honoured(receiver: Receiver) -> None:
    """A date in Retry-After is as far away as it is."""
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=60)
    receiver.script(Answer(503, retry_after=email.utils.format_datetime(then, usegmt=True)))
    after = sent(receiver.http, "http/protobuf").after
    assert after is not None
    assert 55 < after <= 60


def test_partial_success_counts_what_was_rejected(receiver: Receiver, protocol: str) -> None:
    """An accepted request may have lost spans: they are counted, with the reason."""
    receiver.script(Answer(rejected=2, text="two without a name"))
    outcome = sent(endpoint(receiver, protocol), protocol)
    assert outcome == Outcome(State.OK, Fault.SPANS, "two without a name", rejected=2)
    assert outcome.ok


def test_no_more_spans_are_rejected_than_were_sent(receiver: Receiver, protocol: str) -> None:
    """A receiver that counts wrong cannot make our sums negative."""
    receiver.script(Answer(rejected=99))
    assert sent(endpoint(receiver, protocol), protocol).rejected == 3


def test_grpc_receiver_with_its_default_limit_finds_five_megabytes_too_large(receiver: Receiver) -> None:
    """What a real server says about a message above 4 MiB is understood as too large (C28)."""
    with sending(receiver.grpc, "grpc") as sender:
        large = sender.send(body("grpc", 1, text="x" * (5 << 20)), 1, 5.0)
        assert (large.state, large.fault) == (State.TOO_LARGE, Fault.SIZE)
        assert sender.send(body("grpc"), 3, 5.0).ok


@pytest.mark.parametrize("text", ["http: request body too large", "message larger than max (1 vs. 2)"])
def test_bad_request_that_speaks_of_size_is_too_large(text: str) -> None:
    """Some receivers answer 400 where 413 is meant."""
    assert answers.of_http(400, {}, text.encode(), 3).state is State.TOO_LARGE


def test_receiver_that_stops_reading_may_still_say_why() -> None:
    """An early 413 is read although the request could not be written to its end."""
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    with answering(refusal, reads=1000) as there, sending(there, "http/protobuf") as sender:
        assert sender.send(bytes(8 << 20), 1, 5.0).state is State.TOO_LARGE


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\r\n\r\n", b"HTTP/1.1 huh\r\n\r\n", b"\0\0\x12\4\0\0\0\0\0", b"SSH-2.0-OpenSSH\r\n", b"\xff" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n", b"HTTP/1.1", b"",
    ],
    ids=lambda garbage: repr(garbage[:20]),
)  # fmt: skip
def test_no_answer_makes_the_sender_raise(garbage: bytes) -> None:
    """Whatever sits at the port, the outcome is to try again later."""
    with answering(garbage) as there:
        assert sent(there, "http/protobuf").state is State.RETRY


def test_accepted_is_accepted_though_the_answer_is_cut() -> None:
    """After a status of 200 the spans are delivered: to send them again would double them."""
    with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab") as there:
        assert sent(there, "http/protobuf").ok


@contextlib.contextmanager
def answering(answer: bytes, reads: int = 65536) -> Iterator[str]:
    """Run a server that reads once, answers so, and reads on until the sender has had enough."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(reads)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


DEEP = b"[" * 60_000


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "text/plain", "application/xml", "TEXT/HTML"])
def test_yes_in_another_language_is_no_delivery(kind: str) -> None:
    """What is not said in protobuf or JSON was said by no receiver, whatever the status."""
    outcome = answers.of_http(200, {"content-type": kind}, b"ok", 3)
    assert outcome == Outcome(State.REFUSED, Fault.NO_RECEIVER, f"200 OK with {kind.lower().partition(';')[0]}")
    assert outcome.fault.of_address


@pytest.mark.parametrize("status", [200, 202, 204])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text/plain; charset=utf-8", b""),
        ("text/html", b""),
        ("", b"ok"),
        ("application/json", b"{}"),
        ("application/json", b'{"partialSuccess": null}'),
        ("application/protobuf", b""),
    ],
)
def test_yes_without_a_word_is_a_delivery(status: int, kind: str, said: bytes) -> None:
    """Receivers that say nothing name any type or none, and some answer protobuf in JSON."""
    assert answers.of_http(status, {"content-type": kind} if kind else {}, said, 3) == Outcome(State.OK)


@pytest.mark.parametrize("said", [b'{"status": "ok"}', b"[]", b"null", b"ok", DEEP], ids=lambda said: said[:9])
def test_yes_in_words_of_its_own_is_a_delivery_in_doubt(said: bytes) -> None:
    """JSON that says what OTLP does not may be a receiver's or not: nothing is sent to it twice, and it is told."""
    outcome = answers.of_http(200, {"content-type": "application/json"}, said, 3)
    assert (outcome.state, outcome.fault, outcome.rejected) == (State.OK, Fault.NO_RECEIVER, 0)
    assert outcome.message.startswith("200 OK with JSON that is not OTLP's: ")


@given(st.binary(max_size=40), st.sampled_from(["application/json", "application/x-protobuf", ""]))
def test_no_answer_of_any_bytes_raises(said: bytes, content_type: str) -> None:
    """Bodies are read as far as they make sense."""
    assert answers.of_http(200, {"content-type": content_type}, said, 3).ok
    refused = answers.of_http(400, {"content-type": content_type}, said, 3)
    assert refused.state in {State.REFUSED, State.TOO_LARGE}
    assert len(refused.message.splitlines()) == 1


@pytest.mark.parametrize(
    "said",
    [DEEP, b'{"partialSuccess":{"rejectedSpans":1e999}}', b'{"partialSuccess":{"rejectedSpans":"%s"}}' % (b"9" * 5000)],
    ids=["deep", "infinite", "digits"],
)
def test_accepted_is_accepted_whatever_the_answer_says(said: bytes) -> None:
    """A body that cannot be read takes nothing back: sent again, the spans would be there twice."""
    outcome = answers.of_http(200, {"content-type": "application/json"}, said, 3)
    assert (outcome.ok, outcome.rejected) == (True, 0)


def test_a_refusal_nested_without_end_is_one_line() -> None:
    """What a back end says is read as far as it makes sense."""
    outcome = answers.of_http(400, {"content-type": "application/json"}, DEEP, 3)
    assert (outcome.state, len(outcome.message)) == (State.REFUSED, len("400 Bad Request: ") + 300)


@pytest.mark.parametrize("said", ["\x1b[2J\x1b]0;mine\x07 no\0", "\N{RIGHT-TO-LEFT OVERRIDE}no", "no\x9b31m"])
def test_no_answer_steers_a_terminal(said: str) -> None:
    """Control characters of a body, a reason or an address never reach the log."""
    location = answers.of_http(302, {"location": f"http://there/{said}?api-key=s3cret"}, b"", 3).message
    assert location.startswith("302 Found, moved to http://there/")
    assert "s3cret" not in location
    refused = answers.of_http(400, {}, said.encode(), 3).message
    accepted = answers.accepted(1, said, 3).message
    failed = answers.of_error(OSError(1, said)).message
    assert all(message.isprintable() and "no" in message for message in (location, refused, accepted, failed))


@pytest.mark.parametrize("date", ["Wed, 21 Oct 99999999 07:28:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"])
def test_a_date_beyond_time_is_no_wish(date: str) -> None:
    """A Retry-After that no clock can show is as good as none."""
    outcome = answers.of_http(503, {"retry-after": date}, b"", 3)
    assert (outcome.state, outcome.fault) == (State.RETRY, Fault.BUSY)


@given(st.integers(0, 2**64 - 1))
def test_varint_is_read_as_it_was_written(number: int) -> None:
    """Every length and number of the wire format comes back."""
    assert list(wire.fields(b"\x08" + wire.varint(number))) == [(1, number)]


@pytest.mark.parametrize("garbage", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\xff" * 11, b"\x0d\1", b"\x08"])
def test_what_is_no_protobuf_is_an_error(garbage: bytes) -> None:
    """A message that ends too early or has impossible types is refused."""
    with pytest.raises(ValueError, match="no protobuf"):
        list(wire.fields(garbage))


def test_timeout_of_a_tls_read_is_a_timeout() -> None:
    """TLS wraps its own timeouts; they are no fault of the certificate."""
    assert answers.of_error(TimeoutError("The read operation timed out")).fault is Fault.TIMEOUT
    assert answers.of_error(ssl.SSLError("x")).fault is Fault.TLS
    assert answers.of_error(ssl.SSLCertVerificationError("x")).fault is Fault.TLS
