"""What came of one attempt to send."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """What to do next."""

    OK = "ok"  # delivered, but for `rejected` spans
    RETRY = "retry"  # the same request later
    REFUSED = "refused"  # sent again it would be refused again
    TOO_LARGE = "too large"  # in smaller pieces


class Fault(Enum):
    """Where the reason lies, so that one line can name the remedy."""

    NONE = "none"
    SPANS = "spans"  # the receiver does not take what these spans say
    SIZE = "size"
    BUSY = "busy"  # it is there, and asks for patience
    UNREACHABLE = "unreachable"
    UNKNOWN_HOST = "unknown host"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"  # it speaks grpc where http was tried, or the other way round
    TLS = "tls"
    PATH = "path"
    NO_RECEIVER = "no receiver"  # it says yes, but not as a receiver of OTLP does
    ACCESS = "access"
    SETTINGS = "settings"  # a certificate that is not there, a header that cannot be sent

    @property
    def of_address(self) -> bool:
        """Whether no request at all can be delivered until someone changes a setting: no span is to blame."""
        return self in _OF_ADDRESS


_OF_ADDRESS: Final = frozenset({Fault.PROTOCOL, Fault.TLS, Fault.PATH, Fault.NO_RECEIVER, Fault.ACCESS, Fault.SETTINGS})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt to send."""

    state: State
    fault: Fault = Fault.NONE
    message: str = ""  # what the receiver or the network said
    after: float | None = None  # s, the receiver's own wish
    rejected: int = 0  # spans of a request that was else accepted

    @property
    def ok(self) -> bool:
        """Whether the request was accepted, if perhaps without some of its spans."""
        return self.state is State.OK


class BadSetting(Exception):
    """Something in the target itself makes sending impossible."""
