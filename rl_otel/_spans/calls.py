"""Calls: the generate, env.step and env.reset spans of a trajectory, or of a whole batch directly under a rollout."""

from __future__ import annotations

from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any

from rl_otel import _values, semconv
from rl_otel._record import End
from rl_otel._spans.span import Span
from rl_otel._spans.usual import PLACES, UsualEnvCall, UsualGenerate

if TYPE_CHECKING:
    from typing_extensions import Never

    from rl_otel._runtime import Runtime
    from rl_otel._spans.gather import Gathering

#: The methods that every call runs.
_HOT = ("__enter__", "_opened", "record", "__exit__", "_gathered")


class Call(Span):
    """What generate and the environment's calls share: they are parts of a trajectory, and watched when they last.

    What a call usually does is in `usual`: this is the rest.
    """

    places = PLACES

    def __init_subclass__(cls) -> None:
        # CPython remembers inside a function where the attributes of its `self` lie, for one type of `self` at a time:
        # kinds that take turns in one function make it forget. So each kind has its own copy of what every call runs.
        for name in _HOT:
            method = getattr(cls, name)
            if isinstance(method, FunctionType):  # it is not compiled
                code = method.__code__.replace()
                own = FunctionType(code, method.__globals__, name, method.__defaults__, method.__closure__)
                setattr(cls, name, update_wrapper(own, method))

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


# The two are final for the compiler: so their methods are called without a look-up.
class Generate(UsualGenerate, Call):  # type: ignore[misc]
    """One call of a model: of the policy, or of a judge or simulated user.

    Args:
        model: what the request names (`gen_ai.request.model`).
        provider: whose engine it is (`gen_ai.provider.name`), as in `vllm`.
        purpose: `policy`, `judge` or `user`; rates and turns count the policy's calls.
        policy_version: the version of the weights, where it is not the one of the last `weight_sync`.
    """

    name = semconv.GENERATE
    words = semconv.WORDS[semconv.GENERATE]

    if TYPE_CHECKING:

        def __init__(
            self,
            *given: Never,
            model: str | None = None,
            provider: str | None = None,
            purpose: str = semconv.PURPOSE_POLICY,
            policy_version: int | None = None,
        ) -> None: ...

    def _put(self, word: semconv.Word, plain: Any, attributes: dict[str, Any]) -> None:
        if type(plain) is list and word.attribute == semconv.OUTPUT_TOKENS:
            attributes.setdefault(semconv.SEQUENCES, len(plain))
        super()._put(word, plain, attributes)


class EnvStep(UsualEnvCall, Call):  # type: ignore[misc]
    """One step of the environment, or one tool call.

    Args:
        environment: the environment's name, of low cardinality (`rl.environment.name`).
        tool: the tool's name, where the step is a tool call (`gen_ai.tool.name`).
    """

    name = semconv.ENV_STEP
    words = semconv.WORDS[semconv.ENV_STEP]

    if TYPE_CHECKING:

        def __init__(self, environment: str | None = None, *, tool: str | None = None) -> None: ...


class EnvReset(UsualEnvCall, Call):  # type: ignore[misc]
    """The environment is made ready for a trajectory; part of its environment time.

    Args:
        environment: the environment's name, of low cardinality (`rl.environment.name`).
    """

    name = semconv.ENV_RESET
    words = semconv.WORDS[semconv.ENV_RESET]

    def __init__(self, environment: str | None = None) -> None:
        super().__init__(environment)

    def arguments(self) -> dict[str, Any]:
        return {"environment": self.environment}
