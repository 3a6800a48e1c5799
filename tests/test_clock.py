"""One monotonic clock a process: the wall clock may jump, spans do not."""

from __future__ import annotations

import time

import rl_otel
from rl_otel import _clock
from rl_otel.testing import Traces
from tests import process

# The wall jumps before, inside and between spans; the monotonic clock goes on.
JUMPING = """
    import datetime, time
    real, shift = time.time_ns, 0
    time.time_ns = lambda: real() + shift
    time.time = lambda: (real() + shift) / 1e9

    import rl_otel
    from rl_otel.testing import capture

    with capture() as traces:
        began = real()
        with rl_otel.step(0):
            with rl_otel.rollout(), rl_otel.trajectory() as trajectory:
                with rl_otel.generate():
                    shift = -5_000_000_000
                    time.sleep(0.02)
                with rl_otel.env_step() as env_step:
                    env_step.add_event("moment")
                    shift = 5_000_000_000
                    time.sleep(0.02)
            with rl_otel.train():
                shift = -5_000_000_000
        ended = real()
        spans = traces.spans

    for span in spans:
        assert began - 100_000_000 <= span.start <= span.end <= ended + 100_000_000, span
        assert all(span.start <= event.time <= span.end for event in span.events)
        for child in span.children:
            assert span.start <= child.start <= child.end <= span.end
    named = {span.name: span for span in spans}
    assert named["generate"].end <= named["env.step"].start <= named["trajectory"].end <= named["train"].start
    assert 20_000_000 <= named["generate"].duration <= named["trajectory"].duration < 5_000_000_000
    parts = {k: v for k, v in named["trajectory"].attributes.items() if k.endswith(".duration")}
    assert abs(sum(parts.values()) * 1e9 - named["trajectory"].duration) <= 1000, parts
    assert not any("rl.time.repaired" in span.attributes for span in spans)
    print(len(spans))
"""


def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    """Set back and forth by five seconds in between, spans keep their order, durations and place in real time."""
    assert process.run(JUMPING).stdout == "6\n"


def test_the_clock_agrees_with_the_wall() -> None:
    """Times are nanoseconds since the epoch, to well under a second of the wall clock, and never go back."""
    readings = [_clock.now() for _ in range(1000)]
    assert readings == sorted(readings)
    assert type(readings[0]) is int
    assert abs(readings[-1] - time.time_ns()) < 1_000_000_000


def test_forked_children_share_the_clock(traces: Traces) -> None:
    """A forked child goes on with the clock of its parent, so that their spans compare."""
    done = process.run(
        """
        import os, time
        from rl_otel import _clock
        before, (read, write) = _clock.now(), os.pipe()
        time.time_ns = lambda: 0
        if os.fork() == 0:
            os.write(write, str(_clock.now()).encode())
            os._exit(0)
        os.wait()
        print(before <= int(os.read(read, 100)) <= _clock.now())
        """
    )
    assert done.stdout == "True\n"


def test_a_span_of_no_length_does_not_end_before_it_begins(traces: Traces) -> None:
    """Spans shorter than the clock can tell have a duration of 0 or more."""
    for _ in range(200):
        rl_otel.generate().start().end()
    assert min(span.duration for span in traces.spans) >= 0
