"""What is said to who uses a handle in a way nobody meant; the lines name the call and the way out.

Only a decorator without its brackets raises, where the program is being written: it would run nothing of what it
decorates.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from rl_otel import _runtime, _values, semconv
from rl_otel._safety import nearest, pass_on, say, say_once

if TYPE_CHECKING:
    from typing import NoReturn

    from rl_otel._spans.role import Role
    from rl_otel._spans.span import Span
    from rl_otel._timeline import Open

_FUNCTIONS: Final = (FunctionType, MethodType, staticmethod, classmethod)


class Opener(type):
    """The type of the openers: it knows who forgot the brackets of a `with`."""

    if not TYPE_CHECKING:  # for a type checker an opener without brackets is no context manager

        def _forgotten(cls, *_: object) -> NoReturn:
            raise TypeError(f"write `with {called(cls)}:`, with brackets")

        __enter__ = __exit__ = __aenter__ = __aexit__ = _forgotten


def called(kind: type[Span | Role]) -> str:
    """Return how the training program calls an opener."""
    return f"rl_otel.{opener(kind.name)}()" if kind.name else 'rl_otel.phase("name")'


def opener(name: str) -> str:
    """Return the opener's name of the spans of that `name`."""
    return semconv.OPENERS.get(name, name)


def kind_of(span: Open) -> str:
    """Return the name of the spans of this type: a key of log lines has no names of the host's own, which never end."""
    return str(getattr(type(span), "name", "")) or "phase"


def check_brackets(kind: type[Span | Role], *given: object) -> None:
    """Look at what an opener was given by position and cannot take.

    Raises:
        TypeError: it is the function to decorate, since the brackets were forgotten.
    """
    for value in given:
        if issubclass(type(value), _FUNCTIONS):  # never asked for its class: proxies of frameworks may raise
            raise TypeError(f"write @{called(kind)} with brackets, above {getattr(value, '__name__', 'the method')}()")


def words_for(value: object, limit: int = _values.MAX_LENGTH) -> str:
    """Return what names a span, as text; objects of the host may fail to say anything."""
    if type(value) is str and len(value) <= limit and value.isascii():
        return value
    try:
        return _values.text(str(value), limit)
    except Exception as error:
        pass_on(error)
        return f"<{type(value).__name__}>"


def takes_no(kind: type[Span], given: tuple[object, ...]) -> NoReturn:
    """Refuse arguments by position where an opener takes none, as Python does.

    Raises:
        TypeError: always.
    """
    check_brackets(kind, *given)
    raise TypeError(f"{called(kind)} takes its arguments by name; it was given {_values.shown(given[0])}")


def argument(span: Span, word: str, value: object, type_: type) -> Any:
    """Return an argument of the span's opener as one scalar of `type_`; None for no value, and for a wrong one."""
    try:
        return _values.argument(value, type_)
    except _values.Unfit as wanted:
        say(
            f"argument {kind_of(span)} {word}",
            "rl_otel: %s(%s=%s): not a %s, left out",
            opener(span.name),
            word,
            _values.shown(value),
            wanted,
        )
        return None


def none_of(span: Span, word: str, value: object, known: tuple[str, ...]) -> None:
    """Tell that a value is none of those that figures and metrics know."""
    say(
        f"none of {kind_of(span)} {word}",
        "rl_otel: %s: %s=%s is none of %s, and is left out",
        opener(span.name),
        word,
        _values.shown(value),
        ", ".join(known),
    )


# --- record() ---------------------------------------------------------------------------------------------------------


def not_open(span: Span) -> None:
    """Tell that `record` came too early or too late, where anything is recorded at all."""
    if span.ended:
        say(f"record {kind_of(span)}", "rl_otel: record() on a %s that has ended is not recorded", span.name)
    elif _runtime.active is not None:
        say(
            f"record {kind_of(span)}",
            "rl_otel: record() on a %s that has not begun is not recorded: first configure(), then enter or start() it",
            span.name,
        )


def not_words(span: Span, given: Iterable[object]) -> None:
    """Tell that `record` was given by position what is no mapping."""
    say(
        f"record {kind_of(span)} by position",
        "rl_otel: %s.record(%s): record() takes words, as in record(loss=0.5), or one mapping; this is left out",
        opener(span.name),
        ", ".join(map(_values.shown, given)),
    )


def unfit(span: Span, word: str, value: object, wanted: object) -> None:
    """Tell that a value is not of its word's type."""
    say(
        f"unfit {kind_of(span)} {word}",
        "rl_otel: %s.record(%s=%s): not a %s, left out",
        opener(span.name),
        word,
        _values.shown(value),
        wanted,
    )


def changed(span: Span, word: str, value: object, recorded: object) -> None:
    """Tell that a value had to be rounded."""
    say_once(
        f"changed {kind_of(span)} {word}",
        "rl_otel: %s.record(%s=%r) is recorded as %r: the word takes whole numbers",
        opener(span.name),
        word,
        value,
        recorded,
    )


def custom(span: Span, word: str, attribute: str) -> None:
    """Tell that a word is none of the span's, where it looks like one."""
    meant = nearest(str(word).lower(), tuple(span.words))
    if meant is not None:
        say_once(
            f"meant {kind_of(span)} {meant}",
            "rl_otel: %r is no word of %s and is kept as %s; did you mean %s?",
            word,
            opener(span.name),
            attribute,
            meant,
        )


# --- names ------------------------------------------------------------------------------------------------------------


def unknown(name: str, names: Iterable[str]) -> None:
    """Tell that `current` found no span of a `name` that looks like one of `names`."""
    meant = nearest(name.lower(), tuple(names))
    if meant is not None and _runtime.active is not None:
        say_once(f"current {meant}", "rl_otel: current(%r): no span has that name; did you mean %r?", name, meant)


def part(name: str) -> None:
    """Tell that a part of a weight sync is none that figures know."""
    meant = nearest(name.lower(), semconv.SYNC_PARTS)
    say_once(
        "sync part",
        "rl_otel: weight_sync().part(%r) is kept under that name; parts are %s%s",
        name,
        ", ".join(semconv.SYNC_PARTS),
        f"; did you mean {meant}?" if meant else "",
    )


def phase_name(name: str) -> str:
    """Return `name`, unless figures would take a phase of that name for something else."""
    if name not in semconv.NO_PHASES:
        return name
    say_once(
        f"phase {name}",
        "rl_otel: phase(%r) is recorded as phase.%s, for that name stands for something else in every figure",
        name,
        name,
    )
    return f"phase.{name}"


def out_of_place(span: Span, enclosing: Span) -> None:
    """Tell that a span was opened directly inside one that it does not belong into."""
    *places, last = map(opener, span.places)
    say(
        f"place {kind_of(span)} {kind_of(enclosing)}",
        "rl_otel: %s was opened directly inside %s and is recorded there; open it inside a %s",
        opener(span.name),
        opener(enclosing.name),
        f"{', '.join(places)} or {last}" if places else last,
    )


def step_inside(index: int, enclosing: Span) -> None:
    """Tell that a step began inside another span."""
    around = opener(enclosing.name) if enclosing.step is None else f"step {enclosing.step.index}"
    say(
        f"place step {kind_of(enclosing)}",
        "rl_otel: step %d was opened inside %s, which is still open, and is a trace of its own all the same. If that "
        "is over, leave its `with` or call its .end() first",
        index,
        around,
    )


def beside(phase: Span, other: Open) -> None:
    """Tell that a phase began while another that is not around it was open."""
    say(
        f"overlap {kind_of(phase)} {kind_of(other)}",
        "rl_otel: phase %s began while %s was open beside it; the later one counts as active. Two loops in one "
        "process? Open each inside a role(). Concurrent tasks? Open the phase around them",
        phase.name,
        other.name,
    )


def alone(id_: str) -> None:
    """Tell that a trajectory found nothing around it though a step is open in this process."""
    say_once(
        "trajectory alone",
        "rl_otel: trajectory %s began with nothing around it while a step is open: it is a trace of its own, in no "
        "figure of that step. In a thread or an executor pass the function through rl_otel.bind(); if it belongs to no "
        "step, say detached=True",
        id_,
    )
