"""A context on its way to another process: W3C `traceparent` and `tracestate`, written and read.

    traceparent: 00-<trace>-<span>-01
    tracestate: rl_otel=1;k:generate;t:1;s:12;m:eval;v:7;w:<trace>-<span>;p:rollout,<members of others>

What `traceparent` has no room for is in our member of `tracestate`; ADR 0007 says which field means what. A carrier
comes from anywhere: nothing of it is believed before it was looked at, and one that is wrong is ignored whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from rl_otel import semconv
from rl_otel._safety import pass_on, say

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

#: What stands for a span whose name is its user's own.
OWN_PHASE: Final = "phase"

_MEMBER: Final = "rl_otel"
_VERSION: Final = "1"
_KEYS: Final = (PARENT, STATE, BAGGAGE)
_KINDS: Final = frozenset({
    semconv.STEP, semconv.TRAJECTORY, semconv.GENERATE, semconv.ENV_STEP, semconv.ENV_RESET, OWN_PHASE, *semconv.PHASES,
})  # fmt: skip
_MOST_KEYS: Final = 10_000  # of a carrier that are looked at
_LONGEST: Final = 8192  # characters of one value
_OTHERS: Final = 512  # characters of other members that are passed on: what the specification asks for
_NAME: Final = 64  # characters of a phase's name

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_FIELDS: Final = re.compile(
    r"1;k:([a-z_.]+)(;t:1)?(?:;f:([01]))?(?:;s:(-?[0-9]{1,19})(?:;n:([1-9][0-9]{0,8}))?)?(?:;m:(eval))?"
    r"(?:;v:(-?[0-9]{1,19}))?(?:;w:([0-9a-f]{32})-([0-9a-f]{16}))?(?:;p:([A-Za-z0-9_.%~-]+))?(?:;[a-eg-jloqrux-z]:.*)?"
)
_INT64: Final = 1 << 63
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16

_ignored: Final = count(1)


class Origin(NamedTuple):
    """Where something comes from: a span of this or another process, and what its children have to know of it."""

    trace: bytes
    span: bytes
    sampled: bool  # whether spans of ours inside are sent, as far as the budget allows
    detail: bool  # whether services that we know nothing of shall send theirs
    kind: str = ""  # the span's name, `phase` for one of its user's own; empty for a span that is not ours
    inside: bool = False  # whether it is, or is inside, a trajectory
    step: int | None = None
    opening: int = 1  # which opening of that step
    mode: str | None = None
    version: int | None = None  # of the policy
    sync: tuple[bytes, bytes] | None = None  # the weight_sync which that came from
    phase: str = ""  # what the loop was doing
    others: str = ""  # members of tracestate that are not ours


_UNKNOWN: Final = tuple(Origin._field_defaults.values())[:-1]  # what is not told of a span that is not ours
_STEP: Final = Origin._fields.index("step")
_OTHERS_AT: Final = Origin._fields.index("others")


class _Wrong(Exception):
    """What is wrong with a carrier."""


# --- writing ----------------------------------------------------------------------------------------------------------


def written(origin: Origin) -> tuple[str, str]:
    """Return an origin as `traceparent` and `tracestate`."""
    parent = f"00-{origin.trace.hex()}-{origin.span.hex()}-0{origin.detail:d}"
    if not origin.kind:
        return parent, origin.others
    member = f"{_MEMBER}={_fields(origin)}"
    return parent, f"{member},{origin.others}" if origin.others else member


def _fields(origin: Origin) -> str:
    inside = ";t:1" if origin.inside and origin.kind != semconv.TRAJECTORY else ""
    differs = "" if origin.sampled is origin.detail else f";f:{origin.sampled:d}"
    common = _common(origin[_STEP:_OTHERS_AT])
    return f"{_VERSION};k:{origin.kind}{inside}{differs}{common}"


@lru_cache(maxsize=64)
def _common(fields: tuple[Any, ...]) -> str:
    """Return the fields that all carriers of a step have alike: those of an origin from `step` on."""
    step, opening, mode, version, sync, phase = fields
    told = {
        "s": step,
        "n": opening if step is not None and opening != 1 else None,
        "m": mode,
        "v": version,
        "w": None if sync is None else f"{sync[0].hex()}-{sync[1].hex()}",
        "p": _quoted(phase) or None,
    }
    return "".join(f";{key}:{value}" for key, value in told.items() if value is not None)


def _quoted(name: str) -> str:
    text = quote(name, safe="", errors="replace")
    return text if len(text) <= _NAME else semconv.OTHER


def bagged(run_id: str | None, step: int | None) -> str:
    """Return what W3C baggage says of a run, and of a step in it."""
    told = {semconv.RUN_ID: run_id, semconv.STEP_INDEX: step}
    return ",".join(f"{key}={quote(str(value), safe='')}" for key, value in told.items() if value is not None)


# --- reading ----------------------------------------------------------------------------------------------------------


def read(carrier: Any) -> Origin | None:
    """Return what a carrier tells; None where it tells nothing, or nothing that can be believed."""
    try:
        if carrier is None or isinstance(carrier, Origin):
            return carrier
        parent, state = _values(carrier)
        return None if parent is None else _origin(parent, state)
    except _Wrong as wrong:
        _ignore(str(wrong))
    except Exception as error:  # of a mapping of the host's
        pass_on(error)
        _ignore(f"it cannot be read ({type(error).__name__})")
    return None


def _ignore(why: str) -> None:
    say("carrier", "rl_otel: a carrier of another process's context is ignored, %d so far: %s", next(_ignored), why)


def _values(carrier: Any) -> tuple[str | None, str]:
    """Return traceparent and tracestate."""
    if type(carrier) is dict and type(parent := carrier.get(PARENT)) is str:
        state, baggage = carrier.get(STATE, ""), carrier.get(BAGGAGE, "")
        if type(state) is type(baggage) is str:
            _check(parent, state, baggage)
            return parent, state
    found: dict[str, list[str]] = {key: [] for key in _KEYS}
    for key, value in islice(_pairs(carrier), _MOST_KEYS):
        name = _key(key)
        if name in found:
            found[name] += map(_text, value if isinstance(value, (list, tuple)) else [value])
    if len(set(found[PARENT])) > 1:
        raise _Wrong("it has several traceparents")
    state = ",".join(found[STATE])
    _check(*found[PARENT], state, *found[BAGGAGE])
    return next(iter(found[PARENT]), None), state


def _pairs(carrier: Any) -> Iterator[tuple[Any, Any]]:
    items = getattr(carrier, "items", None)
    return iter(items() if items is not None else carrier)


def _key(key: Any) -> str:
    if isinstance(key, bytes) and len(key) <= len(PARENT):
        key = key.decode("latin-1")
    return key.lower() if isinstance(key, str) and len(key) <= len(PARENT) else ""


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value[: _LONGEST + 1].decode("latin-1")
    if not isinstance(value, str):
        raise _Wrong("a value in it is no text")
    return value


def _check(*values: str) -> None:
    for value in values:
        if len(value) > _LONGEST:
            raise _Wrong(f"a value in it has more than {_LONGEST:,} characters")
        if not (value.isascii() and value.isprintable()):
            raise _Wrong("a value in it has control characters")


def _origin(parent: str, state: str) -> Origin:
    matched = _TRACEPARENT.fullmatch(parent) or _TRACEPARENT.fullmatch(parent.strip())
    if matched is None:
        raise _Wrong("its traceparent is torn")
    version, trace, span, flags, more = matched.groups()
    if version != "00" or more is not None:
        raise _Wrong("its traceparent is of another version")
    ids = _ids(trace, span)
    detail = bool(int(flags, 16) & 1)
    sampled, told = _told(state) if state else (None, ())
    return Origin(*ids, detail if sampled is None else sampled, detail, *told)


@lru_cache(maxsize=64)  # the carriers of a step differ in their ids, mostly
def _told(state: str) -> tuple[bool | None, tuple[Any, ...]]:
    """Return whether our spans are sampled, where that is told, and the fields of an origin from `kind` on."""
    members = [member.strip() for member in state.split(",")]
    ours = [member for member in members if member.startswith(f"{_MEMBER}=")]
    others = ",".join(member for member in members if member and member not in ours)
    if len(ours) > 1:
        raise _Wrong("its tracestate has several members of rl_otel")
    sampled, told = _fields_of(ours[0].partition("=")[2]) if ours else (None, _UNKNOWN)
    return sampled, (*told, others if len(others) <= _OTHERS else "")


def _fields_of(member: str) -> tuple[bool | None, tuple[Any, ...]]:
    if member.partition(";")[0] != _VERSION:
        raise _Wrong("it was written by another version of rl_otel")
    matched = _FIELDS.fullmatch(member)
    if matched is None or matched[1] not in _KINDS:
        raise _Wrong("its member of rl_otel is torn")
    kind, inside, sampled, step, opening, mode, version, trace, span, phase = matched.groups()
    return None if sampled is None else sampled == "1", (
        kind,
        kind == semconv.TRAJECTORY or inside is not None,
        _number(step),
        int(opening or 1),
        mode,
        _number(version),
        None if trace is None else _ids(trace, span),
        unquote(phase or "")[:_NAME],
    )


def _number(digits: str | None) -> int | None:
    number = None if digits is None else int(digits)
    if number is not None and not -_INT64 <= number < _INT64:
        raise _Wrong("a number in it has more than 64 bits")
    return number


def _ids(trace: str, span: str) -> tuple[bytes, bytes]:
    if trace == _NO_TRACE or span == _NO_SPAN:
        raise _Wrong("its ids are zero")
    return bytes.fromhex(trace), bytes.fromhex(span)
