"""Generators that follow a program, and consumers that follow a script: whatever may happen between the two."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import sys
import traceback
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator

#: What a generator does next, and what its consumer does.
STATEMENTS = ("plain", "guarded", "stubborn", "translated", "afterwards", "finally", "pause", "raise", "return")
ERRORS = {
    kind.__name__: kind
    for kind in (ValueError, GeneratorExit, StopIteration, StopAsyncIteration, asyncio.CancelledError)
}
OPERATIONS = ("next", "send", "close", *ERRORS)


def body(program: list[str], log: list[Any]) -> Generator[Any, Any, Any]:  # noqa: PLR0912 - a list of cases
    for place, statement in enumerate(program):
        log.append(statement)
        if statement == "plain":
            log.append((yield place))
        elif statement == "guarded":
            try:
                log.append((yield place))
            except BaseException as error:
                log.append(described(error))
        elif statement == "stubborn":
            try:
                yield place
            except BaseException:
                yield "still here"
        elif statement == "translated":
            try:
                yield place
            except BaseException as error:
                raise KeyError(place) from error
        elif statement == "afterwards":
            try:
                yield place
            except BaseException:
                log.append("over")
            raise LookupError(place)
        elif statement == "finally":
            try:
                yield place
            finally:
                log.append("cleaned")
        elif statement == "raise":
            raise OSError(place)
        elif statement == "return":
            return place
    return "end"


async def async_body(program: list[str], log: list[Any]) -> AsyncGenerator[Any, Any]:  # noqa: PLR0912 - as above
    for place, statement in enumerate(program):
        log.append(statement)
        if statement == "plain":
            log.append((yield place))
        elif statement == "guarded":
            try:
                log.append((yield place))
            except BaseException as error:
                await Pause()
                log.append(described(error))
        elif statement == "stubborn":
            try:
                yield place
            except BaseException:
                yield "still here"
        elif statement == "translated":
            try:
                yield place
            except BaseException as error:
                raise KeyError(place) from error
        elif statement == "afterwards":
            try:
                yield place
            except BaseException:
                log.append("over")
            raise LookupError(place)
        elif statement == "finally":
            try:
                yield place
            finally:
                await Pause()
                log.append("cleaned")
        elif statement == "pause":
            await Pause()
        elif statement == "raise":
            raise OSError(place)
        elif statement == "return":
            return


class Pause:
    """What an event loop would wait for."""

    def __await__(self) -> Generator[Any, Any, Any]:
        yield


def driven(awaitable: Awaitable[Any]) -> Any:
    steps = awaitable.__await__()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


_FIRST_LINES = {function.__code__.co_firstlineno for function in (body, async_body)}


def described(error: BaseException | None) -> Any:
    """Return what can be told of an exception: itself, why it came about, and its frames in the generator."""
    if error is None:
        return None
    frames = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.name in ("body", "async_body")]
    # Thrown in before the first step it never comes to the generator, decorated or not: no line of it is told.
    frames = [frame for frame in frames if frame[1] not in _FIRST_LINES]
    return type(error), error.args, described(error.__cause__), described(error.__context__), frames


def observed(operation: Callable[[], Any]) -> Any:
    try:
        return operation()
    except BaseException as error:
        return described(error)


def played(generator: Any, script: list[str]) -> list[Any]:
    """Return what the consumer sees of a generator, one operation after another, until it is closed."""
    if inspect.isasyncgen(generator):
        send, throw, close = (
            lambda value: driven(generator.asend(value)),
            lambda error: driven(generator.athrow(error)),
            lambda: driven(generator.aclose()),
        )
    else:
        send, throw, close = generator.send, generator.throw, generator.close
    seen = []
    for number, name in enumerate([*script, "close", "close"]):
        if name == "close":
            seen.append(observed(close))
        elif name in ("next", "send"):
            seen.append(observed(lambda value=None if name == "next" else number: send(value)))
        else:
            error = ERRORS[name](number)
            seen.append(observed(lambda error=error: throw(error)))
    return seen


def freed_at_once(kind: type[BaseException], fail: Callable[[], Any]) -> bool:
    """Return whether the exception that `fail` raises goes once it is caught, without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        try:
            fail()
        except kind as error:
            gone = weakref.ref(error)
        return gone() is None
    finally:
        gc.enable()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Keep Python from telling that a generator was collected which would not be closed."""
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = before
