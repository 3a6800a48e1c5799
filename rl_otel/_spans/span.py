"""What every span of ours is: context manager, decorator, `start`/`end`, and the handle that takes `record`.

A handle is made by its opener (`generate(...)` makes a `Generate`), begins when it is entered and writes one record
to the journal when it is left. Nothing of ours raises into the host: each public method is a boundary. What changes in
how a span begins and ends changes in `calls.Call` too, which has the usual case of it written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rl_otel import _ids, _record, _runtime, _safety, _values, semconv
from rl_otel._clock import now
from rl_otel._deferred import Deferred
from rl_otel._safety import say, swallow
from rl_otel._spans import ambient, misuse
from rl_otel._spans.otel import OtelSpan
from rl_otel._timeline import get_here

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext
    from typing_extensions import Never, Self

    from rl_otel._overhead import Stopwatch
    from rl_otel._runtime import Runtime
    from rl_otel._spans.gather import Books, Gathering
    from rl_otel._spans.usual import Nest

SHORT = 256  # characters of a text that needs no look

Function = TypeVar("Function", bound=Callable[..., Any])


class Span(OtelSpan, metaclass=misuse.Opener):
    """One span: opened by `with`, by `.start()`, or around each call of a function it decorates.

    The class attributes are what holds until a handle has begun, so that beginning sets only what differs. What few
    spans have is in `extra`.
    """

    name: str = ""
    words: ClassVar[Mapping[str, semconv.Word]] = {}
    #: Where it belongs: directly inside one of these.
    places: ClassVar[tuple[str, ...]] = ()

    enclosing: Span | None = None
    place: ambient.Place | None = None
    outside: Context
    inside: Context | None = None
    step: Books | None = None
    gathering: Gathering | None = None  # where the figures of calls and trajectories inside it are gathered
    began: int = 0
    finished: int = 0
    mode: str | None = None
    added = False  # recorded afterwards, by `add`

    nest: Nest | None = None  # what calls inside it have taken from it

    _runtime: Runtime | None = None
    _unended: list[bool]  # empty once its end has begun
    _stopwatch: Stopwatch | None = None  # of the few whose cost is measured

    # --- for the host ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        runtime = _runtime.active
        if runtime is not None:
            stopwatch = runtime.overhead.call() if runtime.overhead.due else None
            try:
                self._begin(runtime)
            except BaseException as error:
                self._not_begun(runtime, error)
            if stopwatch is not None:
                stopwatch.pause()
                self._stopwatch = stopwatch
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        runtime, stopwatch = self._runtime, self._stopwatch
        if runtime is not None:
            if stopwatch is not None:
                stopwatch.resume()
            try:
                self._finish(runtime, error)
            except BaseException as failure:
                self._not_ended(runtime, error, failure)
            if stopwatch is not None:
                stopwatch.end()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, error, traceback)

    def start(self) -> Self:
        """Begin the span where no `with` can stand, as in a callback; `end` ends it."""
        return self.__enter__()

    def end(self, error: BaseException | None = None, end_time: object = None) -> None:
        """End the span, with the exception that ended it if there was one; OpenTelemetry's `end_time` is ignored."""
        self.__exit__(None, error if isinstance(error, BaseException) else None, None)

    def __call__(self, function: Function) -> Function:
        """Decorate a function, coroutine function, generator or async generator: each call is a span of its own."""
        from rl_otel._spans.decorate import decorated  # decorating is rare, and needs inspect

        return cast(Function, decorated(self, function))

    def record(self, mapping: Mapping[str, Any] | None = None, /, *more: Never, **words: Any) -> None:
        """Add what is known now: words of this span, or a mapping for names that are no words. Later values win."""
        if self._runtime is None:
            if self.finished or _runtime.active is not None:
                misuse.not_open(self)
            return
        stopwatch = self._stopwatch
        if stopwatch is not None:
            stopwatch.resume()
        try:
            if mapping is None:
                self._take_all(words)
            elif more or not hasattr(mapping, "keys"):
                misuse.not_words(self, (mapping, *more))
                self._take_all(words)
            else:
                self._take_all({**mapping, **words})
        except Exception as error:
            swallow(f"record() of {misuse.kind_of(self)}", error)
        if stopwatch is not None:
            stopwatch.pause()

    # --- for its neighbours -------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether it is over (or never began)."""
        return self.finished != 0

    @property
    def recording(self) -> bool:
        """Whether it is open and traced."""
        return self._runtime is not None

    def within(self, other: object) -> bool:
        """Whether `other` encloses this span."""
        span: Span | None = self
        while span is not None and span is not other:
            span = ambient.beyond(span)
        return span is not None

    def anchor(self) -> ambient.Place | Span:
        """Return what stands for this span when those inside it have ended."""
        return self

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
        return partial(type(self), **self.arguments()), ()

    # --- beginning ----------------------------------------------------------------------------------------------------

    def _begin(self, runtime: Runtime) -> None:
        enclosing = ambient.current()
        if self._span:
            enclosing = self._again(enclosing)
        before = ambient.get_current()
        # Between us and the span around us another library may have opened one of its own.
        direct = enclosing is not None and before is enclosing.inside
        self.begin_at(runtime, enclosing, None if direct else ambient.foreign_parent(before))
        self._watch(runtime)
        ambient.enter(self, before)

    def _not_begun(self, runtime: Runtime, failure: BaseException) -> None:
        """Take back a beginning that failed: nobody will end this span."""
        self._runtime = None
        self.finished = now()
        self._unwatch(runtime)
        if self.inside is not None:
            ambient.leave(self)
        runtime.journal.miss()
        if not isinstance(failure, Exception):
            raise failure
        swallow(f"{misuse.kind_of(self)} entered", failure)

    def begin_at(self, runtime: Runtime, enclosing: Span | None, foreign: SpanContext | None) -> None:
        """Take a place inside `enclosing` and another library's span there, without becoming the current span."""
        self._attributes = {}
        self._settle_in(enclosing, runtime)
        opened = get_here()
        if opened is not None and opened.role != runtime.identity.role:
            self._attributes[semconv.ROLE] = opened.role
        if foreign is not None:
            self._beneath(foreign)
        self._unended, self._runtime = [True], runtime
        self.enclosing = enclosing
        self.began = now()
        self._opened(runtime)

    def _again(self, enclosing: Span | None) -> Span | None:
        """Become a handle that has not begun: used twice in a row it is a new span each time."""
        if not self.finished:
            say(f"twice {misuse.kind_of(self)}", "rl_otel: %s entered twice; make a new one for each `with`", self.name)
            self.end()
        while enclosing is not None and enclosing.within(self):  # nothing is inside itself
            enclosing = ambient.nearest(ambient.beyond(enclosing))
        arguments = self.arguments()
        self._forget()
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
        attributes = self._attributes
        self._trace = enclosing._trace
        self._parent = enclosing._span
        self._flags = enclosing._flags
        self.gathering = enclosing.gathering
        self.step = step = enclosing.step
        if step is not None:
            attributes[semconv.STEP_INDEX] = step.index
        self.mode = mode = enclosing.mode
        if mode is not None:
            attributes[semconv.MODE] = mode

    def _beneath(self, foreign: SpanContext) -> None:
        """Another library's span is current: become its child within one trace, else link to it."""
        trace, span = foreign.trace_id.to_bytes(16, "big"), foreign.span_id.to_bytes(8, "big")
        if trace == self._trace:
            self._parent = span
        else:
            self.extra.links.append(_record.Link(trace, span, {}))

    def _fits(self, enclosing: Span) -> bool:
        """Whether `enclosing` will do though it is none of `places`: inside nothing that we know a span is in place."""
        return not enclosing.name

    def _out_of_place(self, enclosing: Span) -> None:
        misuse.out_of_place(self, enclosing)

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
            try:
                word = known[name]
                if type(value) is word.type:
                    if type(value) is not str:
                        attributes[word.attribute] = value
                        continue
                    if len(value) < SHORT and value.isascii():
                        attributes[word.attribute] = [value] if word.many else value
                        continue
            except KeyError:
                pass  # no word of ours
            try:
                self._take(name, known.get(name), value)
            except Exception as error:  # the words beside it are none the worse
                swallow(f"a word of {misuse.kind_of(self)}", error)

    def _take(self, name: str, word: semconv.Word | None, value: Any) -> None:
        """Set a value that is not just what its word expects: convert it, or wait for it."""
        if word is None:
            if _safety.strict_words:
                raise TypeError(f"{name!r} is no word of {self.name}; it knows {', '.join(self.words) or 'none'}")
            word = semconv.Word(semconv.CUSTOM + _values.text(str(name), 128), object)
            if not self._has_room(word.attribute):
                return
            misuse.custom(self, name, word.attribute)
        try:
            self._set(name, word, value, self._attributes)
        except _values.Unreadable:
            self._attributes.pop(word.attribute, None)  # what is set from now on is the later value
            self.extra.deferred[word.attribute] = (word, Deferred(value))

    def _set(self, name: str, word: semconv.Word, value: Any, attributes: dict[str, Any]) -> None:
        """Set a value as its word's type, or tell why not."""
        try:
            plain = _values.as_type(value, word.type)
        except _values.Unfit as wanted:
            misuse.unfit(self, name, value, wanted)
            return
        if type(plain) is int and isinstance(value, float) and plain != value:
            misuse.changed(self, name, value, plain)
        if plain is not None:
            self._put(word, plain, attributes)

    def _set_late(self, word: semconv.Word, value: Any, attributes: dict[str, Any]) -> None:
        """Set a value that was not there when the span ended."""
        self._set(word.attribute, word, value, attributes)

    def _put(self, word: semconv.Word, plain: Any, attributes: dict[str, Any]) -> None:
        """Set a value that is no exact match of its word: a list, a converted number, a string, one that came late."""
        if type(plain) is list and word.type is not object and not (word.many and word.type is str):
            plain = _values.summed(plain, word.type)
        elif type(plain) is str and word.many and word.type is str:
            plain = [plain]
        if plain is not None:
            attributes[word.attribute] = plain

    # --- ending -------------------------------------------------------------------------------------------------------

    def _finish(self, runtime: Runtime, error: BaseException | None) -> None:
        end = now()
        try:
            del self._unended[0]  # in one go: of several threads that end it, one does
        except IndexError:
            return
        self.finished, self._runtime = end, None  # with no call in between, where an exception of the host could strike
        reached = False
        try:
            self._unwatch(runtime)
            # The end of an iterator is no failure: `with data(): batch = next(loader)`.
            if error is not None and not isinstance(error, StopIteration | StopAsyncIteration):
                self._fail(error)
            self._closed(runtime, end)
            ambient.leave(self)
            reached = True
            self._write(runtime, end)
        except BaseException:
            self._make_up(runtime, end, reached)
            raise

    def _make_up(self, runtime: Runtime, end: int, reached: bool) -> None:
        """Leave and write a span whose end was cut short, at any moment; `reached` if it may be written already."""
        self._unwatch(runtime)
        if self.inside is not None:
            ambient.leave(self)
        if not (reached and runtime.journal.has(self._span)):
            self._write(runtime, end)

    def _not_ended(self, runtime: Runtime, error: BaseException | None, failure: BaseException) -> None:
        """Pass on what struck while the span was ended."""
        self._finish(runtime, error)  # unless that has begun
        if not isinstance(failure, Exception):
            raise failure
        swallow(f"{misuse.kind_of(self)} left", failure)

    def end_at(self, runtime: Runtime, start: int, end: int) -> None:
        """End a span that is only known afterwards; what happened inside it is not known."""
        self.added = True
        del self._unended[0]
        self.began, self.finished, self._runtime = start, end, None
        try:
            self._closed(runtime, end)
            self._write(runtime, end)
        except BaseException:
            self._make_up(runtime, end, reached=True)
            raise

    def _closed(self, runtime: Runtime, end: int) -> None:
        """Hand figures to what is around it, and set the last attributes; subclasses add theirs."""

    def _write(self, runtime: Runtime, end: int) -> _record.End:
        record = _record.End(
            self._trace, self._span, self._parent, self.name, self.began, end, self._attributes, self._flags
        )
        awaited = self._extra.add_to(record) if self._extra is not None else ()
        runtime.journal.end(record)
        if awaited:
            runtime.defer(self._span, self._set_late, awaited)
        return record
