"""Which trajectories a run trains on: those that no `consume` names were generated in vain."""

from __future__ import annotations

from typing import Final, NamedTuple

from rl_otel import _figures, _record, semconv
from rl_otel._analysis.trained import TRAINS, count_of
from rl_otel._figures import Wasted

_PATIENCE: Final = 16  # steps without a link, after which a run is one that does not say what it trains on


class _Waiting(NamedTuple):
    """A trajectory that nothing has trained on yet."""

    tokens: int
    group: str | None


class Waste:
    """The trajectories that wait to be trained on: of a run that trains on nearly all, few at any moment."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, _Waiting] = {}
        self._groups: dict[str, dict[bytes, None]] = {}  # those that wait, by group, in the order they came in
        self._early: set[bytes] = set()  # named before they were seen
        self._credit: dict[str, int] = {}  # of groups that one link stood for: how many of it were not seen yet
        self._continued: dict[tuple[str, int], int] = {}  # tokens of segments that another one takes up
        self._trajectories = self._tokens = self._steps = 0
        self._consumes = False
        self.known = True  # whether there is still something to be known

    def end(self, record: _record.End) -> None:
        """Take a span that may say what it trains on."""
        if record.links and record.name in TRAINS:
            for link in record.links:
                self._consume(link)

    def step(self) -> None:
        """Take note that a step has ended."""
        self._steps += 1
        if self._steps == _PATIENCE and not self._consumes:
            self._give_up()

    def add(self, trajectory: _record.End, nested: int) -> None:
        """Take a trajectory that has ended; `nested` are tokens of others inside of it."""
        attributes = trajectory.attributes
        if not self.known or attributes.get(semconv.MODE) == semconv.MODE_EVAL:
            return
        tokens = attributes.get(semconv.TRAJECTORY_OUTPUT_TOKENS, 0) + nested
        self._tokens += tokens
        whole = str(attributes.get(semconv.TRAJECTORY_ID, "")), count_of(attributes, semconv.ATTEMPT)
        if attributes.get(semconv.TRAJECTORY_CONTINUES):
            self._continued[whole] = self._continued.get(whole, 0) + tokens
            return
        if count_of(attributes, semconv.SEGMENT) > 1:
            tokens += self._continued.pop(whole, 0)
        self._trajectories += 1
        self._wait(trajectory.span, _Waiting(tokens, _group(attributes)))

    def wasted(self) -> Wasted | None:
        """Return what nothing has trained on, None for a run that does not say, or not of each trajectory."""
        if not self.known or not self._trajectories or not self._consumes:
            return None
        if not self._credit.keys().isdisjoint(self._groups):
            return None  # a link stood for a part of a group: for which nobody says
        tokens = sum(each.tokens for each in self._waiting.values()) + sum(self._continued.values())
        return _figures.Wasted(len(self._waiting), tokens, self._trajectories, self._tokens)

    def unseen(self) -> int:
        """Return how many trajectories were trained on, where not one has been seen; else 0."""
        return 0 if self._trajectories or self._continued else len(self._early)

    def _wait(self, span: bytes, waiting: _Waiting) -> None:
        group = waiting.group
        if span in self._early:
            self._early.discard(span)
        elif group is not None and self._credit.get(group):
            self._credit[group] -= 1
        else:
            self._waiting[span] = waiting
            if group is not None:
                self._groups.setdefault(group, {})[span] = None

    def _consume(self, link: _record.Link) -> None:
        if semconv.TRAJECTORY_ID not in link.attributes or not self.known:
            return
        self._consumes = True
        self._train(link.span)
        more = count_of(link.attributes, semconv.GROUP_TRAJECTORIES) - 1
        group = link.attributes.get(semconv.GROUP_ID)
        if more <= 0:
            return
        if not isinstance(group, str):
            self._give_up()  # which trajectories it stands for nobody says
            return
        for span in list(self._groups.get(group, ()))[:more]:
            self._train(span)
            more -= 1
        self._credit[group] = self._credit.get(group, 0) + more

    def _train(self, span: bytes) -> None:
        waiting = self._waiting.pop(span, None)
        if waiting is None:
            self._early.add(span)
        elif waiting.group is not None:
            members = self._groups[waiting.group]
            del members[span]
            if not members:
                del self._groups[waiting.group]

    def _give_up(self) -> None:
        self.known = False
        for known in (self._waiting, self._groups, self._early, self._credit, self._continued):
            known.clear()


def _group(attributes: _record.Attributes) -> str | None:
    """Return the group of a trajectory as `consume` sees it: as it says, else as its id tells: `<group>/<sample>`."""
    group = attributes.get(semconv.GROUP_ID, str(attributes.get(semconv.TRAJECTORY_ID, "")).rpartition("/")[0])
    return str(group) or None
