"""What a journal holds: five kinds of record, each a msgpack array whose first item names its kind.

The format is described for readers in `docs/journal.md`; `FORMAT` changes when an old reader could misread a new
journal. New fields go to the end of a record: a reader ignores what it does not know.
Times are nanoseconds since the epoch, taken from one monotonic clock a process. Ids are raw bytes: 16 for a trace,
8 for a span.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from rl_otel import semconv

FORMAT: Final = 1

#: An attribute: str, bool, int (64 bit), float, or a list of one of them.
Attributes: TypeAlias = dict[str, Any]

#: Nanoseconds since the epoch. A record of another moment is none: until 2262 they fit in 64 bits with a sign.
Moment: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

SAMPLED: Final = 1  # goes to the back end, as far as the budget allows
AWAITED: Final = 2  # a `late` record of this span will follow
LOCAL: Final = 4  # another exporter sends this span: for the journal only

UNSET, OK, ERROR = 0, 1, 2  # status codes of OTLP


class Link(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A reference to a span of any trace."""

    trace: bytes
    span: bytes
    attributes: Attributes


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Something that happened at one moment of a span."""

    name: str
    time: Moment
    attributes: Attributes


class Process(msgspec.Struct, array_like=True, tag="process", gc=False):
    """Who writes: the first record of each journal file."""

    format: int
    run: str
    restart: int
    resource: Attributes
    time: Moment  # when `configure()` ran
    monotonic: int  # the process's monotonic clock at that moment
    sending: dict[str, Any] = {}  # how it sends, so that who sends for it does it alike


class Start(msgspec.Struct, array_like=True, tag="start", gc=False):
    """A span began: step, phase and trajectory at once, generate and env.step when open for ten seconds."""

    trace: bytes
    span: bytes
    parent: bytes  # empty for a root
    name: str
    start: Moment
    attributes: Attributes
    flags: int = SAMPLED


class End(msgspec.Struct, array_like=True, tag="end", gc=False):
    """A span of ours, whole."""

    trace: bytes
    span: bytes
    parent: bytes  # empty for a root
    name: str
    start: Moment
    end: Moment
    attributes: Attributes
    flags: int = SAMPLED
    status: int = UNSET
    message: str = ""
    links: list[Link] = []
    events: list[Event] = []


class Late(msgspec.Struct, array_like=True, tag="late", gc=False):
    """Attributes of a span that were known only after it ended; `last` when no more will follow."""

    span: bytes
    attributes: Attributes
    last: bool = True


class Foreign(msgspec.Struct, array_like=True, tag="foreign", gc=False):
    """A span of another library, as its SDK ended it."""

    trace: bytes
    span: bytes
    parent: bytes
    name: str
    start: Moment
    end: Moment
    attributes: Attributes
    flags: int = SAMPLED
    status: int = UNSET
    message: str = ""
    links: list[Link] = []
    events: list[Event] = []
    kind: int = 1  # of OTLP: 1 internal, 2 server, 3 client, 4 producer, 5 consumer
    scope: str = ""
    scope_version: str = ""


class Lost(msgspec.Struct, array_like=True, tag="lost", gc=False):
    """How many spans never reached the journal, by reason; counts since the process began."""

    counts: dict[str, int]


Record: TypeAlias = Process | Start | End | Late | Foreign | Lost


encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Record)
_END: Final = b"\xa3end\xc4\x10"  # where an `End` begins, behind the byte that tells how many fields there are
_START: Final = b"\xa5start"
_NAMES: Final = frozenset(msgspec.msgpack.encode(name)[:4] for name in semconv.SERVICE_SUFFIX)


def decode(payload: bytes | memoryview) -> Record:
    """Return the record in `payload`.

    Raises:
        msgspec.MsgspecError: it is no record of this format.
    """
    return _decoder.decode(payload)


def call_ids(payload: bytes) -> tuple[bytes, bytes] | None:
    """Return the ids of span and parent where this is a call's `End`, at a tenth of what it costs to decode it.

    They are wrong where ids are of another length than they should have; then nobody knows them.
    """
    if payload[1:7] == _END and payload[43:47] in _NAMES:
        return payload[25:33], payload[35:43]
    return None


def is_start(payload: bytes) -> bool:
    """Return whether this is a `Start`."""
    return payload[1:7] == _START


def is_end(payload: bytes, name: str) -> bool:
    """Return whether this is the `End` of a span of that name, if it is one whose ids have their length."""
    return payload[1:7] == _END and payload.startswith(
        msgspec.msgpack.encode(name), 35 if payload[34:35] == b"\0" else 43
    )
