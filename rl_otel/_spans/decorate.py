"""Openers as decorators: of functions, coroutine functions, generators and async generators.

Each call gets a handle of its own. The wrappers hold nothing but the opener and the function, and look everything
else up when called, so that cloudpickle takes them to other processes.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_otel._spans.span import Span


def decorated(opener: Span, function: Any) -> Any:
    """Return `function` with a span around each call; a generator's span lasts until it is exhausted or closed."""
    if isinstance(function, staticmethod | classmethod):
        return type(function)(decorated(opener, function.__func__))
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
        generator = function(*args, **kwargs)
        given = _Given(generator.send, generator.throw)
        with _Apart(opener.fresh()) as context:
            while True:
                try:
                    passing = [context.run(given)]
                except StopIteration as stop:
                    return stop.value
                try:
                    given.value = yield passing.pop()
                except BaseException as error:
                    given.error = error

    return wrapper


def _async_generator(opener: Span, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        given = _Given(generator.asend, generator.athrow)
        with _Apart(opener.fresh()) as context:
            while True:
                try:
                    passing = [await _within(context, given)]
                except StopAsyncIteration:
                    return
                try:
                    given.value = yield passing.pop()
                except BaseException as error:
                    given.error = error

    return wrapper


class _Apart:
    """A span that is open in a context of its own, so that it does not leak to who consumes a generator."""

    def __init__(self, span: Span) -> None:
        self._context = contextvars.copy_context()
        self._span = span

    def __enter__(self) -> contextvars.Context:
        self._context.run(self._span.__enter__)
        return self._context

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._context.run(self._span.end, error)


class _Given:
    """Resumes a generator with what its consumer gave: a value, or an exception.

    It lets go of both, as what is yielded is only passing: a batch must not live longer because it is traced, and an
    exception that its own traceback leads to waits for the garbage collector.
    """

    def __init__(self, send: Callable[[Any], Any], throw: Callable[[BaseException], Any]) -> None:
        self._send = send
        self._throw = throw
        self.value: Any = None
        self.error: BaseException | None = None

    def __call__(self) -> Any:
        value, error, self.value, self.error = self.value, self.error, None, None
        try:
            return self._send(value) if error is None else self._throw(error)
        finally:
            del value, error


@types.coroutine
def _within(context: contextvars.Context, function: Callable[[], Awaitable[Any]]) -> Generator[Any, Any, Any]:
    """Await what `function` returns, each step of it in `context`."""
    return (yield from _Steps(context, context.run(function).__await__()))


class _Steps:
    """The steps of an awaitable, each in `context`. Once it is over, a traceback leads no further than to here."""

    def __init__(self, context: contextvars.Context, steps: Generator[Any, Any, Any]) -> None:
        self._context = context
        self._steps = steps

    def __iter__(self) -> _Steps:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        try:
            return self._context.run(self._steps.send, value)
        except BaseException:
            del self._steps
            raise

    def throw(self, *error: Any) -> Any:
        try:
            return self._context.run(self._steps.throw, *error)
        except BaseException:
            del self._steps
            raise
        finally:
            del error

    def close(self) -> None:
        self._context.run(self._steps.close)


def bind(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` as it runs inside the spans that are open here, for an executor or a thread of one's own.

    Of a coroutine function each step of the coroutine runs so.
    """
    context = contextvars.copy_context()
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def bound(*args: Any, **kwargs: Any) -> Any:
            return await _within(context.copy(), functools.partial(function, *args, **kwargs))

    else:

        @functools.wraps(function)
        def bound(*args: Any, **kwargs: Any) -> Any:
            # A copy for each call: one context cannot be entered by two threads at once.
            return context.copy().run(function, *args, **kwargs)

    return bound
