"""Peak memory by phase, against an allocator whose whole history is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel._gpu.framework import NOTHING
from rl_otel._gpu.peaks import Memory, Peak, Peaks

MOST = 100


@dataclass
class Allocator:
    """Counts on two devices as torch does, and remembers everything."""

    allocated: list[list[int]] = field(default_factory=lambda: [[0], [0]])  # of each device, at every moment
    since: list[int] = field(default_factory=lambda: [0, 0])  # the moment from which peaks are counted

    @property
    def now(self) -> int:
        return len(self.allocated[0]) - 1

    def move(self, device: int, size: int) -> None:
        """Allocate, or free what is there."""
        for number, history in enumerate(self.allocated):
            history.append(max(0, history[-1] + size) if number == device else history[-1])

    def peak(self, device: int, begin: int, end: int) -> int:
        return max(self.allocated[device][begin : end + 1])

    def read(self) -> dict[int, Memory]:
        found = {}
        for device, history in enumerate(self.allocated):
            peak = self.peak(device, self.since[device], self.now)
            found[device] = Memory(history[-1], peak, 2 * history[-1], 2 * peak)
        return found

    def reset(self, device: int) -> None:
        self.since[device] = self.now


@dataclass
class Running:
    peak: Peak
    began: int


#: What a process does: allocates or frees on a device, opens a phase, closes one of the open (in any order, as threads
#: do), and resets the counters itself where that is allowed.
moves = st.tuples(st.just("move"), st.integers(0, 1), st.integers(-MOST, MOST))
enters = st.tuples(st.just("enter"), st.just(0), st.just(0))
leaves = st.tuples(st.just("leave"), st.integers(0, 20), st.just(0))
resets = st.tuples(st.just("reset"), st.integers(0, 1), st.just(0))
quiet = st.lists(moves | enters | leaves, max_size=60)
meddled = st.lists(moves | enters | leaves | resets, max_size=60)


def play(actions: list[tuple[str, int, int]], peaks: Peaks) -> list[tuple[Peak, list[int], list[int]]]:
    """Do all that, and return of each phase that has ended what was found, the true peaks, and what it ended with."""
    allocator, running, ended = Allocator(), [], []
    for action, which, size in [*actions, *[("leave", 0, 0)] * len(actions)]:
        if action == "move":
            allocator.move(which, size)
        elif action == "reset":
            allocator.reset(which)
        elif action == "enter":
            running.append(Running(peaks.enter(allocator), allocator.now))
        elif running:
            phase = running.pop(which % len(running))
            peaks.leave(phase.peak, allocator)
            true = [allocator.peak(device, phase.began, allocator.now) for device in (0, 1)]
            ended.append((phase.peak, true, [history[-1] for history in allocator.allocated]))
    return ended


@given(quiet)
def test_peaks_are_exact_under_nesting_sequence_and_overlap(actions: list[tuple[str, int, int]]) -> None:
    """Whatever is allocated and whichever phases are open, each phase's peak is the true one of its time."""
    for peak, true, last in play(actions, Peaks(resets=True)):
        assert (peak.allocated, peak.reserved) == (dict(enumerate(true)), {d: 2 * size for d, size in enumerate(true)})
        assert peak.ends_with == dict(enumerate(last))
        assert peak.known
        assert not peak.lower_bound


@given(meddled)
def test_what_somebody_else_resets_never_makes_a_peak_too_high(actions: list[tuple[str, int, int]]) -> None:
    """A host that resets the counters as well makes peaks lower bounds, never wrong."""
    for peak, true, _ in play(actions, Peaks(resets=True)):
        assert all(peak.allocated[device] <= true[device] for device in (0, 1))


@given(meddled)
def test_who_only_observes_gives_lower_bounds(actions: list[tuple[str, int, int]]) -> None:
    """Without a reset of ours no peak is too high, each is at least what the phase ended with, and all are marked."""
    for peak, true, last in play(actions, Peaks(resets=False)):
        assert all(last[device] <= peak.allocated[device] <= true[device] for device in (0, 1))
        assert peak.lower_bound


@given(quiet)
def test_who_only_observes_leaves_the_counters_alone(actions: list[tuple[str, int, int]]) -> None:
    """No counter is ever reset."""

    class Untouchable(Allocator):
        def reset(self, device: int) -> None:
            pytest.fail("a counter was reset")

    peaks, allocator = Peaks(resets=False), Untouchable()
    for action, which, size in actions:
        if action == "move":
            allocator.move(which, size)
        elif action == "enter":
            peaks.enter(allocator)


def test_a_reset_of_the_hosts_is_seen_by_a_drop() -> None:
    """Counters that stand below what was allocated at our last reset were reset since: the peak is a lower bound."""
    peaks, allocator = Peaks(resets=True), Allocator()
    allocator.move(0, 30)
    peak = peaks.enter(allocator)
    allocator.move(0, 60)
    allocator.move(0, -80)
    allocator.reset(0)
    peaks.leave(peak, allocator)
    assert (peak.allocated[0], peak.lower_bound) == (10, True)


def test_nested_phases_of_ten_thirty_and_twenty() -> None:
    """The outer phase peaks at the highest of all that happens in it, the inner one at its own."""
    peaks, allocator = Peaks(resets=True), Allocator()
    outer = peaks.enter(allocator)
    allocator.move(0, 10)
    allocator.move(0, 20)
    allocator.move(0, -25)
    inner = peaks.enter(allocator)
    allocator.move(0, 15)
    allocator.move(0, -20)
    peaks.leave(inner, allocator)
    peaks.leave(outer, allocator)
    assert (outer.allocated[0], inner.allocated[0]) == (30, 20)


def test_a_boundary_that_could_not_be_read_makes_its_phase_unknown_and_no_other() -> None:
    """While a graph is captured nothing is read: a phase that begins or ends then has no peak, those around it have."""
    peaks, allocator = Peaks(resets=True), Allocator()
    outer = peaks.enter(allocator)
    allocator.move(0, 50)
    begun = peaks.enter(None)
    ended = peaks.enter(allocator)
    allocator.move(0, -40)
    peaks.leave(ended, None)
    peaks.leave(begun, allocator)
    peaks.leave(outer, allocator)
    assert (begun.known, ended.known, outer.known) == (False, False, True)
    assert outer.allocated[0] == 50


def test_a_device_that_appears_inside_a_phase_counts_from_its_beginning() -> None:
    """What CUDA peaked at since the host initialised it belongs to the phases that were open meanwhile."""
    peaks, allocator = Peaks(resets=True), Allocator()
    peak = peaks.enter(NOTHING)
    allocator.move(0, 70)
    allocator.move(0, -60)
    peaks.leave(peak, allocator)
    assert peak.allocated[0] == 70
