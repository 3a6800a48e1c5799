"""The trajectory span: one sample's way through generate and environment, with the figures of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_otel import _figures, _split, _values, semconv
from rl_otel._spans.gather import Gathering
from rl_otel._spans.span import Span, planned

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime


class Trajectory(Span):
    """One trajectory of a rollout or an evaluation; a trace of its own outside a step.

    Args:
        id: what people call it; default `<group>/<sample>`. Outside a step it must be unique in the run.
        group: the group or prompt it belongs to (`rl.group.id`).
        sample: which of its group, counted from 0 (`rl.sample.index`).
        attempt: which try of the same trajectory, started anew, counted from 1.
        segment: which part of one trajectory that was interrupted and continued, counted from 1.
        policy_version: the version of the weights it begins with, where no `weight_sync` has said it.
        agent: the agent's name, for a trajectory inside another (`rl.agent.name`).
        detached: True makes it a trace of its own even inside a step.
    """

    name = semconv.TRAJECTORY
    words = semconv.WORDS[semconv.TRAJECTORY]
    places = (semconv.ROLLOUT, semconv.EVAL, semconv.TRAJECTORY)

    def __init__(
        self,
        id: str | int | None = None,  # noqa: A002 - the field's word
        *,
        group: str | int | None = None,
        sample: int | None = None,
        attempt: int | None = None,
        segment: int | None = None,
        policy_version: int | None = None,
        agent: str | None = None,
        detached: bool | None = None,
    ) -> None:
        self._called: dict[str, Any] = {
            "id": id,
            "group": group,
            "sample": sample,
            "attempt": attempt,
            "segment": segment,
            "policy_version": policy_version,
            "agent": agent,
            "detached": detached,
        }
        self.id = "" if id is None else str(id)

    def arguments(self) -> dict[str, Any]:
        return dict(self._called)

    # --- beginning ----------------------------------------------------------------------------------------------------

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        called = self._called
        around = enclosing.gathering if enclosing is not None else None
        self.id = _values.text(str(self._name_it(around, runtime)))
        if enclosing is None or called["detached"]:
            self._stand_alone(enclosing, runtime)
        else:
            super()._settle_in(enclosing, runtime)
        self.gathering = Gathering(self, around)
        self._identify()
        version = runtime.policy_version if called["policy_version"] is None else called["policy_version"]
        if version is not None:
            self.gathering.versions.append(version)

    def _name_it(self, around: Gathering | None, runtime: Runtime) -> str | int:
        id_, group, sample = (self._called[name] for name in ("id", "group", "sample"))
        if id_ is not None:
            return str(id_)
        if sample is None:
            sample = around.next_ordinal() if around is not None else runtime.next_trajectory()
        return sample if group is None else f"{group}/{sample}"

    def _stand_alone(self, enclosing: Span | None, runtime: Runtime) -> None:
        # The ids are derived, so that whoever trains on this trajectory can link to it knowing its name alone.
        attempt, segment = self._called["attempt"] or 1, self._called["segment"] or 1
        self.id, trace, self._span = runtime.derive_trajectory(self.id, attempt, segment)
        self._root(trace, runtime)
        if enclosing is not None and enclosing.mode is not None:
            self.mode = self._attributes[semconv.MODE] = enclosing.mode

    def _identify(self) -> None:
        attributes, called = self._attributes, self._called
        attributes[semconv.TRAJECTORY_ID] = self.id
        for word, attribute, kind in _IDENTITY:
            if called[word] is not None:
                attributes[attribute] = _values.as_type(called[word], kind)

    def _watch(self, runtime: Runtime) -> None:
        runtime.journal.append(self.start_record())

    # --- recording ----------------------------------------------------------------------------------------------------

    def _put(self, word: semconv.Word, plain: Any) -> None:
        if word.attribute == semconv.POLICY_VERSION and self.gathering is not None:
            self.gathering.versions.append(plain)
        else:
            super()._put(word, plain)

    # --- ending -------------------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        super()._fail(error)
        names = {kind.__name__ for kind in type(error).__mro__}  # asyncio had a TimeoutError of its own until 3.11
        outcome = semconv.ABORTED_OUTCOME if planned(error) else semconv.ERROR
        self._attributes.setdefault(semconv.TRAJECTORY_OUTCOME, semconv.TIMEOUT if "TimeoutError" in names else outcome)

    def _closed(self, end: int) -> None:
        gathering = self.gathering
        if gathering is None:
            return
        attributes = self._attributes
        if semconv.TRAJECTORY_OUTCOME not in attributes:
            attributes[semconv.TRAJECTORY_OUTCOME] = _outcome(gathering)
        if gathering.versions:
            attributes[semconv.POLICY_VERSION_FIRST] = gathering.versions[0]
            attributes[semconv.POLICY_VERSION_LAST] = gathering.versions[-1]
        figures = self.in_figures(gathering, end)
        attributes.update(_figures.trajectory_attributes(figures))
        self._hand_on(gathering, figures)

    def in_figures(self, gathering: Gathering, end: int) -> _figures.Trajectory:
        attributes = self._attributes
        input_tokens, output_tokens = gathering.tokens()
        return _figures.Trajectory(
            id=self.id,
            span=self._span,
            start=self.began,
            end=end,
            parts=None if self.added else _split.split(gathering.children, self.began, end),
            turns=gathering.turn,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            reward=attributes.get(semconv.TRAJECTORY_REWARD),
            outcome=attributes[semconv.TRAJECTORY_OUTCOME],
            mode=self.mode,
            top=gathering.around is None or not gathering.around.is_trajectory,
        )

    def _hand_on(self, gathering: Gathering, figures: _figures.Trajectory) -> None:
        around = gathering.around
        if around is None or not self._parent:
            return
        if around.owner.ended:
            self._attributes[semconv.LATE] = True
            return
        while around.is_trajectory and around.around is not None:
            around = around.around
        around.trajectories.append(figures)


_IDENTITY = (
    ("group", semconv.GROUP_ID, str),
    ("sample", semconv.SAMPLE_INDEX, int),
    ("attempt", semconv.ATTEMPT, int),
    ("segment", semconv.SEGMENT, int),
    ("agent", semconv.AGENT_NAME, str),
)


def _outcome(gathering: Gathering) -> str:
    """Return how a trajectory ended that did not say so itself and raised nothing."""
    if gathering.last_step.get(semconv.ENV_TERMINATED):
        return semconv.COMPLETED
    if gathering.last_step.get(semconv.ENV_TRUNCATED) or "length" in gathering.last_call.get(
        semconv.FINISH_REASONS, ()
    ):
        return semconv.TRUNCATED
    return semconv.COMPLETED


__all__ = ["Trajectory"]
