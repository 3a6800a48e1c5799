"""The step span: root of one trace a step, with the figures of its phases and trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from rl_otel import _figures, _runtime, _safety, _values, semconv
from rl_otel._clock import now
from rl_otel._metrics import events
from rl_otel._safety import say, say_once, swallow
from rl_otel._spans import consume, misuse
from rl_otel._spans.dropping import Dropping
from rl_otel._spans.gather import Books
from rl_otel._spans.remote import Remote, RemoteBooks
from rl_otel._spans.span import Span

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime
    from rl_otel._timeline import Timeline

Item = TypeVar("Item")

_NANO = 1_000_000_000


class Step(Dropping):
    """One step of the training loop, the root of its trace.

    Args:
        index: the number that the trainer itself logs as its step; default: one more than the last.
    """

    name = semconv.STEP
    words = semconv.WORDS[semconv.STEP]

    _phases: list[_figures.Phase]
    _trajectories: list[_figures.Trajectory]
    _spent_before: int | None
    _timeline: Timeline | None = None  # that it is on
    _beside: Sequence[_figures.Phase] = ()  # what other loops waited for, once it has ended
    _buffers: Mapping[str, int] = MappingProxyType({})  # how full they were at its start

    def __init__(self, index: int | None = None) -> None:
        misuse.check_brackets(type(self), index)
        self._index = index
        self.index = index if isinstance(index, int) else -1

    def arguments(self) -> dict[str, Any]:
        return {"index": self._index}

    @property
    def summary(self) -> dict[str, float | int]:
        """The step's figures as a flat dict for whatever charts them; of an open step, what is known so far."""
        return self.summary_with("")

    def summary_with(self, prefix: str) -> dict[str, float | int]:
        """Return `summary` with `prefix` before each key, for hosts that log some of its words themselves."""
        if not self._span:
            return {}
        try:
            flat = {**_figures.summary(self.in_figures()), **self._buffers}
            return {prefix + key: value for key, value in flat.items()}
        except Exception as error:
            swallow("step.summary", error)
            return {}

    def consume(self, ids: consume.Ids, policy_versions: consume.Versions | None = None) -> None:
        """Say which trajectories this step trains on: links go on the train span that is open, else on the next one.

        That span also says how stale they are: the trainer's policy version now, less that which each began with.

        Args:
            ids: their ids, or `(id, attempt, segment)`, both counted from 1. Those that this process has not seen are
                taken for traces of their own, as trajectories outside a step are.
            policy_versions: which those began with that ran in other processes, in the order of `ids` or by id.
        """
        runtime, books = self._runtime, self.step
        if runtime is None or books is None:
            return
        try:
            train = books.training if books.training is not None and books.training.recording else None
            current = runtime.policy_version if train is None else train.attributes.get(semconv.POLICY_VERSION)
            found = consume.consumed(self, runtime, books, ids, versions=policy_versions, current=current)
            if train is None:
                books.consumed.append(found)
            else:
                consume.put(train, runtime, found)
        except Exception as error:
            _safety.pass_on(error)
            say("consume", "rl_otel: step.consume() takes ids or (id, attempt, segment): %s", error)

    # --- beginning ----------------------------------------------------------------------------------------------------

    def _settle_in(self, enclosing: Span | None, runtime: Runtime) -> None:
        self.index = self._number(runtime)
        super()._settle_in(enclosing, runtime)
        if enclosing is not None:  # a step is a root wherever it is opened
            self._parent, self.mode, self.gathering = b"", None, None
            self._attributes.clear()
        joined = self._joined(enclosing)
        opening = runtime.register.next_opening(self.index) if joined is None else joined.opening
        trace, root = runtime.register.step(self.index, opening)
        self._root(trace, runtime)
        if runtime.identity.owns_root and joined is None:
            self._span = root
        else:
            self._parent = root
            self._attributes[semconv.RANK] = runtime.identity.rank
        if isinstance(enclosing, Remote) and enclosing.seen.trace != trace:
            self._beneath(enclosing.get_span_context())
        self.step = Books(self.index, opening)
        self.step.origin = joined.origin if joined is not None else None
        self._phases, self._trajectories = self.step.phases, self.step.trajectories

    def _joined(self, enclosing: Span | None) -> RemoteBooks | None:
        """Return the step that a carrier around it tells of, where it is this one."""
        books = enclosing.step if enclosing is not None else None
        return books if isinstance(books, RemoteBooks) and books.index == self.index else None

    def _fits(self, enclosing: Span) -> bool:
        return isinstance(enclosing, Remote)

    def _number(self, runtime: Runtime) -> int:
        if self._index is None:
            return runtime.register.next_step()
        try:
            number = _values.argument(self._index, int)
        except _values.Unfit:
            say("step index", "rl_otel: step(%s): not a number, counting on instead", _values.shown(self._index))
            return runtime.register.next_step()
        if isinstance(self._index, bool) or (isinstance(self._index, float) and number != self._index):
            say_once("step number", "rl_otel: step(%r) is recorded as step %d", self._index, number)
        return runtime.register.next_step(number)

    def _opened(self, runtime: Runtime) -> None:
        self._attributes[semconv.STEP_INDEX] = self.index
        self._spent_before = runtime.overhead.spent()
        self._buffers = _depths(runtime)

    def _out_of_place(self, enclosing: Span) -> None:
        misuse.step_inside(self.index, enclosing)

    def _watch(self, runtime: Runtime) -> None:
        self._timeline = runtime.timelines.here()
        self._timeline.steps.add(id(self))
        runtime.gpu.moved()
        runtime.journal.append(self.start_record())

    def _unwatch(self, runtime: Runtime) -> None:
        if self._timeline is not None:
            self._timeline.steps.discard(id(self))
        runtime.gpu.moved()

    # --- ending -------------------------------------------------------------------------------------------------------

    def in_figures(self) -> _figures.StepFigures:
        end = self.finished or now()
        return _figures.step(
            self.index,
            self.began,
            end,
            self._attributes,
            phases=list(self._phases),
            trajectories=list(self._trajectories),
            elsewhere=self._beside if self.finished else self._waits_beside(end),
            handed=self.step is not None and self.step.handed,
        )

    def _waits_beside(self, end: int) -> list[_figures.Phase]:
        """Return the waits of the other loops of this process that lie in the step, at least in part."""
        runtime = _runtime.active
        return [
            _figures.Phase(
                semconv.WAIT, b"wait", b"", first, last, {semconv.ROLE: other.role, semconv.WAIT_REASON: reason}
            )
            for other in (runtime.timelines.beside(self._timeline) if runtime is not None else ())
            for reason, first, last in other.waits_until(end)
            if last > self.began and first < end
        ]

    def _closed(self, runtime: Runtime, end: int) -> None:
        self._beside = self._waits_beside(end)
        books = self.step
        if books is not None:
            for each in books.consumed:
                consume.put(self, runtime, each)
            books.ended, books.phases, books.trajectories = True, [], []
            books.consumed, books.linked = [], set()
        awaits = self._extra is not None and self._extra.due(self._attributes)
        own = [self._span] if awaits else []
        runtime.step_ended(self.in_figures, own, [phase.span for phase in self._phases])
        if runtime.meter is not None:
            reward = None if semconv.REWARD_MEAN in self._attributes else self.in_figures().reward
            role = runtime.identity.role
            runtime.meter.add(events.Step(self.seen, end - self.began, self._attributes, reward, role))
        self._count_dropped(runtime, _figures.dropped_of([self._attributes]), None)
        self._set_overhead(runtime)

    def _set_overhead(self, runtime: Runtime) -> None:
        before, now_, stopwatch = self._spent_before, runtime.overhead.spent(), self._stopwatch
        if before is not None and now_ is not None and stopwatch is not None:
            self._attributes[semconv.OVERHEAD] = (now_ - before + stopwatch.shown) / _NANO

    def _set_late(self, word: semconv.Word, value: Any, attributes: dict[str, Any]) -> None:
        super()._set_late(word, value, attributes)
        runtime = _runtime.active
        if runtime is not None and runtime.meter is not None and word.attribute in attributes:
            runtime.meter.add(events.Recorded({word.attribute: attributes[word.attribute]}))

    def left(self) -> None:
        """End it where nobody can tell why the loop was left."""
        if self.recording:
            self._attributes[semconv.STEP_LEFT] = True
        self.end()


def _depths(runtime: Runtime) -> dict[str, int]:
    """Return how full the buffers are, under the names that people chart."""
    flat = {}
    for depth in runtime.buffers.read():
        flat[f"async/{depth.name}_buffer_qsize"] = depth.size
        if depth.capacity is not None:
            flat[f"async/{depth.name}_buffer_maxsize"] = depth.capacity
    return flat


def steps(items: Iterable[Item]) -> Iterator[Item]:
    """Iterate over `items` with a step open around each, numbered by the item where that is an int.

    Spares the indentation of a `with`, but cannot know why the loop was left: that step is marked `rl.step.left`.
    """
    for item in items:
        step = Step(item if isinstance(item, int) and not isinstance(item, bool) else None).start()
        passing = [item]
        del item  # a batch must not live longer because it is traced
        try:
            yield passing.pop()
        except BaseException:
            step.left()
            raise
        step.end()


__all__ = ["Step", "steps"]
