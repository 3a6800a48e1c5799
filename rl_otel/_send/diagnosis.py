"""The one line that says why sending fails: what was tried, what came back, and the remedy."""

from __future__ import annotations

from typing import Final

from rl_otel._send.endpoint import GRPC, GRPC_PORT, HTTP_PORT, PROTOBUF, Target
from rl_otel._send.outcome import Fault, Outcome


def diagnose(target: Target, outcome: Outcome) -> str:
    """Return one line for people: the address tried, the answer, and what would be right."""
    return f"{target.protocol} to {target.url}: {outcome.message}; {_remedy(target, outcome.fault)}"


def _remedy(target: Target, fault: Fault) -> str:
    if fault in {Fault.PROTOCOL, Fault.PATH, Fault.UNREACHABLE, Fault.TIMEOUT} and (wrong_port := _wrong_port(target)):
        return wrong_port
    if fault is Fault.PROTOCOL:
        return f"the receiver there speaks something else: {_other(target)}"
    if fault is Fault.PATH:
        return _path(target)
    if fault is Fault.NO_RECEIVER:
        return _no_receiver(target)
    if fault is Fault.TLS:
        return _tls(target)
    return _REMEDIES[fault]


def _wrong_port(target: Target) -> str:
    if target.protocol == GRPC and target.port == HTTP_PORT:
        return f"port {HTTP_PORT} is OTLP's port for http: {_other(target)}"
    if target.protocol != GRPC and target.port == GRPC_PORT:
        return f"port {GRPC_PORT} is OTLP's port for grpc: {_other(target)}"
    if target.protocol != GRPC and target.port == 80:
        return f"no port was given: OTLP listens on {HTTP_PORT}, so try endpoint={_url(target, HTTP_PORT)!r}"
    return ""


def _other(target: Target) -> str:
    """Return how to try the other protocol at this receiver."""
    if target.protocol == GRPC:
        elsewhere = f", or endpoint={_url(target, GRPC_PORT)!r}" if target.port == HTTP_PORT else ""
        return f"set protocol={PROTOBUF!r}{elsewhere}"
    elsewhere = f"endpoint={_url(target, HTTP_PORT)!r}" if target.port == GRPC_PORT else "take the receiver's http port"
    return f"set protocol={GRPC!r}, or {elsewhere}"


def _path(target: Target) -> str:
    if target.protocol == GRPC:
        return f"no OTLP service for {target.signal} is there; for http set protocol={PROTOBUF!r}"
    usual = f"/v1/{target.signal}"
    if target.path.partition("?")[0] == usual:
        return f"OTLP receivers take {target.signal} at {usual}; is this one, or does it want a path before that?"
    return f"OTLP receivers take {target.signal} at {usual}: try endpoint={_url(target, target.port)!r}"


def _no_receiver(target: Target) -> str:
    if target.port == HTTP_PORT:
        return f"no OTLP receiver answers so; is the host right, and does it take {target.signal} there?"
    return f"no OTLP receiver answers so; most listen on {HTTP_PORT}: try endpoint={_url(target, HTTP_PORT)!r}"


def _tls(target: Target) -> str:
    if not target.secure:
        return f"the receiver wants TLS: endpoint='https://{target.authority}'"
    return (
        f"if it speaks no TLS, endpoint='http://{target.authority}'; if its certificate is your own, "
        "OTEL_EXPORTER_OTLP_CERTIFICATE names the file to trust"
    )


def _url(target: Target, port: int) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{'https' if target.secure else 'http'}://{host}:{port}"


_REMEDIES: Final = {
    Fault.NONE: "nothing to do",
    Fault.SPANS: "the receiver refuses what these spans say",
    Fault.SIZE: "the receiver takes less in one request",
    Fault.BUSY: "the receiver is there, but overloaded",
    Fault.UNREACHABLE: "is a collector running there, and are host, port and http or https right?",
    Fault.UNKNOWN_HOST: "no such host is known here; check the endpoint's spelling",
    Fault.TIMEOUT: "is it a collector, and is OTEL_EXPORTER_OTLP_TIMEOUT long enough?",
    Fault.ACCESS: "the receiver wants credentials: OTEL_EXPORTER_OTLP_HEADERS=authorization=...",
    Fault.SETTINGS: "correct that setting: nothing can be sent before",
}
