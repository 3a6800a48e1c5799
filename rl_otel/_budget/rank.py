"""Which trajectories tell most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Final, NamedTuple
from zlib import crc32

from rl_otel._budget.candidates import Candidates

SLOWEST: Final = 5
_SHARE: Final = 16  # one in so many is shown whatever it was


def in_share(span: bytes) -> bool:
    """Whether a trajectory's span id puts it into the share that is shown in detail wherever there is room."""
    return crc32(span) % _SHARE == 0


class Ranking(NamedTuple):
    """The rows of candidates in the order in which they are shown."""

    first: Sequence[int]  # in detail, before anything else
    totals: Sequence[int]  # all, in the order in which they get at least their own span
    others: Sequence[int]  # in detail as long as there is room


def ranked(candidates: Candidates) -> Ranking:
    """Return who is shown first: the failed and the slowest in turn, the extremes of reward, the rest of the failed.

    In turn, so that neither many failures hide what held the step up, nor a few long trajectories every failure.
    The others follow by a hash of their ids, which begins with a fixed share and is as good as drawing lots.
    """
    durations, went_wrong = candidates.durations, candidates.failed
    slow = sorted(range(len(candidates)), key=lambda row: -durations[row])
    failed = [row for row in slow if went_wrong[row]]
    in_turn = zip_longest(failed[:SLOWEST], slow[:SLOWEST])
    first = _once(chain((row for pair in in_turn for row in pair if row is not None), _extremes(candidates), failed))
    totals = failed + [row for row in slow if not went_wrong[row]]
    return Ranking(first, totals, _by_lot(candidates))


def _extremes(candidates: Candidates) -> list[int]:
    rewards = candidates.rewards
    known = [row for row, reward in enumerate(rewards) if reward == reward]  # noqa: PLR0124 - NaN is no reward
    return [pick(known, key=rewards.__getitem__) for pick in (max, min)] if known else []


def _by_lot(candidates: Candidates) -> list[int]:
    lots = [crc32(id_.to_bytes(8, "big")) for id_ in candidates.ids]
    return sorted(range(len(lots)), key=lambda row: (lots[row] % _SHARE != 0, lots[row]))


def _once(rows: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(rows))
