"""What calls cost and bring, in bucket arrays of our own: an instrument of the SDK takes 6 µs for each measurement.

A thread that ends a call adds its figures to a list, in one operation that needs no lock; they are counted later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rl_otel import semconv
from rl_otel import semconv_metrics as table
from rl_otel._metrics.series import Series, Spread, Total
from rl_otel._safety import swallow

if TYPE_CHECKING:
    from typing import Protocol

    from rl_otel._record import End

    class Played(Protocol):
        """What is around a call: a trajectory, or a rollout."""

        environment: str | None
        counted_elsewhere: str


_MANY: Final = 1024  # items, two a call: when our thread is called
_TOO_MANY: Final = 131_072  # when the caller counts them


class Calls:
    """The histograms of model calls and environment steps, and the tokens.

    Args:
        shown: whether a call may be an exemplar: of one that is not sampled, and of one that is.
        wake: calls the thread that counts.
    """

    def __init__(self, shown: tuple[bool, bool], wake: Callable[[], None]) -> None:
        self._shown = shown
        self._wake = wake
        self._called = False
        self._pending: list[Any] = []  # each call, and the environment around it
        self.still = threading.Lock()  # held while series change or are read
        self.generate = Series(table.GENERATE, partial(Spread, bounds=table.GENERATE.bounds))
        self.env_step = Series(table.ENV_STEP, partial(Spread, bounds=table.ENV_STEP.bounds))
        self.tokens = Series(table.TOKENS, Total)

    def take(self, call: End, around: Played | None) -> None:
        """Take a call that has ended; `around` is what gathers its figures."""
        pending, environment = self._pending, None
        if around is not None:
            if around.counted_elsewhere == call.name:
                return
            environment = around.environment
        pending += (call, environment)
        if len(pending) > _MANY:
            self._hurry()

    def _hurry(self) -> None:
        if not self._called:
            self._called = True
            self._wake()
        elif len(self._pending) > _TOO_MANY:
            self.count(wait=False)

    def count(self, *, wait: bool = True) -> None:
        """Count what is pending."""
        if not self.still.acquire(blocking=wait):
            return
        try:
            self._called = False
            taken = self._pending[:]
            del self._pending[: len(taken)]  # in one go: other threads add meanwhile
            for (name, environment, mode), calls in _by_series(taken).items():
                try:
                    self._count(name, environment, mode, calls)
                except Exception as error:  # the calls beside them are none the worse
                    swallow("the metrics of calls", error)
        finally:
            self.still.release()

    def _count(self, name: str, environment: str | None, mode: str, calls: list[End]) -> None:
        if name == semconv.GENERATE:
            self.generate.at(environment, mode).add(calls, self._shown)
            for kind, attribute in ((table.TOKENS_IN, semconv.INPUT_TOKENS), (table.TOKENS_OUT, semconv.OUTPUT_TOKENS)):
                self._add_tokens(kind, attribute, mode, calls)
        elif name == semconv.ENV_STEP:
            self.env_step.at(environment, mode).add(calls, self._shown)

    def _add_tokens(self, kind: str, attribute: str, mode: str, calls: list[End]) -> None:
        sums: dict[str | None, int] = {}
        for call in calls:
            tokens = call.attributes.get(attribute)
            if tokens is not None:
                purpose = call.attributes.get(semconv.PURPOSE)
                sums[purpose] = sums.get(purpose, 0) + (tokens if type(tokens) is int else sum(tokens))
        for purpose, tokens in sums.items():
            self.tokens.at(kind, purpose, mode).value += tokens


def _by_series(taken: list[Any]) -> dict[tuple[str, str | None, str], list[End]]:
    """Return the calls by name, environment and mode."""
    groups: dict[tuple[str, str | None, str], list[End]] = {}
    for call, around in zip(taken[::2], taken[1::2], strict=True):
        attributes = call.attributes
        environment = around if call.name == semconv.GENERATE else attributes.get(semconv.ENVIRONMENT_NAME)
        if type(environment) is not str or not environment:
            environment = None
        key = call.name, environment, attributes.get(semconv.MODE, table.MODE_TRAIN)
        group = groups.get(key)
        if group is None:
            groups[key] = [call]
        else:
            group.append(call)
    return groups
