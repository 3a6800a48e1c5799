"""OTLP over grpc: one call with bytes that are encoded already.

grpc is imported at the first use; its own retries are off, since the journal is the better queue.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rl_otel._otlp.wire import fields
from rl_otel._send import answers
from rl_otel._send.endpoint import METRICS, TRACES, Target
from rl_otel._send.outcome import BadSetting, Fault, Outcome, State
from rl_otel._send.untraced import untraced
from rl_otel._version import __version__

_METHODS: Final = {
    TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
_RETRYABLE: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
_FAULTS: Final = {
    "UNAUTHENTICATED": Fault.ACCESS,
    "PERMISSION_DENIED": Fault.ACCESS,
    "UNIMPLEMENTED": Fault.PATH,
    "DEADLINE_EXCEEDED": Fault.TIMEOUT,
}
#: What grpc says where it has one code for everything on the way.
_SIGNS: Final = {
    Fault.PROTOCOL: ("http/2", "http2", "http1"),
    Fault.TLS: ("handshake", "ssl"),
    Fault.UNKNOWN_HOST: ("resolving", "resolution", "dns"),
    Fault.UNREACHABLE: ("connect", "socket closed"),
}
#: Of our own: a channel shared with the host's would share its faults. After an outage one second is lost, not 120.
_OPTIONS: Final = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.primary_user_agent", f"rl_otel/{__version__}"),
)


class GrpcSender:
    """Calls the service of one target. A forked child makes its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._metadata = tuple((name.lower(), value) for name, value in target.headers.items())
        self._channel: Any = None
        self._export: Any = None

    def send(self, body: bytes, spans: int, timeout: float) -> Outcome:
        """Send one request and return what came of it, after `timeout` seconds at the latest; nothing is raised."""
        if timeout <= 0:
            return Outcome(State.RETRY, Fault.TIMEOUT, "no time was left")
        try:
            import grpc
        except Exception as error:  # a broken build raises what it likes
            return Outcome(State.REFUSED, Fault.SETTINGS, f"grpc cannot be imported: {error}")
        try:
            with untraced():
                self._open(grpc)
                answer = self._export(body, timeout=timeout, metadata=self._metadata)
            return answers.accepted(*answers.partial_success(answer), spans)
        except grpc.RpcError as error:
            return _refusal(error)
        except Exception as error:
            return answers.of_error(error)

    def close(self) -> None:
        """Close the channel; the next `send` opens one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def abandon(self) -> None:
        """In a forked child: do nothing, for grpc looks after its own descriptors."""

    def _open(self, grpc: Any) -> None:
        if self._channel is not None:
            return
        target = self._target
        options = [*_OPTIONS, ("grpc.default_compression_algorithm", 2 if target.gzip else 0)]
        if target.secure:
            self._channel = grpc.secure_channel(target.authority, _credentials(grpc, target), options)
        else:
            self._channel = grpc.insecure_channel(target.authority, options)
        self._export = self._channel.unary_unary(_METHODS[target.signal])


def _credentials(grpc: Any, target: Target) -> Any:
    files = target.certificate, target.client_key, target.client_certificate
    try:
        return grpc.ssl_channel_credentials(*(Path(file).read_bytes() if file else None for file in files))
    except OSError as error:
        raise BadSetting(str(error)) from error


def _refusal(error: Any) -> Outcome:
    code, said = error.code().name, answers.one_line(error.details() or "")
    message = f"{code}: {said}" if said else code
    if code == "RESOURCE_EXHAUSTED":
        return _exhausted(message, error.trailing_metadata())
    if code in _RETRYABLE:
        return Outcome(State.RETRY, _fault(code, said), message, after=_retry_delay(error.trailing_metadata()))
    return Outcome(State.REFUSED, _FAULTS.get(code, Fault.SPANS), message)


def _exhausted(message: str, metadata: Any) -> Outcome:
    if answers.is_too_large(message):
        return Outcome(State.TOO_LARGE, Fault.SIZE, message)
    after = _retry_delay(metadata)
    return Outcome(State.REFUSED if after is None else State.RETRY, Fault.BUSY, message, after=after)


def _fault(code: str, said: str) -> Fault:
    said = said.lower()
    for fault, signs in _SIGNS.items():
        if any(sign in said for sign in signs):
            return fault
    # Of UNAVAILABLE, only a receiver's own words say that it is there.
    return _FAULTS.get(code, Fault.BUSY if said else Fault.UNREACHABLE)


def _retry_delay(metadata: Any) -> float | None:
    """Return the delay in s of a `RetryInfo` among the details of a status, or None."""
    try:
        status = next(value for key, value in metadata or () if key == "grpc-status-details-bin")
        return next(delay for delay in map(_delay_of, _messages(status, 3)) if delay is not None)
    except (ValueError, StopIteration):
        return None


def _delay_of(detail: bytes) -> float | None:
    if not any(kind.endswith(b"google.rpc.RetryInfo") for kind in _messages(detail, 1)):
        return None
    for info in _messages(detail, 2):
        for duration in _messages(info, 1):
            numbers = {number: value for number, value in fields(duration) if isinstance(value, int)}
            return numbers.get(1, 0) + numbers.get(2, 0) / 1e9
    return 0.0


def _messages(message: bytes, number: int) -> list[bytes]:
    return [value for found, value in fields(message) if found == number and isinstance(value, bytes)]
