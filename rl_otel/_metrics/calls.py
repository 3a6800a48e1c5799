"""What calls cost and bring, in bucket arrays of our own: an instrument of the SDK takes 6 µs for each measurement.

A thread that ends a call adds its figures to a list, in one operation that needs no lock; they are counted later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rl_otel import semconv
from rl_otel import semconv_metrics as table
from rl_otel._metrics.series import Series, Spread, Total
from rl_otel._safety import swallow

if TYPE_CHECKING:
    from typing import Protocol

    class Played(Protocol):
        """What is around a call: a trajectory, or a rollout."""

        environment: str | None

        def plays(self, environment: str | None) -> None:
            """Note an environment that is played inside."""


#: What is taken of a call: name, attributes, environment, duration and end in ns, trace, span, flags.
_Call: TypeAlias = tuple[Any, ...]
_WIDTH: Final = 8
_MANY: Final = 512 * _WIDTH  # when our thread is called
_TOO_MANY: Final = 65_536 * _WIDTH  # when the caller counts them


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
        self._pending: list[Any] = []
        self.still = threading.Lock()  # held while series change or are read
        self.generate = Series(table.GENERATE, partial(Spread, bounds=table.GENERATE.bounds))
        self.env_step = Series(table.ENV_STEP, partial(Spread, bounds=table.ENV_STEP.bounds))
        self.tokens = Series(table.TOKENS, Total)

    def take(  # noqa: PLR0917 - on the host's thread, and keywords take longer
        self,
        name: str,
        attributes: Mapping[str, Any],
        around: Played | None,
        nanoseconds: int,
        end: int,
        trace: bytes,
        span: bytes,
        flags: int,
    ) -> None:
        """Take a call that has ended, of that name, duration and end; `around` is what gathers its figures."""
        if around is not None and name == semconv.GENERATE:
            environment = around.environment
        else:
            environment = attributes.get(semconv.ENVIRONMENT_NAME)
            if around is not None and environment != around.environment:
                around.plays(environment)
        pending = self._pending
        pending.extend((name, attributes, environment, nanoseconds, end, trace, span, flags))
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

    def _count(self, name: str, environment: str | None, mode: str, calls: list[_Call]) -> None:
        if name == semconv.GENERATE:
            self.generate.at(environment, mode).add(calls, self._shown)
            for kind, attribute in ((table.TOKENS_IN, semconv.INPUT_TOKENS), (table.TOKENS_OUT, semconv.OUTPUT_TOKENS)):
                self._add_tokens(kind, attribute, mode, calls)
        elif name == semconv.ENV_STEP:
            self.env_step.at(environment, mode).add(calls, self._shown)

    def _add_tokens(self, kind: str, attribute: str, mode: str, calls: list[_Call]) -> None:
        sums: dict[str | None, int] = {}
        for call in calls:
            told = call[1]
            tokens = told.get(attribute)
            if tokens is not None:
                purpose = told.get(semconv.PURPOSE)
                sums[purpose] = sums.get(purpose, 0) + (tokens if type(tokens) is int else sum(tokens))
        for purpose, tokens in sums.items():
            self.tokens.at(kind, purpose, mode).value += tokens


def _by_series(taken: list[Any]) -> dict[tuple[str, str | None, str], list[_Call]]:
    """Return the calls by name, environment and mode."""
    groups: dict[tuple[str, str | None, str], list[_Call]] = {}
    for call in zip(*[iter(taken)] * _WIDTH, strict=True):
        name, attributes, environment = call[:3]
        if type(environment) is not str or not environment:
            environment = None
        key = name, environment, attributes.get(semconv.MODE, table.MODE_TRAIN)
        group = groups.get(key)
        if group is None:
            groups[key] = [call]
        else:
            group.append(call)
    return groups
