"""Switched off, every call is a no-op: no thread, no file, no folder, no output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import process

USES_ALL = """
    import asyncio, random, sys, threading, time
    import rl_otel
    configured, threads, state = len(sys.argv) > 1, threading.active_count(), random.getstate()
    if configured:
        rl_otel.configure("grpo", endpoint="http://127.0.0.1:9", run_dir="runs")

    @rl_otel.train()
    def double(x):
        return 2 * x

    @rl_otel.generate(model="m")
    async def answer():
        return rl_otel.current().span_id

    @rl_otel.env_step("e")
    def observations():
        yield from range(3)

    with rl_otel.step(0) as step:
        with rl_otel.rollout() as rollout, rl_otel.trajectory(group=1) as trajectory:
            assert asyncio.run(answer()) == ""
            assert list(observations()) == [0, 1, 2]
            trajectory.record({"odd": object()}, reward=1.0)
        assert double(4) == 8
        assert rl_otel.bind(double)(5) == 10
        handle = rl_otel.weight_sync().start()
        handle.end()
        step.record(loss=0.5)
        assert rl_otel.current("step").record(kl=1.0) is None
        rl_otel.add("env.step", time.time_ns() - 5, time.time_ns(), reward=1.0)
    assert [i for i in rl_otel.steps(range(2))] == [0, 1]
    assert step.summary == {}
    assert step.trace_id == trajectory.span_id == ""
    try:
        with rl_otel.optimizer():
            raise KeyError("mine")
    except KeyError as error:
        assert error.args == ("mine",)
    report = rl_otel.flush(), rl_otel.shutdown()
    assert [(r.sent, r.pending, r.kept, r.dropped, r.timed_out) for r in report] == [(0, 0, 0, 0, False)] * 2
    assert threading.active_count() == threads
    assert random.getstate() == state
    from opentelemetry import trace
    assert type(trace.get_tracer_provider()).__name__ == "ProxyTracerProvider"
"""


@pytest.mark.parametrize("arguments", [(), ("configured",)])
def test_off_every_call_does_nothing(arguments: tuple[str, ...]) -> None:
    """Never configured, or OTEL_SDK_DISABLED=true: the program runs as without us and leaves no trace of us."""
    done = process.run(USES_ALL, *arguments, env={"OTEL_SDK_DISABLED": "true", "RL_OTEL_PRINT": "1"})
    assert (done.stdout, done.stderr) == ("", "")
    assert list(Path().iterdir()) == []


def test_never_configured_every_call_does_nothing() -> None:
    """Without `configure()` no variable has to say so."""
    done = process.run(USES_ALL, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "RL_OTEL_PRINT": "1"})
    assert (done.stdout, done.stderr) == ("", "")
    assert list(Path().iterdir()) == []


ONE_LINE = """
    import logging
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    import rl_otel
    rl_otel.configure()
    rl_otel.configure()
"""


def test_disabled_is_said_once_to_who_listens() -> None:
    """A log that takes lines of level INFO learns why nothing is recorded."""
    done = process.run(ONE_LINE, env={"OTEL_SDK_DISABLED": "true"})
    assert done.stderr == "INFO rl_otel: OTEL_SDK_DISABLED is set: nothing is recorded\n"


RECORDS_NOTHING = """
    import os, threading
    import rl_otel
    rl_otel.configure(run_dir="runs")
    assert threading.active_count() == 1
    assert rl_otel.shutdown()
"""


def test_who_records_nothing_starts_no_thread() -> None:
    """Configured alone, without a span, there is no thread and no folder."""
    done = process.run(RECORDS_NOTHING, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert (done.stdout, done.stderr) == ("", "")
    assert list(Path().iterdir()) == []
