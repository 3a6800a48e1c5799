"""Trajectories that no training uses, as a rollout or a step tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rl_otel import _values, semconv
from rl_otel._metrics import events
from rl_otel._spans.parent import Parent

if TYPE_CHECKING:
    from rl_otel._runtime import Runtime


class Dropping(Parent):
    """A span whose `record` takes `dropped`: for each reason how many, or which ones by their ids."""

    _which: Mapping[str, list[Any]] = MappingProxyType({})  # by reason, where it was told

    def _take_all(self, words: Mapping[str, Any]) -> None:
        super()._take_all({name: value for name, value in words.items() if name != "dropped"})
        dropped = words.get("dropped", {})
        for reason, what in (dropped if isinstance(dropped, Mapping) else {"unknown": dropped}).items():
            reason = _values.text(str(reason), 64)
            if isinstance(what, (list, tuple, set, frozenset)):
                self._which = {**self._which, reason: list(what)}
                what = len(what)
            attribute = semconv.TRAJECTORIES_DROPPED.format(reason=reason)
            self._take("dropped", semconv.Word(attribute, int), what)

    def _count_dropped(self, runtime: Runtime, dropped: Mapping[str, int], environment: str | None) -> None:
        """Have the metrics count them, by the environment that each was played in where that is known."""
        if runtime.meter is None:
            return
        for reason, count in dropped.items():
            which = self._which.get(reason)
            played = {environment: count} if which is None else Counter(_environments(runtime, which, environment))
            for each, number in played.items():
                runtime.meter.add(events.Dropped(reason, number, each, self.mode))


def _environments(runtime: Runtime, which: list[Any], environment: str | None) -> Iterator[str | None]:
    for each in which:
        name, attempt = each[:2] if isinstance(each, (tuple, list)) and len(each) > 1 else (each, 1)
        played = runtime.register.played(str(name), attempt)
        yield environment if played is None else played.environment
