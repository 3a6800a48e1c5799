"""The trajectory span: one sample's way through generate and environment, with the figures of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_otel import _figures, _record, _split, _values, semconv
from rl_otel._budget import in_share
from rl_otel._metrics import events
from rl_otel._register import Played
from rl_otel._spans import misuse
from rl_otel._spans.gather import Gathering
from rl_otel._spans.otel import planned
from rl_otel._spans.parent import Parent
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime
    from rl_otel._timeline import Timeline


class Trajectory(Parent):
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

    _id = ""  # as used, from its beginning on
    _timeline: Timeline | None = None  # that it is on, where it is a trace of its own
    _current_policy: int | None = None  # that of the process when it began

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
        misuse.check_brackets(type(self), id)
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

    def arguments(self) -> dict[str, Any]:
        return dict(self._called)

    @property
    def id(self) -> str:
        """What it is called; before it has begun, what the opener was asked to call it."""
        return self._id or self._asked() or ""

    # --- beginning ----------------------------------------------------------------------------------------------------

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        called = self._called
        around = enclosing.gathering if enclosing is not None else None
        self._id = self._name_it(around, runtime)
        if enclosing is None or called["detached"]:
            self._stand_alone(enclosing, runtime)
            if runtime.timelines.here().steps and not called["detached"]:
                misuse.alone(self.id)
        else:
            super()._settle_in(enclosing, runtime)
            runtime.register.remember(self.id, *self._counts(), (self._trace, self._span))
        self.gathering = Gathering(self.name, around)
        inner = around is not None and around.is_trajectory and self._parent
        self.gathering.shown = around.shown if around is not None and inner else in_share(self._span)
        self._identify()
        self._current_policy = runtime.policy_version

    def _asked(self, sample: object = None) -> str | None:
        """Return what the arguments say, with `sample` where they say none."""
        called = self._called
        if called["id"] is not None:
            return misuse.words_for(called["id"])
        sample = sample if called["sample"] is None else called["sample"]
        if sample is None:
            return None
        group = "" if called["group"] is None else f"{misuse.words_for(called['group'])}/"
        return _values.text(f"{group}{misuse.words_for(sample)}")

    def _name_it(self, around: Gathering | None, runtime: Runtime) -> str:
        asked = self._asked()
        if asked is None:
            asked = self._asked(around.next_ordinal() if around is not None else runtime.register.next_trajectory())
        return asked or ""

    def _stand_alone(self, enclosing: Span | None, runtime: Runtime) -> None:
        # The ids are derived, so that whoever trains on this trajectory can link to it knowing its name alone.
        self._id, trace, self._span = runtime.register.trajectory(self.id, *self._counts())
        self._root(trace, runtime)
        if enclosing is not None and enclosing.mode is not None:
            self.mode = self._attributes[semconv.MODE] = enclosing.mode

    def _counts(self) -> tuple[int, int]:
        """Return attempt and segment."""
        attempt, segment = (misuse.argument(self, word, self._called[word], int) for word in ("attempt", "segment"))
        return attempt or 1, segment or 1

    def _identify(self) -> None:
        attributes, called = self._attributes, self._called
        attributes[semconv.TRAJECTORY_ID] = self.id
        for word, attribute, kind in _IDENTITY:
            value = misuse.argument(self, word, called[word], kind)
            if value is not None:
                attributes[attribute] = value

    def _watch(self, runtime: Runtime) -> None:
        runtime.in_flight.trajectories.add(self)
        if not self._parent:
            self._timeline = runtime.timelines.here()
            self._timeline.lone.add(id(self))
        runtime.journal.append(self.start_record())

    def _unwatch(self, runtime: Runtime) -> None:
        runtime.in_flight.trajectories.discard(self)
        if self._timeline is not None:
            self._timeline.lone.discard(id(self))

    def _take_all(self, words: Mapping[str, Any]) -> None:
        super()._take_all(words)
        told = self._attributes.get(semconv.TRAJECTORY_OUTCOME)
        if told is not None and told not in semconv.OUTCOMES:
            del self._attributes[semconv.TRAJECTORY_OUTCOME]
            misuse.none_of(self, "outcome", told, semconv.OUTCOMES)

    # --- ending -------------------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        super()._fail(error)
        names = {kind.__name__ for kind in type(error).__mro__}  # asyncio had a TimeoutError of its own until 3.11
        outcome = semconv.ABORTED_OUTCOME if planned(error) else semconv.ERROR
        self._attributes.setdefault(semconv.TRAJECTORY_OUTCOME, semconv.TIMEOUT if "TimeoutError" in names else outcome)

    def _closed(self, runtime: Runtime, end: int) -> None:
        gathering = self.gathering
        if gathering is None:
            return
        gathering.ended = True
        attributes = self._attributes
        if semconv.TRAJECTORY_OUTCOME not in attributes:
            continues = attributes.get(semconv.TRAJECTORY_CONTINUES)
            attributes[semconv.TRAJECTORY_OUTCOME] = semconv.ABORTED_OUTCOME if continues else _outcome(gathering)
        self._set_versions(gathering)
        self._tell_register(gathering, runtime)
        figures = self.in_figures(gathering, end)
        attributes.update(_figures.trajectory_attributes(figures))
        self._hand_on(gathering, figures)
        if gathering.around is not None:
            gathering.around.plays(gathering.environment)
        if runtime.meter is not None:
            runtime.meter.add(events.Trajectory(self.seen, figures, gathering.environment))
        gathering.let_go()

    def _set_versions(self, gathering: Gathering) -> None:
        """Set the policy's first and last version: as told, else as its calls say, else that of its beginning."""
        attributes = self._attributes
        began = misuse.argument(self, "policy_version", self._called["policy_version"], int)
        told = began, attributes.pop(semconv.POLICY_VERSION, None)
        known = [version for version in (told[0], *gathering.versions, told[1]) if version is not None]
        if not known and self._current_policy is not None:
            known = [self._current_policy]
        if known:
            attributes[semconv.POLICY_VERSION_FIRST], attributes[semconv.POLICY_VERSION_LAST] = known[0], known[-1]

    def _tell_register(self, gathering: Gathering, runtime: Runtime) -> None:
        """Have the register know what trains on it later, and link to the weight sync that made its policy."""
        attributes, register = self._attributes, runtime.register
        version = attributes.get(semconv.POLICY_VERSION_FIRST)
        played = Played(version, attributes.get(semconv.GROUP_ID), gathering.environment, self.mode)
        register.end(self.id, *self._counts(), played)
        sync = None if version is None else register.sync(version)
        if sync is not None:
            self.link([_record.Link(*sync, {semconv.POLICY_VERSION: version})])

    def in_figures(self, gathering: Gathering, end: int) -> _figures.Trajectory:
        attributes = self._attributes
        input_tokens, output_tokens = gathering.token_sums()
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
            continues=bool(attributes.get(semconv.TRAJECTORY_CONTINUES)),
        )

    def _hand_on(self, gathering: Gathering, figures: _figures.Trajectory) -> None:
        around, step = gathering.around, self.step
        owner = around if around is not None else step
        if owner is None or not self._parent:
            return  # a trace of its own
        if owner.ended:
            self._attributes[semconv.LATE] = True
            return
        while around is not None and around.is_trajectory:
            around = around.around
        gathers = around if around is not None else step  # the step has those that no rollout is around
        if gathers is not None:
            gathers.trajectories.append(figures)


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
