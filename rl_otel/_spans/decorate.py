"""Openers as decorators: of functions, coroutine functions, generators and async generators.

Each call gets a handle of its own. The wrappers hold nothing but the opener and the function, and look everything
else up when called, so that cloudpickle takes them to other processes.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_otel._spans.span import Span


def decorated(opener: Span, function: Any) -> Any:
    """Return `function` with a span around each call; a generator's span lasts until it is exhausted or closed."""
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator(opener, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(opener, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(opener, function)
    else:
        wrapper = _function(opener, function)
    return functools.wraps(function)(wrapper)


def _function(opener: Span, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with opener.fresh():
            return function(*args, **kwargs)

    return wrapper


def _coroutine(opener: Span, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with opener.fresh():
            return await function(*args, **kwargs)

    return wrapper


def _generator(opener: Span, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from resumed(opener.fresh(), function(*args, **kwargs)))

    return wrapper


def _async_generator(opener: Span, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = async_resumed(opener.fresh(), function(*args, **kwargs))
        try:
            value = await generator.asend(None)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    raise
                except BaseException as error:
                    value = await generator.athrow(error)
                else:
                    value = await generator.asend(sent)
        except StopAsyncIteration:
            return
        finally:
            await generator.aclose()

    return wrapper


def resumed(span: Span, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run `generator` inside `span`, each resume in a context of its own, so that none leaks to who consumes it."""
    context = contextvars.copy_context()
    context.run(span.start)
    ended: BaseException | None = None
    try:
        return (yield from _Resumed(context, generator))
    except BaseException as error:
        ended = error
        raise
    finally:
        context.run(span.end, ended)


class _Resumed:
    """A generator whose every resume runs in `context`."""

    def __init__(self, context: contextvars.Context, generator: Any) -> None:
        self._context = context
        self._generator = generator

    def __iter__(self) -> _Resumed:
        return self

    def __next__(self) -> Any:
        return self._context.run(next, self._generator)

    def send(self, value: Any) -> Any:
        return self._context.run(self._generator.send, value)

    def throw(self, *error: Any) -> Any:
        return self._context.run(self._generator.throw, *error)

    def close(self) -> None:
        self._context.run(self._generator.close)


class async_resumed:  # noqa: N801 - it stands beside `resumed`
    """The same for an async generator."""

    def __init__(self, span: Span, generator: AsyncGenerator[Any, Any]) -> None:
        self._span = span
        self._generator = generator
        self._context = contextvars.copy_context()
        self._context.run(span.start)

    async def asend(self, value: Any) -> Any:
        """Resume the generator with `value`."""
        return await self._step(self._generator.asend(value))

    async def athrow(self, error: BaseException) -> Any:
        """Resume the generator with an exception."""
        return await self._step(self._generator.athrow(error))

    async def aclose(self) -> None:
        """Close the generator, and end the span if that has not happened."""
        try:
            await _InContext(self._context, self._generator.aclose())
        finally:
            self._context.run(self._span.end, None if self._span.ended else GeneratorExit())

    async def _step(self, resume: Awaitable[Any]) -> Any:
        try:
            return await _InContext(self._context, resume)
        except StopAsyncIteration:
            self._context.run(self._span.end)
            raise
        except BaseException as error:
            self._context.run(self._span.end, error)
            raise


class _InContext:
    """An awaitable whose every step runs in `context`."""

    def __init__(self, context: contextvars.Context, awaitable: Awaitable[Any]) -> None:
        self._context = context
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from _Resumed(self._context, self._awaitable.__await__()))


def bind(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` as it runs inside the spans that are open here, for an executor or a thread of one's own.

    Of a coroutine function each step of the coroutine runs so.
    """
    context = contextvars.copy_context()
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def bound(*args: Any, **kwargs: Any) -> Any:
            return await _InContext(context.copy(), function(*args, **kwargs))

    else:

        @functools.wraps(function)
        def bound(*args: Any, **kwargs: Any) -> Any:
            # A copy for each call: one context cannot be entered by two threads at once.
            return context.copy().run(function, *args, **kwargs)

    return bound
