"""Calls: the generate, env.step and env.reset spans of a trajectory, or of a whole batch directly under a rollout."""

from __future__ import annotations

from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context

from rl_otel import _clock, _runtime, _values, semconv
from rl_otel._ids import span_id
from rl_otel._record import End
from rl_otel._spans import misuse
from rl_otel._spans.ambient import KEY, attach, get_current, get_innermost, set_innermost
from rl_otel._spans.span import Span
from rl_otel._timeline import get_here

if TYPE_CHECKING:
    from typing_extensions import Never, Self

    from rl_otel._runtime import Runtime
    from rl_otel._spans.gather import Gathering

# A judge works inside a reward, a simulated user inside an environment.
_PLACES = (semconv.TRAJECTORY, semconv.ROLLOUT, semconv.EVAL, semconv.REWARD, semconv.ENV_STEP, semconv.ENV_RESET)

#: The methods that every call runs.
_HOT = ("__enter__", "_child_of", "_opened", "record", "_take_all", "__exit__", "_closed", "_gathered")


class Call(Span):
    """What generate and the environment's calls share: they are parts of a trajectory, and watched when they last.

    They come by the hundred thousand. So what `Span` does in steps, `__enter__` and `__exit__` do here in one go for
    the usual call: directly inside one of its places, and left there without an error. All others go the way of `Span`.
    """

    places = _PLACES

    def __init_subclass__(cls) -> None:
        # CPython remembers inside a function where the attributes of its `self` lie, for one type of `self` at a time:
        # kinds that take turns in one function make it forget. So each kind has its own copy of what every call runs.
        for name in _HOT:
            method = getattr(cls, name)
            code = method.__code__.replace()
            own = FunctionType(code, method.__globals__, name, method.__defaults__, method.__closure__)
            setattr(cls, name, update_wrapper(own, method))

    def __enter__(self) -> Self:
        runtime = _runtime.active
        if runtime is None:
            return self
        enclosing, before = get_innermost(), get_current()
        if enclosing is None or before is not enclosing.inside or enclosing.name not in _PLACES or self._span:
            return super().__enter__()
        overhead = runtime.overhead
        self._stopwatch = stopwatch = overhead.call() if overhead.due else None
        try:
            self._attributes = {}
            self._span = span_id()
            self._child_of(enclosing)
            opened = get_here()
            if opened is not None and opened.role != runtime.identity.role:
                self._attributes[semconv.ROLE] = opened.role
            self._runtime = runtime
            self.enclosing = enclosing
            self.began = _clock.monotonic() + _clock.OFFSET
            self._opened(runtime)
            runtime.in_flight.calls.add(self)
            self.outside = before
            self.inside = inside = Context({**before, KEY: self})
            attach(inside)
            set_innermost(self)
        except BaseException as error:
            self._not_begun(runtime, error)
        if stopwatch is not None:
            stopwatch.pause()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        runtime = self._runtime
        if runtime is None:
            return
        stopwatch, enclosing = self._stopwatch, self.enclosing
        claimed = reached = False
        try:
            if stopwatch is not None:
                stopwatch.resume()
            usual = enclosing is not None and not enclosing.finished and error is None and self._extra is None
            if not usual or get_current() is not self.inside:
                self._finish(runtime, error)
            else:
                end = _clock.monotonic() + _clock.OFFSET
                try:
                    del self._runtime  # in one go: of several threads that end it, one does
                except AttributeError:
                    return
                self.finished, claimed = end, True
                runtime.in_flight.calls.discard(self)
                self._closed(runtime, end)
                if get_innermost() is self:
                    set_innermost(enclosing)
                attach(self.outside)
                self.inside = None
                record = End(
                    self._trace, self._span, self._parent, self.name, self.began, end, self._attributes, self._flags
                )
                reached = True
                runtime.journal.end(record)
                if runtime.measure is not None:
                    runtime.measure(record, self.gathering)
        except BaseException as failure:
            if claimed:
                self._make_up(runtime, self.finished, reached)
            self._not_ended(runtime, error, failure)
        if stopwatch is not None:
            stopwatch.end()

    def _watch(self, runtime: Runtime) -> None:
        runtime.in_flight.calls.add(self)

    def _unwatch(self, runtime: Runtime) -> None:
        runtime.in_flight.calls.discard(self)

    def _closed(self, runtime: Runtime, end: int) -> None:
        gathering, enclosing = self.gathering, self.enclosing
        if gathering is None:
            return
        if gathering.ended:
            self._attributes[semconv.LATE] = True
            return
        if gathering.is_trajectory and enclosing is not None and enclosing.name == semconv.TRAJECTORY:
            gathering.children.append((semconv.PART_OF[self.name], self.began, end))
        else:
            gathering.child(self, end)
        self._gathered(gathering)

    def _write(self, runtime: Runtime, end: int) -> End:
        record = super()._write(runtime, end)
        if runtime.measure is not None:
            runtime.measure(record, self.gathering)
        return record

    def _gathered(self, gathering: Gathering) -> None:
        """Hand on what is not time; subclasses do."""

    def _take(self, name: str, word: semconv.Word | None, value: Any) -> None:
        if name in semconv.TEXT_WORDS:
            if self._runtime is not None and self._runtime.config.text:
                self._attributes.update(_values.excerpt(semconv.TEXT.format(word=name), value))
            return
        super()._take(name, word, value)


class Generate(Call):
    """One call of a model: of the policy, or of a judge or simulated user.

    Args:
        model: what the request names (`gen_ai.request.model`).
        provider: whose engine it is (`gen_ai.provider.name`), as in `vllm`.
        purpose: `policy`, `judge` or `user`; rates and turns count the policy's calls.
        policy_version: the version of the weights, where it is not the one of the last `weight_sync`.
    """

    name = semconv.GENERATE
    words = semconv.WORDS[semconv.GENERATE]

    def __init__(
        self,
        *given: Never,
        model: str | None = None,
        provider: str | None = None,
        purpose: str = semconv.PURPOSE_POLICY,
        policy_version: int | None = None,
    ) -> None:
        if given:
            misuse.takes_no(type(self), given)
        self.model = model
        self.provider = provider
        self.purpose = purpose
        self.policy_version = policy_version

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
        if purpose in semconv.PURPOSES:
            attributes[semconv.PURPOSE] = purpose
        else:
            misuse.none_of(self, "purpose", purpose, semconv.PURPOSES)
        if self.model is not None:
            attributes[semconv.REQUEST_MODEL] = self.model
        if self.provider is not None:
            attributes[semconv.PROVIDER_NAME] = self.provider
        version = self.policy_version
        if version is None:
            version = runtime.policy_version
        elif type(version) is not int:
            version = misuse.argument(self, "policy_version", version, int)
        if version is not None and purpose == semconv.PURPOSE_POLICY:
            attributes[semconv.POLICY_VERSION] = version

    def _put(self, word: semconv.Word, plain: Any, attributes: dict[str, Any]) -> None:
        if type(plain) is list and word.attribute == semconv.OUTPUT_TOKENS:
            attributes.setdefault(semconv.SEQUENCES, len(plain))
        super()._put(word, plain, attributes)

    def _gathered(self, gathering: Gathering) -> None:
        if self.purpose == semconv.PURPOSE_POLICY:
            attributes = gathering.last_call = self._attributes
            gathering.tokens.append((attributes.get(semconv.INPUT_TOKENS), attributes.get(semconv.OUTPUT_TOKENS)))
            if semconv.POLICY_VERSION in attributes:
                gathering.versions.append(attributes[semconv.POLICY_VERSION])


class EnvCall(Call):
    """What a step and a reset of the environment share.

    Args:
        environment: the environment's name, of low cardinality (`rl.environment.name`).
    """

    words = semconv.WORDS[semconv.ENV_STEP]
    tool: str | None = None

    def __init__(self, environment: str | None = None) -> None:
        if environment is not None and type(environment) is not str:
            misuse.check_brackets(type(self), environment)
        self.environment = environment

    def arguments(self) -> dict[str, Any]:
        return {"environment": self.environment}

    def _opened(self, runtime: Runtime) -> None:
        gathering = self.gathering
        if gathering is not None and gathering.counts_turns:
            if not gathering.turns_by_call and self.name == semconv.ENV_STEP:
                gathering.turn += 1
            self._attributes[semconv.TURN] = gathering.turn
        if self.environment is not None:
            self._attributes[semconv.ENVIRONMENT_NAME] = misuse.words_for(self.environment)
        if self.tool is not None:
            self._attributes[semconv.TOOL_NAME] = misuse.words_for(self.tool)

    def _gathered(self, gathering: Gathering) -> None:
        environment = self._attributes.get(semconv.ENVIRONMENT_NAME)
        if environment != gathering.environment:
            gathering.plays(environment)


class EnvStep(EnvCall):
    """One step of the environment, or one tool call.

    Args:
        environment: the environment's name, of low cardinality (`rl.environment.name`).
        tool: the tool's name, where the step is a tool call (`gen_ai.tool.name`).
    """

    name = semconv.ENV_STEP

    def __init__(self, environment: str | None = None, *, tool: str | None = None) -> None:
        if environment is not None and type(environment) is not str:
            misuse.check_brackets(type(self), environment)
        self.environment = environment
        self.tool = tool

    def arguments(self) -> dict[str, Any]:
        return {"environment": self.environment, "tool": self.tool}

    def _gathered(self, gathering: Gathering) -> None:
        super()._gathered(gathering)
        gathering.last_step = self._attributes


class EnvReset(EnvCall):
    """The environment is made ready for a trajectory; part of its environment time."""

    name = semconv.ENV_RESET
