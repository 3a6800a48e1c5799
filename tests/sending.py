"""How tests send: shortcuts to the senders, by protocol."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from rl_otel._otlp import encode
from rl_otel._record import End
from rl_otel._send import Outcome, resolve, sender_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_otel._send import Sender

HTTP = ("http/protobuf", "http/json")
PROTOCOLS = (*HTTP, "grpc")


def endpoint(receiver: Any, protocol: str) -> str:
    return str(receiver.grpc if protocol == "grpc" else receiver.http)


@contextlib.contextmanager
def sending(endpoint: str, protocol: str, **options: Any) -> Iterator[Sender]:
    with contextlib.closing(sender_for(resolve(endpoint, protocol, **options))) as sender:
        yield sender


def body(protocol: str, spans: int = 3, **attributes: Any) -> bytes:
    records = [End(b"t" * 16, bytes([n + 1]) * 8, b"", f"s{n}", 1, 2, attributes) for n in range(spans)]
    return encode([({"service.name": "x"}, records)], protocol).body


def sent(endpoint: str, protocol: str, timeout: float = 5.0, **options: Any) -> Outcome:
    with sending(endpoint, protocol, **options) as sender:
        return sender.send(body(protocol), 3, timeout)
