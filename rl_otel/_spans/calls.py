"""Calls: the generate, env.step and env.reset spans of a trajectory, or of a whole batch directly under a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_otel import _values, semconv
from rl_otel._spans import misuse
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from typing_extensions import Never

    from rl_otel._runtime import Runtime

# A judge works inside a reward, a simulated user inside an environment.
_PLACES = (semconv.TRAJECTORY, semconv.ROLLOUT, semconv.EVAL, semconv.REWARD, semconv.ENV_STEP, semconv.ENV_RESET)


class Call(Span):
    """What generate and the environment's calls share: they are parts of a trajectory, and watched when they last."""

    def _watch(self, runtime: Runtime) -> None:
        runtime.timeline.calls[id(self)] = self

    def _unwatch(self, runtime: Runtime) -> None:
        runtime.timeline.calls.pop(id(self), None)

    def _closed(self, runtime: Runtime, end: int) -> None:
        gathering = self.gathering
        if gathering is not None:
            if gathering.ended:
                self._attributes[semconv.LATE] = True
            else:
                gathering.child(self, end)
                self._gathered(gathering)

    def _gathered(self, gathering: Any) -> None:
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
    places = _PLACES

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
        attributes, gathering = self._attributes, self.gathering
        if gathering is not None and gathering.is_trajectory:
            if self.purpose == semconv.PURPOSE_POLICY:
                gathering.turns_by_call = True
                gathering.turn += 1
            attributes[semconv.TURN] = gathering.turn
        attributes[semconv.OPERATION_NAME] = "chat"
        if self.purpose in semconv.PURPOSES:
            attributes[semconv.PURPOSE] = self.purpose
        else:
            misuse.none_of(self, "purpose", self.purpose, semconv.PURPOSES)
        if self.model is not None:
            attributes[semconv.REQUEST_MODEL] = self.model
        if self.provider is not None:
            attributes[semconv.PROVIDER_NAME] = self.provider
        version = self.policy_version
        if version is None:
            version = runtime.policy_version
        elif type(version) is not int:
            version = misuse.argument(self, "policy_version", version, int)
        if version is not None and self.purpose == semconv.PURPOSE_POLICY:
            attributes[semconv.POLICY_VERSION] = version

    def _put(self, word: semconv.Word, plain: Any, attributes: dict[str, Any]) -> None:
        if type(plain) is list and word.attribute == semconv.OUTPUT_TOKENS:
            attributes.setdefault(semconv.SEQUENCES, len(plain))
        super()._put(word, plain, attributes)

    def _gathered(self, gathering: Any) -> None:
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
    places = _PLACES

    def __init__(self, environment: str | None = None) -> None:
        if environment is not None and type(environment) is not str:
            misuse.check_brackets(type(self), environment)
        self.environment = environment

    def arguments(self) -> dict[str, Any]:
        return {"environment": self.environment}

    def _opened(self, runtime: Runtime) -> None:
        gathering = self.gathering
        if gathering is not None and gathering.is_trajectory:
            if self.name == semconv.ENV_STEP and not gathering.turns_by_call:
                gathering.turn += 1
            self._attributes[semconv.TURN] = gathering.turn
        if self.environment is not None:
            self._attributes[semconv.ENVIRONMENT_NAME] = misuse.words_for(self.environment)


class EnvStep(EnvCall):
    """One step of the environment, or one tool call.

    Args:
        environment: the environment's name, of low cardinality (`rl.environment.name`).
        tool: the tool's name, where the step is a tool call (`gen_ai.tool.name`).
    """

    name = semconv.ENV_STEP

    def __init__(self, environment: str | None = None, *, tool: str | None = None) -> None:
        super().__init__(environment)
        self.tool = tool

    def arguments(self) -> dict[str, Any]:
        return {"environment": self.environment, "tool": self.tool}

    def _opened(self, runtime: Runtime) -> None:
        super()._opened(runtime)
        if self.tool is not None:
            self._attributes[semconv.TOOL_NAME] = misuse.words_for(self.tool)

    def _gathered(self, gathering: Any) -> None:
        gathering.last_step = self._attributes


class EnvReset(EnvCall):
    """The environment is made ready for a trajectory; part of its environment time."""

    name = semconv.ENV_RESET
