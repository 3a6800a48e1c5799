"""The usual call: it is directly inside one of its places, and left there without an error.

Calls come by the hundred thousand. What `Span` does in steps is done here in one go, by classes of a fixed layout,
which are compiled where there is a C compiler. Compiled code asks for the types that it is told, and raises: what the
host gives is `Any` here, and has its types in `calls`. All else about a call is there, and goes the way of `Span`:
what changes in how a span begins and ends changes here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast, final

from opentelemetry.context import Context

from rl_otel import _clock, _record, _runtime, semconv
from rl_otel._compiled import mypyc_attr
from rl_otel._ids import span_id
from rl_otel._safety import swallow
from rl_otel._spans import ambient, misuse
from rl_otel._spans.gather import Gathering
from rl_otel._spans.otel import Extra
from rl_otel._spans.span import SHORT, Span
from rl_otel._timeline import get_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Never, Self

    from rl_otel._journal import Writer
    from rl_otel._overhead import Overhead, Stopwatch
    from rl_otel._runtime import Runtime
    from rl_otel._spans.gather import Books

# A judge works inside a reward, a simulated user inside an environment.
PLACES: Final = (semconv.TRAJECTORY, semconv.ROLLOUT, semconv.EVAL, semconv.REWARD, semconv.ENV_STEP, semconv.ENV_RESET)

_GENERATE: Final = semconv.WORDS[semconv.GENERATE]
_ENV_CALL: Final = semconv.WORDS[semconv.ENV_STEP]
_PART_OF: Final = semconv.PART_OF
_PURPOSES: Final = semconv.PURPOSES

# A name of this module's own is found at once where it is compiled.
_KEY: Final = ambient.KEY
_get_current: Final = ambient.get_current
_attach: Final = ambient.attach
_get_innermost: Final = ambient.get_innermost
_set_innermost: Final = ambient.set_innermost
_get_here: Final = get_here
_Context: Final = Context
_End: Final = _record.End


class Nest:
    """What calls take from the span they are directly inside of."""

    __slots__ = (
        "calls", "fits", "flags", "gathering", "index", "is_trajectory", "mode", "overhead", "role", "runtime",
        "span", "step", "trace",
    )  # fmt: skip

    def __init__(self, around: Span, runtime: Runtime) -> None:
        self.runtime = runtime
        self.overhead: Overhead = runtime.overhead
        self.calls: set[Any] = runtime.in_flight.calls
        gathering = around.gathering
        self.fits = around.name in PLACES and (gathering is None or type(gathering) is Gathering)
        self.is_trajectory = around.name == semconv.TRAJECTORY and gathering is not None and gathering.is_trajectory
        self.trace: bytes = around._trace
        self.span: bytes = around._span
        self.flags: int = around._flags
        self.gathering = gathering
        self.step: Books | None = around.step
        self.index: int | None = None if around.step is None else around.step.index
        self.mode: str | None = around.mode
        self.role: str = runtime.identity.role


def _nest(around: Span, runtime: Runtime) -> Nest | None:
    """Return what a call directly inside a span takes from that; None where it goes the way of `Span`."""
    nest = around.nest
    if nest is None or nest.runtime is not runtime:
        around.nest = nest = Nest(around, runtime)
    return nest if nest.fits else None


@mypyc_attr(allow_interpreted_subclasses=True)
class Usual:
    """What generate and the environment's calls share."""

    enclosing: Span | None = None
    place: ambient.Place | None = None
    outside: Context
    inside: Context | None = None
    step: Books | None = None
    gathering: Gathering | None = None
    nest: Nest | None = None
    began: int = 0
    finished: int = 0
    mode: str | None = None
    added: bool = False

    _trace: bytes = b""
    _span: bytes = b""
    _parent: bytes = b""
    _flags: int = 0
    _attributes: dict[str, Any]
    _extra: Extra | None = None
    _named: int = 0
    _runtime: Runtime | None = None
    _unended: list[bool]
    _stopwatch: Stopwatch | None = None

    def __enter__(self) -> Self:
        runtime = _runtime.active
        if runtime is None:
            return self
        around, before = _get_innermost(), _get_current()
        nest = None
        if around is not None and before is around.inside and not self._span:
            nest = _nest(around, runtime)
        if around is None or nest is None:
            Span.__enter__(cast(Any, self))
            return self
        self._stopwatch = stopwatch = nest.overhead.call() if nest.overhead.due else None
        try:
            self._unended = [True]
            _settle_in(self, nest)
            self._runtime = runtime
            self.enclosing = around
            self.began = _clock.monotonic() + _clock.OFFSET
            # Each kind by itself: so the compiled code calls its methods without looking for them.
            if isinstance(self, UsualGenerate):
                self._opened(runtime)
            elif isinstance(self, UsualEnvCall):
                self._opened(runtime)
            nest.calls.add(self)
            self.outside = before
            self.inside = inside = _Context({**before, _KEY: self})
            _attach(inside)
            _set_innermost(cast(Any, self))
        except BaseException as error:
            cast(Any, self)._not_begun(runtime, error)
        if stopwatch is not None:
            stopwatch.pause()
        return self

    def record(self, mapping: Mapping[str, Any] | None = None, /, *more: Never, **words: Any) -> None:
        """Add what is known now: words of this span, or a mapping for names that are no words. Later values win."""
        if self._runtime is None or mapping is not None or more:
            Span.record(cast(Any, self), mapping, *more, **words)
            return
        stopwatch = self._stopwatch
        if stopwatch is not None:
            stopwatch.resume()
        known, attributes = _GENERATE if isinstance(self, UsualGenerate) else _ENV_CALL, self._attributes
        for name, value in words.items():
            word = known.get(name)
            if word is not None and type(value) is word.type:
                if type(value) is not str:
                    attributes[word.attribute] = value
                    continue
                if len(value) < SHORT and value.isascii():
                    attributes[word.attribute] = [value] if word.many else value
                    continue
            try:
                cast(Any, self)._take(name, word, value)
            except Exception as error:  # the words beside it are none the worse
                swallow(f"a word of {misuse.kind_of(cast(Any, self))}", error)
        if stopwatch is not None:
            stopwatch.pause()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        runtime = self._runtime
        if runtime is None:
            return
        stopwatch, around = self._stopwatch, self.enclosing
        claimed = reached = False
        try:
            if stopwatch is not None:
                stopwatch.resume()
            nest = None if around is None or around.finished else around.nest
            if (
                nest is None
                or not nest.fits
                or error is not None
                or self._extra is not None
                or _get_current() is not self.inside
            ):
                cast(Any, self)._finish(runtime, error)
            else:
                end = _clock.monotonic() + _clock.OFFSET
                try:
                    del self._unended[0]  # in one go: of several threads that end it, one does
                except IndexError:
                    return
                self.finished, self._runtime, claimed = end, None, True
                nest.calls.discard(self)
                _hand_on(self, nest, runtime)
                if _get_innermost() is cast(Any, self):
                    _set_innermost(around)
                _attach(self.outside)
                self.inside = None
                reached = True  # from here on it may be in the journal
                _write(self, runtime)
        except BaseException as failure:
            if claimed:
                _make_up(cast(Any, self), runtime, reached=reached)
            cast(Any, self)._not_ended(runtime, error, failure)
        if stopwatch is not None:
            stopwatch.end()

    def _forget(self) -> None:
        self._span = self._parent = b""
        self.began = self.finished = self._named = 0
        self.enclosing = self.place = self.inside = self.step = self.gathering = self.nest = self.mode = None
        self._extra = self._stopwatch = None
        self.added = False


@final
@mypyc_attr(allow_interpreted_subclasses=True)
class UsualGenerate(Usual):
    """What is known of a generate call when it begins, and what its trajectory takes from it."""

    def __init__(
        self,
        *given: Never,
        model: Any = None,
        provider: Any = None,
        purpose: Any = semconv.PURPOSE_POLICY,
        policy_version: Any = None,
    ) -> None:
        if given:
            misuse.takes_no(cast(Any, type(self)), given)
        self.model: Any = model
        self.provider: Any = provider
        self.purpose: Any = purpose
        self.policy_version: Any = policy_version

    def arguments(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "provider": self.provider,
            "purpose": self.purpose,
            "policy_version": self.policy_version,
        }

    def _opened(self, runtime: Runtime) -> None:
        attributes, gathering, purpose = self._attributes, self.gathering, self.purpose
        if gathering is not None and gathering.counts_turns:
            if purpose == semconv.PURPOSE_POLICY:
                gathering.turns_by_call = True
                gathering.turn += 1
            attributes[semconv.TURN] = gathering.turn
        attributes[semconv.OPERATION_NAME] = "chat"
        if purpose in _PURPOSES:
            attributes[semconv.PURPOSE] = purpose
        else:
            misuse.none_of(cast(Any, self), "purpose", purpose, _PURPOSES)
        if self.model is not None:
            attributes[semconv.REQUEST_MODEL] = self.model
        if self.provider is not None:
            attributes[semconv.PROVIDER_NAME] = self.provider
        version: Any = self.policy_version
        if version is None:
            version = runtime.policy_version
        elif type(version) is not int:
            version = misuse.argument(cast(Any, self), "policy_version", version, int)
        if version is not None and purpose == semconv.PURPOSE_POLICY:
            attributes[semconv.POLICY_VERSION] = version

    def _gathered(self, gathering: Gathering) -> None:
        if self.purpose == semconv.PURPOSE_POLICY:
            attributes = gathering.last_call = self._attributes
            # Not as lists: compiled code would pass over those that keep nothing.
            tokens, versions = cast(Any, gathering.tokens), cast(Any, gathering.versions)
            tokens.append((attributes.get(semconv.INPUT_TOKENS), attributes.get(semconv.OUTPUT_TOKENS)))
            if semconv.POLICY_VERSION in attributes:
                versions.append(attributes[semconv.POLICY_VERSION])


@final
@mypyc_attr(allow_interpreted_subclasses=True)
class UsualEnvCall(Usual):
    """The same of a step and a reset of the environment."""

    def __init__(self, environment: Any = None, *, tool: Any = None) -> None:
        if environment is not None and type(environment) is not str:
            misuse.check_brackets(cast(Any, type(self)), environment)
        self.environment: Any = environment
        self.tool: Any = tool

    def arguments(self) -> dict[str, Any]:
        return {"environment": self.environment, "tool": self.tool}

    def _opened(self, runtime: Runtime) -> None:
        attributes, gathering = self._attributes, self.gathering
        if gathering is not None and gathering.counts_turns:
            if not gathering.turns_by_call and cast(Any, self).name == semconv.ENV_STEP:
                gathering.turn += 1
            attributes[semconv.TURN] = gathering.turn
        if self.environment is not None:
            attributes[semconv.ENVIRONMENT_NAME] = _plain(self.environment)
        if self.tool is not None:
            attributes[semconv.TOOL_NAME] = _plain(self.tool)

    def _gathered(self, gathering: Gathering) -> None:
        attributes = self._attributes
        environment = attributes.get(semconv.ENVIRONMENT_NAME)
        if environment != gathering.environment:
            gathering.plays(environment)
        if cast(Any, self).name == semconv.ENV_STEP:
            gathering.last_step = attributes


def _plain(given: Any) -> str:
    return given if type(given) is str and len(given) < SHORT and given.isascii() else misuse.words_for(given)


def _settle_in(call: Usual, nest: Nest) -> None:
    """Take identity, step and mode from what is around it."""
    attributes: dict[str, Any] = {}
    if nest.index is not None:
        attributes[semconv.STEP_INDEX] = nest.index
    if nest.mode is not None:
        attributes[semconv.MODE] = nest.mode
    opened = _get_here()
    if opened is not None and opened.role != nest.role:
        attributes[semconv.ROLE] = opened.role
    call._attributes = attributes
    call._trace = nest.trace
    call._span = span_id()
    call._parent = nest.span
    call._flags = nest.flags
    call.gathering = nest.gathering
    call.step = nest.step
    call.mode = nest.mode


def _hand_on(call: Usual, nest: Nest, runtime: Runtime) -> None:
    """Hand time and figures to what is around it."""
    gathering = call.gathering
    if gathering is None or gathering.ended or not nest.is_trajectory:
        cast(Any, call)._closed(runtime, call.finished)
        return
    gathering.children.append((_PART_OF[_name(call)], call.began, call.finished))
    if isinstance(call, UsualGenerate):
        call._gathered(gathering)
    elif isinstance(call, UsualEnvCall):
        call._gathered(gathering)


def _make_up(span: Any, runtime: Runtime, *, reached: bool) -> None:
    """Make up for an end that was cut short; what fails here once more is ours to swallow."""
    try:
        span._make_up(runtime, span.finished, reached)
    except Exception as error:
        swallow(f"{misuse.kind_of(span)} left", error)


def _write(call: Usual, runtime: Runtime) -> None:
    record = _End(
        call._trace,
        call._span,
        call._parent,
        _name(call),
        call.began,
        call.finished,
        call._attributes,
        call._flags,
    )
    journal: Writer = runtime.journal
    journal.end(record)
    measure = runtime.measure
    if measure is not None:
        measure(record, call.gathering)


def _name(call: Usual) -> str:
    name: str = semconv.GENERATE if isinstance(call, UsualGenerate) else cast(Any, call).name
    return name
