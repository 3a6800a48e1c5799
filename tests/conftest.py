"""What holds around every test: a clean environment, a folder of its own, and no error of ours passed over."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from rl_otel import _safety
from tests import needs
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.receiver import Receiver

pytest_plugins = ["rl_otel.testing"]

#: Variables of these families would make a developer's shell, or a cluster's, part of the test.
_FOREIGN = ("OTEL_", "RL_OTEL_", "SLURM_", "TORCHELASTIC_", "OMPI_", "PMI_", "MPI_", "MASTER_", "GROUP_")
_RANKS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TRACEPARENT"}


# A busy machine is slow now and then; what is generated, not how fast, is the test. `quick` is for the second run of
# the same tests, on another Python.
slow = [HealthCheck.too_slow]
settings.register_profile("rl_otel", deadline=None, max_examples=50, suppress_health_check=slow)
settings.register_profile("quick", deadline=None, max_examples=10, suppress_health_check=slow)
settings.load_profile("rl_otel")


def pytest_configure() -> None:
    # What a shell script starts in the background ignores Ctrl-C, and so would every process of ours.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs.check(item)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if (name.startswith(_FOREIGN) or name in _RANKS) and not name.startswith("RL_OTEL_TEST_"):
            monkeypatch.delenv(name)
    # Run folders and journals of a test, and of the processes it starts, go where pytest cleans up.
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.chdir(scratch)


@pytest.fixture(autouse=True)
def _errors_surface(_clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise what the boundary would swallow; a test of the boundary itself sets `_safety.strict` back."""
    monkeypatch.setattr(_safety, "strict", True)
    _safety.forget()
    _forget_current_span()
    yield
    if "rl_otel._runtime" in sys.modules:
        import rl_otel

        rl_otel.shutdown(timeout=0.1)
        _let_our_threads_end()
    _forget_global_providers()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A back end that takes everything until the test scripts it."""
    from tests.receiver import Receiver

    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def recording() -> None:
    """Record into `runs/r1`, metrics too."""
    import rl_otel

    rl_otel.configure(run_dir="runs", run_id="r1")


@pytest.fixture
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what was recorded sent at once, and not once a second."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")


def _let_our_threads_end() -> None:
    # `shutdown` waits no longer than it may for one that is sending; what that one says is not the next test's.
    if receiver := sys.modules.get("tests.receiver"):
        receiver.close_ports()
    for thread in threading.enumerate():
        if thread.name.startswith("rl_otel "):
            thread.join(PATIENCE)
            assert not thread.is_alive(), thread


def _forget_current_span() -> None:
    # A test of generators that are left open leaves their spans current, and all tests share one context.
    if ambient := sys.modules.get("rl_otel._spans.ambient"):
        ambient.innermost.set(None)
        ambient.otel_context.attach(ambient.otel_context.Context())


def _forget_global_providers() -> None:
    # OpenTelemetry sets a provider once a process and offers no way back: one test's would be the next one's host.
    if trace := sys.modules.get("opentelemetry.trace"):
        trace._TRACER_PROVIDER = None
        trace._TRACER_PROVIDER_SET_ONCE = type(trace._TRACER_PROVIDER_SET_ONCE)()
    if metrics := sys.modules.get("opentelemetry.metrics._internal"):
        metrics._METER_PROVIDER = None
        metrics._METER_PROVIDER_SET_ONCE = type(metrics._METER_PROVIDER_SET_ONCE)()
