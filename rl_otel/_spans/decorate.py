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
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.context import get_current

from rl_otel import _values
from rl_otel._spans import ambient, misuse

if TYPE_CHECKING:
    from rl_otel._spans.role import Role
    from rl_otel._spans.span import Function, Span


def decorated(opener: Span | Role, function: Any) -> Any:
    """Return `function` with a span around each call; a generator's span lasts until it is exhausted or closed."""
    if isinstance(function, staticmethod | classmethod):
        return type(function)(decorated(opener, function.__func__))
    if not callable(function):
        raise TypeError(f"{misuse.called(type(opener))} decorates functions; it was given {_values.shown(function)}")
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator(opener, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(opener, function)
    elif _is_coroutine_function(function):
        wrapper = _coroutine(opener, function)
    else:
        wrapper = _function(opener, function)
    return functools.wraps(function)(wrapper)


def _is_coroutine_function(function: Any) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)


def _function(opener: Span | Role, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        span = opener.fresh().start()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            span.end(error)
            raise
        if isinstance(result, types.CoroutineType) and span.recording:
            lasting = cast("Span", span)
            ambient.leave(lasting)
            return _lasting(lasting, result)
        span.end()
        return result

    return wrapper


async def _lasting(span: Span, coroutine: Awaitable[Any]) -> Any:
    """Await a coroutine that a plain function returned; the span that is open since then ends with it."""
    try:
        ambient.enter(span, get_current())
        return await coroutine
    except BaseException as error:
        span.end(error)
        raise
    finally:
        span.end()


def _coroutine(opener: Span | Role, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with opener.fresh():
            coroutine = function(*args, **kwargs)
            del args, kwargs  # what is passed on is not held here
            return await coroutine

    return wrapper


def _generator(opener: Span | Role, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        del args, kwargs
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


def _async_generator(opener: Span | Role, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        del args, kwargs
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
                    if generator.ag_frame is None:  # closed before by somebody else: it is fine with it again
                        raise
                    given.error = error

    return wrapper


class _Apart:
    """A span that is open in a context of its own, so that it does not leak to who consumes a generator."""

    def __init__(self, span: Span | Role) -> None:
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


def bind(function: Function) -> Function:
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

    return cast("Function", bound)
