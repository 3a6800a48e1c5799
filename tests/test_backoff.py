"""How long we wait before the next attempt."""

from __future__ import annotations

import random

from rl_otel._send import Backoff


def test_delays_double_up_to_half_a_minute_and_start_over() -> None:
    """Each failure doubles the wait; a success forgets them."""
    backoff = Backoff(chance=lambda: 0.0)
    assert [backoff.delay() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    backoff.reset()
    assert backoff.delay() == 1


def test_delay_is_never_shorter_than_the_receiver_asked() -> None:
    """Retry-After counts where it is longer than our own delay, and within ten minutes."""
    backoff = Backoff(chance=lambda: 0.0)
    assert [backoff.delay(20), backoff.delay(0), backoff.delay(86_400)] == [20, 2, 600]


def test_delays_are_spread_without_the_random_module() -> None:
    """Many ranks do not come back at once, and the run's random numbers stay as they are."""
    random.seed(7)
    state = random.getstate()
    delays = {Backoff().delay() for _ in range(100)}
    assert len(delays) > 50
    assert all(1 <= delay <= 1.5 for delay in delays)
    assert random.getstate() == state
