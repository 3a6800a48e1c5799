"""Phases: what a step's time divides into. Each name is one row of the table, a bound of the memory peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_otel import _figures, _record, semconv
from rl_otel._metrics import events
from rl_otel._spans import consume, misuse
from rl_otel._spans.dropping import Dropping
from rl_otel._spans.gather import Gathering
from rl_otel._spans.parent import Parent
from rl_otel._spans.remote import Remote
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from typing_extensions import Never

    from rl_otel._gpu import Watch
    from rl_otel._runtime import Runtime
    from rl_otel._timeline import Timeline

_NANO = 1_000_000_000
_GPU_TIME = semconv.Word(semconv.GPU_DURATION, float)


class Phase(Parent):
    """A phase with a name of your own; the usual ones have openers of their own.

    Args:
        name: of low cardinality; it becomes a row of the table and the span's name.
        model: whose model works: `critic`, `reward`, `reference` (`rl.model.role`).
    """

    places = (semconv.STEP, "phase")

    _gpu: Watch | None = None
    _timeline: Timeline | None = None  # that it is on

    def __init__(self, name: str, model: str | None = None) -> None:
        misuse.check_brackets(type(self), name)
        self.name = misuse.phase_name(misuse.words_for(name, 64) or "phase")
        self.model = model

    def arguments(self) -> dict[str, Any]:
        return {"name": self.name, "model": self.model}

    @property
    def is_phase(self) -> bool:
        """Whether it is one; inside a trajectory a reward or a wait is a part of that instead."""
        return self.gathering is None or not self.gathering.is_trajectory

    def _fits(self, enclosing: Span) -> bool:
        if isinstance(enclosing, Phase) or super()._fits(enclosing):
            return True
        if isinstance(enclosing, Remote) and enclosing.name in semconv.PHASES:
            return True
        return enclosing.name == semconv.STEP if self.is_phase else self.name in semconv.PART_OF

    def _opened(self, runtime: Runtime) -> None:
        if self.model is not None:
            self._attributes[semconv.MODEL_ROLE] = misuse.words_for(self.model)
        if self.is_phase:
            self._attributes[semconv.PHASE] = self.name

    def _watch(self, runtime: Runtime) -> None:
        if not self.is_phase:
            runtime.in_flight.parts.add(self)
            return
        self._timeline = timeline = runtime.timelines.here()
        beside = timeline.enter(self)
        if beside is not None:
            misuse.beside(self, beside)
        runtime.journal.append(self.start_record())
        self._gpu = runtime.gpu.enter(self.name, timeline.role)

    def _unwatch(self, runtime: Runtime) -> None:
        if self._gpu is not None:
            runtime.gpu.leave(self._gpu)
        if self._timeline is not None:
            self._timeline.leave(self)
        runtime.in_flight.parts.discard(self)

    def _closed(self, runtime: Runtime, end: int) -> None:
        if self._gpu is not None:
            self._attributes.update(runtime.gpu.attributes(self._gpu))
            if self._gpu.timing is not None:
                self.extra.deferred[semconv.GPU_DURATION] = (_GPU_TIME, self._gpu.timing)
        if runtime.meter is not None and (self.is_phase or self.name == semconv.WAIT):
            length, role = end - self.began, runtime.identity.role
            runtime.meter.add(events.Phase(self.seen, self.name, length, self._attributes, role))
        if self.is_phase:
            self._hand_on(runtime, self.in_figures(end))
        elif self.gathering is not None and self.name in semconv.PART_OF:
            if self.gathering.ended:
                self._attributes[semconv.LATE] = True
            else:
                self.gathering.child(self, end)

    def in_figures(self, end: int) -> _figures.Phase:
        return _figures.Phase(self.name, self._span, self._parent, self.began, end, self._attributes)

    def _hand_on(self, runtime: Runtime, figures: _figures.Phase) -> None:
        if self.step is None:
            runtime.outside(figures, self._trajectories())
        elif self.step.ended:
            self._attributes[semconv.LATE] = True
        else:
            self.step.phases.append(figures)
            self.step.trajectories.extend(self._trajectories())

    def _trajectories(self) -> list[_figures.Trajectory]:
        return []


class Named(Phase):
    """A phase whose name is its opener's."""

    def __init__(self, *given: Never, model: str | None = None) -> None:
        if given:
            misuse.takes_no(type(self), given)
        self.model = model

    def arguments(self) -> dict[str, Any]:
        return {"model": self.model}


class Logprobs(Named):
    """Log-probabilities of the samples under the policy."""

    name = semconv.LOGPROBS


class RefLogprobs(Named):
    """Log-probabilities under the frozen reference policy."""

    name = semconv.REF_LOGPROBS


class Values(Named):
    """Values of the samples under the critic."""

    name = semconv.VALUES


class Advantage(Named):
    """Advantages of the samples."""

    name = semconv.ADVANTAGE


class Data(Named):
    """Data is fetched or made ready."""

    name = semconv.DATA


class Train(Named):
    """Forward and backward over a mini-batch."""

    name = semconv.TRAIN
    words = semconv.WORDS[semconv.TRAIN]

    def _opened(self, runtime: Runtime) -> None:
        super()._opened(runtime)
        if runtime.policy_version is not None:
            self._attributes[semconv.POLICY_VERSION] = runtime.policy_version

    def _watch(self, runtime: Runtime) -> None:
        super()._watch(runtime)
        books = self.step
        if books is not None:
            books.training = self
            waiting, books.consumed = books.consumed, []
            for each in waiting:
                consume.put(self, runtime, each)

    def _unwatch(self, runtime: Runtime) -> None:
        super()._unwatch(runtime)
        if self.step is not None and self.step.training is self:
            self.step.training = None


class Optimizer(Named):
    """The optimizer's step."""

    name = semconv.OPTIMIZER


class Offload(Named):
    """Weights or optimizer states leave the device."""

    name = semconv.OFFLOAD


class Onload(Named):
    """Weights or optimizer states come back to the device."""

    name = semconv.ONLOAD


class Checkpoint(Named):
    """A checkpoint is written."""

    name = semconv.CHECKPOINT


class Reward(Named):
    """Rewards are computed: a phase, or inside a trajectory a part of it."""

    name = semconv.REWARD


class Wait(Phase):
    """Waiting for somebody: a phase, or inside a trajectory a part of it.

    Args:
        reason: for whom: batch, policy, buffer_full, weight_sync, reward, slot, env, collective, or your own word.
        buffer: the name of the buffer that the span says the depth of, where several are watched.
    """

    name = semconv.WAIT

    def __init__(self, reason: str | None = None, *, buffer: str | None = None) -> None:
        misuse.check_brackets(type(self), reason)
        self.reason = None if reason is None else misuse.words_for(reason, 64)
        self.buffer = buffer
        self.model = None

    def arguments(self) -> dict[str, Any]:
        return {"reason": self.reason, "buffer": self.buffer}

    def _opened(self, runtime: Runtime) -> None:
        attributes = self._attributes
        if self.reason is not None:
            attributes[semconv.WAIT_REASON] = self.reason
        depth = runtime.buffers.one(self.buffer)
        if depth is not None:
            attributes[semconv.BUFFER_NAME], attributes[semconv.BUFFER_SIZE] = depth.name, depth.size
            if depth.capacity is not None:
                attributes[semconv.BUFFER_CAPACITY] = depth.capacity
        super()._opened(runtime)

    def _closed(self, runtime: Runtime, end: int) -> None:
        super()._closed(runtime, end)
        if self._timeline is not None:
            self._timeline.waits.append((self.reason or "", self.began, end))


class Rollout(Dropping, Named):
    """Trajectories are played; the span carries their figures and links to the slowest."""

    name = semconv.ROLLOUT
    words = semconv.WORDS[semconv.ROLLOUT]

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        super()._settle_in(enclosing, runtime)
        self.gathering = Gathering(self.name, self.gathering)

    def _opened(self, runtime: Runtime) -> None:
        if self.step is not None and self.name == semconv.ROLLOUT:
            index = self.step.next_rollout()
            if index is not None:
                self._attributes[semconv.ROLLOUT_INDEX] = index
        super()._opened(runtime)

    def _put(self, word: semconv.Word, plain: Any, attributes: dict[str, Any]) -> None:
        super()._put(word, plain, attributes)
        if word.attribute == semconv.REWARD_MEAN and type(plain) is list and plain:
            attributes[semconv.REWARD_MIN], attributes[semconv.REWARD_MAX] = min(plain), max(plain)

    def _closed(self, runtime: Runtime, end: int) -> None:
        gathering = self.gathering
        if gathering is not None:
            gathering.ended = True
            rollout = _figures.rollout(
                list(gathering.trajectories), self.began, end, self._attributes, gathering.direct
            )
            self._attributes.update(_figures.rollout_attributes(rollout))
            self.link(map(self._link, rollout.slowest))
            if runtime.meter is not None:
                runtime.meter.add(events.Rollout(rollout, gathering.environment, self.mode))
            self._count_dropped(runtime, rollout.dropped, gathering.environment)
        super()._closed(runtime, end)
        if gathering is not None:
            gathering.let_go()

    def _link(self, slow: _figures.Trajectory) -> _record.Link:
        what = {semconv.TRAJECTORY_ID: slow.id, semconv.TRAJECTORY_DURATION: slow.duration / _NANO}
        return _record.Link(self._trace, slow.span, what)

    def in_figures(self, end: int) -> _figures.Phase:
        direct = self.gathering.direct if self.gathering is not None and self.gathering.direct.parts else None
        return _figures.Phase(self.name, self._span, self._parent, self.began, end, self._attributes, direct)

    def _trajectories(self) -> list[_figures.Trajectory]:
        return self.gathering.trajectories if self.gathering is not None else []


class Eval(Rollout):
    """An evaluation: everything inside carries `rl.mode` = eval, and no training figure contains it."""

    name = semconv.EVAL

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        super()._settle_in(enclosing, runtime)
        self.mode = self._attributes[semconv.MODE] = semconv.MODE_EVAL
