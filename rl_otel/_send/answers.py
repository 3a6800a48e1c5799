"""What an answer, or the lack of one, means by the rules of OTLP."""

from __future__ import annotations

import email.utils
import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Final

from rl_otel._otlp.wire import fields
from rl_otel._send.endpoint import shown
from rl_otel._send.outcome import BadSetting, Fault, Outcome, State

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_FAULTS: Final = {
    401: Fault.ACCESS, 403: Fault.ACCESS, 407: Fault.ACCESS,
    404: Fault.PATH, 405: Fault.PATH,
    415: Fault.PROTOCOL, 426: Fault.PROTOCOL, 505: Fault.PROTOCOL,
}  # fmt: skip
_LONGEST: Final = 300  # characters of a message that is not ours


def of_http(status: int, headers: Mapping[str, str], body: bytes, spans: int) -> Outcome:
    """Return what an HTTP answer to a request of `spans` spans means."""
    content_type = headers.get("content-type", "").lower()
    told = f"{status} {http.client.responses.get(status, '')}".rstrip()
    if 200 <= status < 300:
        if _is_foreign(body, content_type):
            return Outcome(State.REFUSED, Fault.NO_RECEIVER, f"{told} with {one_line(content_type.partition(';')[0])}")
        if "json" in content_type and not _is_response(body):
            said = one_line(body.decode("utf-8", "replace"))
            return Outcome(State.OK, Fault.NO_RECEIVER, f"{told} with JSON that is not OTLP's: {said}")
        return accepted(*partial_success(body, content_type), spans)
    said = _said(body, content_type)
    message = told + (f": {said}" if said else "")
    if status in _RETRYABLE:
        return Outcome(State.RETRY, Fault.BUSY, message, after=_retry_after(headers.get("retry-after")))
    if status == 413 or (status == 400 and is_too_large(said)):
        return Outcome(State.TOO_LARGE, Fault.SIZE, message)
    if 300 <= status < 400:
        return Outcome(State.REFUSED, Fault.PATH, f"{message}, moved to {_place(headers)}")
    if status == 400 and "https" in said.lower():
        return Outcome(State.REFUSED, Fault.TLS, message)
    return Outcome(State.REFUSED, _FAULTS.get(status, Fault.SPANS), message)


def of_error(error: Exception) -> Outcome:
    """Return what an exception of the network means."""
    fault = _fault(error)
    return Outcome(State.REFUSED if fault is Fault.SETTINGS else State.RETRY, fault, _told(error))


def _fault(error: Exception) -> Fault:
    if isinstance(error, ssl.SSLError):  # one of its kinds is a ValueError too
        return Fault.TIMEOUT if isinstance(error, TimeoutError) else Fault.TLS
    if isinstance(error, (BadSetting, ValueError)):  # a header with a line break in it
        return Fault.SETTINGS
    if isinstance(error, TimeoutError):
        return Fault.TIMEOUT
    if isinstance(error, socket.gaierror):
        return Fault.UNKNOWN_HOST
    if isinstance(error, http.client.HTTPException) and not isinstance(error, ConnectionError):
        return Fault.PROTOCOL
    return Fault.UNREACHABLE


def _told(error: Exception) -> str:
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, http.client.BadStatusLine):
        return "the answer was not HTTP/1.1" + (" but HTTP/2, as of grpc" if str(error).startswith("\0\0") else "")
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return one_line(error.strerror)
    return one_line(str(error)) or type(error).__name__


def _place(headers: Mapping[str, str]) -> str:
    # What we sent may come back in it, with its key.
    return one_line(shown(headers.get("location", ""))) or "nowhere"


def one_line(said: str) -> str:
    """Return what somebody else said as a part of one line, without what would steer a terminal."""
    return " ".join("".join(each if each.isprintable() else " " for each in said).split())[:_LONGEST]


def accepted(rejected: int, message: str, spans: int) -> Outcome:
    """Return the outcome of a request that was accepted but for `rejected` of its spans."""
    return Outcome(
        State.OK, Fault.SPANS if rejected else Fault.NONE, one_line(message), rejected=max(0, min(rejected, spans))
    )


def is_too_large(said: str) -> bool:
    """Whether a refusal is about the size of the request: grpc and some receivers have no code of its own for that."""
    return any(words in said.lower() for words in ("too large", "larger than max", "trying to send message larger"))


def partial_success(body: bytes, content_type: str = "") -> tuple[int, str]:
    """Return how many spans or data points an answer to an export rejects, and why."""
    try:
        return _partial_json(body) if "json" in content_type else _partial_protobuf(body)
    except Exception:  # nested without end, a number without one
        return 0, ""  # accepted all the same: the status says so


def _partial_json(body: bytes) -> tuple[int, str]:
    partial = json.loads(body or b"{}").get("partialSuccess") or {}
    rejected = partial.get("rejectedSpans", 0) or partial.get("rejectedDataPoints", 0)
    return int(rejected), str(partial.get("errorMessage", ""))


def _partial_protobuf(body: bytes) -> tuple[int, str]:
    rejected, message = 0, ""
    for _, partial in (field for field in fields(body) if field[0] == 1):
        for number, value in fields(partial if isinstance(partial, bytes) else b""):
            if number == 1 and isinstance(value, int):
                rejected = value if value < 2**63 else 0
            elif number == 2 and isinstance(value, bytes):
                message = value.decode("utf-8", "replace")
    return rejected, message


def _is_foreign(body: bytes, content_type: str) -> bool:
    """Whether no receiver of OTLP answers so, but a page for browsers, say.

    Receivers that answer with nothing may name any type, or none; others say it in JSON whatever was sent.
    """
    return bool(body and content_type) and not any(kind in content_type for kind in ("protobuf", "json"))


def _is_response(body: bytes) -> bool:
    """Whether JSON says nothing beside what an OTLP response may.

    What says more is believed all the same, for there are receivers that add words of their own, and what they have
    must not be sent to them again and again.
    """
    try:
        told = json.loads(body or b"{}")
    except Exception:  # nested without end
        return False
    return isinstance(told, dict) and told.keys() <= {"partialSuccess", "partial_success"}


def _said(body: bytes, content_type: str) -> str:
    """Return what a refusal says: the message of a `google.rpc.Status`, or plain text."""
    try:
        if "protobuf" in content_type:
            said = next(value for number, value in fields(body) if number == 2)
        elif "json" in content_type:
            said = json.loads(body).get("message", "")
        else:
            said = body
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    except Exception:
        text = body.decode("utf-8", "replace")
    return "" if text.lstrip().startswith("<") else one_line(text)  # a page for browsers


def _retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number, or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
