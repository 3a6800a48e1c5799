"""What every span of ours is: context manager, decorator, `start`/`end`, and the handle that takes `record`.

A handle is made by its opener (`generate(...)` makes a `Generate`), begins when it is entered and writes one record
to the journal when it is left. Nothing of ours raises into the host: each public method is a boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from opentelemetry.context import get_current

from rl_otel import _ids, _record, _runtime, _safety, _values, semconv
from rl_otel._clock import now
from rl_otel._deferred import Deferred
from rl_otel._safety import say, swallow
from rl_otel._spans import ambient
from rl_otel._spans.otel import OtelSpan, message_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext
    from typing_extensions import Self

    from rl_otel._runtime import Runtime
    from rl_otel._spans.gather import Gathering
    from rl_otel._spans.step import Step

_SHORT = 256  # characters of a text that needs no look

Function = TypeVar("Function", bound=Callable[..., Any])


class Span(OtelSpan):
    """One span: opened by `with`, by `.start()`, or around each call of a function it decorates.

    The class attributes are what holds until a handle has begun, so that beginning sets only what differs.
    """

    name: str = ""
    words: ClassVar[Mapping[str, semconv.Word]] = {}
    #: Where it belongs: directly inside one of these.
    places: ClassVar[tuple[str, ...]] = ()

    enclosing: Span | None = None
    outside: Context
    inside: Context | None = None
    step: Step | None = None
    gathering: Gathering | None = None  # where the figures of calls and trajectories inside it are gathered
    began: int = 0
    finished: int = 0
    mode: str | None = None
    added = False  # recorded afterwards, by `add`

    _runtime: Runtime | None = None
    _parent: bytes = b""
    _deferred: dict[str, tuple[semconv.Word, Deferred]] | None = None  # by attribute

    # --- for the host ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        runtime = _runtime.active
        if runtime is not None:
            try:
                self._begin(runtime)
            except Exception as error:
                swallow(f"{self.name} entered", error)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        runtime = self._runtime
        if runtime is not None and not self.finished:
            try:
                self._finish(runtime, error)
            except Exception as internal:
                swallow(f"{self.name} left", internal)

    def start(self) -> Self:
        """Begin the span where no `with` can stand, as in a callback; `end` ends it."""
        return self.__enter__()

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with the exception that ended it if there was one."""
        self.__exit__(None, error, None)

    def __call__(self, function: Function) -> Function:
        """Decorate a function, coroutine function, generator or async generator: each call is a span of its own."""
        from rl_otel._spans.decorate import decorated  # decorating is rare, and needs inspect

        return cast(Function, decorated(self, function))

    def record(self, mapping: Mapping[str, Any] | None = None, /, **words: Any) -> None:
        """Add what is known now: words of this span, or a mapping for names that are no words. Later values win."""
        if self._runtime is None:
            return
        try:
            if self.finished:
                say(f"record {self.name}", "rl_otel: record() on a %s that has ended is not recorded", self.name)
            elif mapping is None:
                self._take_all(words)
            else:
                self._take_all({**mapping, **words})
        except Exception as error:
            swallow(f"record() of {self.name}", error)

    @property
    def trace_id(self) -> str:
        """The trace's id in hex, to keep beside a saved trajectory; empty when nothing is traced."""
        return self._trace.hex()

    @property
    def span_id(self) -> str:
        """The span's id in hex; empty when nothing is traced."""
        return self._span.hex()

    # --- for its neighbours -------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether it is over (or never began)."""
        return self.finished != 0

    @property
    def recording(self) -> bool:
        """Whether it is open and traced."""
        return self._runtime is not None and not self.finished

    def within(self, other: object) -> bool:
        """Whether `other` encloses this span."""
        span: Span | None = self
        while span is not None:
            if span is other:
                return True
            span = span.enclosing
        return False

    @property
    def attributes(self) -> dict[str, Any]:
        """What has been recorded so far."""
        return self._attributes

    def start_record(self) -> _record.Start:
        """What a journal says of a span that has only begun, so that a crash shows what was open."""
        return _record.Start(
            self._trace, self._span, self._parent, self.name, self.began, dict(self._attributes), self._flags
        )

    def fresh(self) -> Self:
        """Return a handle like this one that has not begun; decorators make one for each call."""
        return type(self)(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return what the opener was called with; subclasses keep each argument under its own name."""
        return {}

    def __reduce__(self) -> Any:
        return (_remade, (type(self), self.arguments()))

    # --- beginning ----------------------------------------------------------------------------------------------------

    def _begin(self, runtime: Runtime) -> None:
        enclosing = ambient.current()
        if self._runtime is not None:
            enclosing = self._again(enclosing)
        before = get_current()
        # Between us and the span around us another library may have opened one of its own.
        direct = enclosing is not None and before is enclosing.inside
        self.begin_at(runtime, enclosing, None if direct else ambient.foreign_parent(before))
        self._watch(runtime)
        ambient.enter(self, before)

    def begin_at(self, runtime: Runtime, enclosing: Span | None, foreign: SpanContext | None) -> None:
        """Take a place inside `enclosing` and another library's span there, without becoming the current span."""
        self._attributes = {}
        self._settle_in(enclosing, runtime)
        if foreign is not None:
            self._beneath(foreign)
        self._runtime = runtime
        self.enclosing = enclosing
        self.began = now()
        self._opened(runtime)

    def _again(self, enclosing: Span | None) -> Span | None:
        """Become a handle that has not begun: used twice in a row it is a new span each time."""
        if not self.finished:
            say(f"twice {self.name}", "rl_otel: %s entered twice; make a new one for each `with`", self.name)
            self.end()
        while enclosing is not None and enclosing.within(self):  # nothing is inside itself
            enclosing = ambient.nearest(enclosing.enclosing)
        arguments = self.arguments()
        self.__dict__.clear()
        self.__init__(**arguments)  # type: ignore[misc]
        return enclosing

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        """Take identity, step and mode from the span around it; a root makes its own."""
        self._span = _ids.span_id()
        if enclosing is None:
            self._root(_ids.trace_id(), runtime)
        else:
            self._child_of(enclosing)
            if enclosing.name not in self.places and not self._fits(enclosing):
                self._out_of_place(enclosing)

    def _root(self, trace: bytes, runtime: Runtime) -> None:
        self._trace = trace
        self._flags = _record.SAMPLED if runtime.samples(trace) else 0

    def _child_of(self, enclosing: Span) -> None:
        self._trace = enclosing._trace
        self._parent = enclosing._span
        self._flags = enclosing._flags & _record.SAMPLED
        self.step = step = enclosing.step
        self.gathering = enclosing.gathering
        if step is not None:
            self._attributes[semconv.STEP_INDEX] = step.index
        if enclosing.mode is not None:
            self.mode = self._attributes[semconv.MODE] = enclosing.mode

    def _beneath(self, foreign: SpanContext) -> None:
        """Another library's span is current: become its child within one trace, else link to it."""
        trace, span = foreign.trace_id.to_bytes(16, "big"), foreign.span_id.to_bytes(8, "big")
        if trace == self._trace:
            self._parent = span
        else:
            self._links = [*(self._links or ()), _record.Link(trace, span, {})]

    def _fits(self, enclosing: Span) -> bool:
        """Whether `enclosing` will do though it is none of `places`; with nothing around it a span is in place."""
        return False

    def _out_of_place(self, enclosing: Span) -> None:
        say(
            f"place {self.name} {enclosing.name}",
            "rl_otel: %s was opened directly inside %s and is recorded there; it belongs into %s",
            self.name,
            enclosing.name,
            " or ".join(self.places) or "no other span",
        )

    def _opened(self, runtime: Runtime) -> None:
        """Set the first attributes; subclasses do."""

    def _watch(self, runtime: Runtime) -> None:
        """Note what is open, for whoever watches a running step; subclasses do."""

    def _unwatch(self, runtime: Runtime) -> None:
        """Undo `_watch`."""

    # --- recording ----------------------------------------------------------------------------------------------------

    def _take_all(self, words: Mapping[str, Any]) -> None:
        known, attributes = self.words, self._attributes
        for name, value in words.items():
            word = known.get(name)
            if word is not None and type(value) is word.type:
                if word.type is not str:
                    attributes[word.attribute] = value
                    continue
                if isinstance(value, str) and len(value) < _SHORT and value.isascii():
                    attributes[word.attribute] = [value] if word.many else value
                    continue
            try:
                self._take(name, word, value)
            except Exception as error:  # the words beside it are none the worse
                swallow(f"record({name!r}) of {self.name}", error)

    def _take(self, name: str, word: semconv.Word | None, value: Any) -> None:
        """Set a value that is not just what its word expects: convert it, or wait for it."""
        if word is None:
            if _safety.strict_words:
                raise TypeError(f"{name!r} is no word of {self.name}; it knows {', '.join(self.words) or 'none'}")
            word = semconv.Word(semconv.CUSTOM + _values.text(str(name), 128), object)
        try:
            plain = _values.as_type(value, word.type)
        except _values.Unreadable:
            self._attributes.pop(word.attribute, None)  # what is set from now on is the later value
            self._deferred = {**(self._deferred or {}), word.attribute: (word, Deferred(value))}
            return
        if plain is not None:
            self._put(word, plain, self._attributes)

    def _put(self, word: semconv.Word, plain: Any, attributes: dict[str, Any]) -> None:
        """Set a value that is no exact match of its word: a list, a converted number, a string, one that came late."""
        if type(plain) is list and word.type is not object and not (word.many and word.type is str):
            plain = _summed(word, plain)
        elif type(plain) is str and word.many and word.type is str:
            plain = [plain]
        if plain is not None:
            attributes[word.attribute] = plain

    # --- ending -------------------------------------------------------------------------------------------------------

    def _finish(self, runtime: Runtime, error: BaseException | None) -> None:
        end = now()
        end = max(end, self.began)
        self.finished = end
        try:
            self._unwatch(runtime)
            if error is not None:
                self._fail(error)
            self._closed(end)
        finally:  # an error of ours costs figures, neither the span nor the host its context
            ambient.leave(self)
            self._write(runtime, end)

    def end_at(self, start: int, end: int) -> None:
        """End a span that is only known afterwards; what happened inside it is not known."""
        self.added = True
        self.began, self.finished = start, end
        self._closed(end)
        if self._runtime is not None:
            self._write(self._runtime, end)

    def _fail(self, error: BaseException) -> None:
        # What is no Exception was asked for: a cancellation, Ctrl-C, a generator left early, sys.exit.
        if planned(error):
            self._attributes[semconv.ABORTED] = type(error).__qualname__
            return
        message = message_of(error)
        self._status = _record.ERROR
        self._message = f"{type(error).__qualname__}: {message}" if message else type(error).__qualname__
        self._attributes[semconv.ERROR_TYPE] = type(error).__qualname__
        what = {semconv.EXCEPTION_TYPE: type(error).__qualname__, semconv.EXCEPTION_MESSAGE: message}
        self._events = [*(self._events or ()), _record.Event(semconv.EXCEPTION, self.finished, what)]

    def _closed(self, end: int) -> None:
        """Hand figures to what is around it, and set the last attributes; subclasses add theirs."""

    def _write(self, runtime: Runtime, end: int) -> None:
        awaited = self._due() if self._deferred else None
        if awaited:
            self._flags |= _record.AWAITED
        runtime.journal.end(
            _record.End(
                self._trace,
                self._span,
                self._parent,
                self.name,
                self.began,
                end,
                self._attributes,
                self._flags,
                self._status,
                self._message,
                self._links or [],
                self._events or [],
            )
        )
        if awaited:
            runtime.defer(self._span, self._put, awaited)

    def _due(self) -> list[tuple[semconv.Word, Deferred]]:
        """Return the values to wait for: those that were not recorded anew since."""
        return [due for attribute, due in (self._deferred or {}).items() if attribute not in self._attributes]


def planned(error: BaseException) -> bool:
    """Whether `error` is somebody's decision to stop, not a failure."""
    return not isinstance(error, Exception) or type(error).__name__ == "CancelledError"


def _summed(word: semconv.Word, values: list[Any]) -> Any:
    """Return one value for a batch: counts add up, flags hold if all do, figures are averaged."""
    if not values or not all(isinstance(value, int | float) for value in values):
        return None
    if word.type is bool:
        return all(values)
    return sum(values) if word.type is int else sum(values) / len(values)


def _remade(kind: type[Span], arguments: dict[str, Any]) -> Span:
    return kind(**arguments)
