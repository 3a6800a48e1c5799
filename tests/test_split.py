"""The arithmetic of time, against an oracle that counts one nanosecond after another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import semconv
from rl_otel._split import Child, percentile, split, union

moments = st.integers(min_value=-5, max_value=25)
children = st.lists(st.tuples(st.sampled_from(semconv.PARTS), moments, moments), max_size=8)


def split_by_counting(children: list[Child], start: int, end: int) -> dict[str, int]:
    parts = {part: 0 for part, _, _ in children}
    parts[semconv.OTHER] = 0
    for instant in range(start, end):
        open_parts = {part for part, begun, ended in children if begun <= instant < ended}
        owner = next((part for part in semconv.PARTS if part in open_parts), semconv.OTHER)
        parts[owner] += 1
    return parts


def test_percentile_of_nothing_is_an_error() -> None:
    """A percentile of no values has no answer and says so."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_union_ignores_intervals_that_end_before_they_start() -> None:
    """A broken interval covers nothing and does not take from the others."""
    assert union([(5, 3), (0, 4), (9, 9)]) == 4


@given(st.lists(st.tuples(moments, moments), max_size=8))
def test_union_counts_every_covered_nanosecond_once(intervals: list[tuple[int, int]]) -> None:
    """The union is the number of nanoseconds inside any interval."""
    assert union(iter(intervals)) == len({instant for begun, ended in intervals for instant in range(begun, ended)})


@given(children, st.integers(0, 10), st.integers(0, 12))
def test_split_gives_every_nanosecond_to_one_part(children: list[Child], start: int, length: int) -> None:
    """Whatever overlaps or sticks out, each instant goes to the first open part and the sum is the duration."""
    parts = split(iter(children), start, start + length)
    assert parts == split_by_counting(children, start, start + length)
    assert sum(parts.values()) == length


@given(st.lists(st.tuples(st.sampled_from(semconv.PARTS), st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_split_in_one_pass_agrees_with_counting(gaps: list[tuple[str, int, int]]) -> None:
    """Children one after another take the fast path and come out the same."""
    ordered, now = [], 0
    for part, gap, length in gaps:
        ordered.append((part, now + gap, now + gap + length))
        now += gap + length
    assert split(ordered, 0, now + 3) == split_by_counting(ordered, 0, now + 3)


def test_split_without_children_is_all_other() -> None:
    """Time with nothing open is `other`, and a part that never ran is absent."""
    assert split([], 10, 25) == {"other": 15}


def test_a_child_of_no_length_still_names_its_part() -> None:
    """A part that ran for 0 ns is known to have run."""
    assert split([("env", 3, 3)], 0, 10) == {"env": 0, "other": 10}


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.integers(0, 100))
def test_percentile_is_the_nearest_rank(values: list[int], percent: int) -> None:
    """A percentile is a value that occurred, with at least that share of all values at or below it."""
    found = percentile(values, percent / 100)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < max(percent * len(values), 1)


def test_percentile_is_not_fooled_by_binary_fractions() -> None:
    """The 7 % quantile of 1..100 is 7, though 0.07 * 100 is a little more than 7."""
    assert percentile(range(1, 101), 0.07) == 7
