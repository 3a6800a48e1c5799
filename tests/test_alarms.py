"""Time limits of the host: what its signal handler raises while our code runs is the host's, and reaches it."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _runtime, _safety
from rl_otel._journal import Writer
from tests.records import HEAD, span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rl_otel.testing import Traces


class Limit(TimeoutError):
    """A time limit of the host; TimeoutError is an OSError, and looks like a fault of the disk."""


def limit(*_: Any) -> None:
    raise Limit


class Limits:
    def method(self, *_: Any) -> None:
        deeper()

    def __call__(self, *_: Any) -> None:
        raise Limit


def deeper() -> None:
    raise Limit


HANDLERS = [limit, Limits().method, Limits(), functools.partial(limit, 1), functools.partial(Limits().method, 1)]


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, limit)
    yield
    signal.signal(signal.SIGUSR1, before)


def alarm(*_: Any, **__: Any) -> None:
    """Stand for any work of ours, in the middle of which the time is over."""
    signal.raise_signal(signal.SIGUSR1)


def broken(*_: Any) -> None:
    raise Limit


def enter(monkeypatch: pytest.MonkeyPatch, work: Callable[..., None]) -> None:
    monkeypatch.setattr("rl_otel._spans.ambient.current", work)
    rl_otel.train().start()


def leave(monkeypatch: pytest.MonkeyPatch, work: Callable[..., None]) -> None:
    train = rl_otel.train().start()
    monkeypatch.setattr(Writer, "end", work)
    train.end()


def record(monkeypatch: pytest.MonkeyPatch, work: Callable[..., None]) -> None:
    train = rl_otel.train().start()
    monkeypatch.setattr("rl_otel._values.as_type", work)
    train.record(tokens=object())


def set_attribute(monkeypatch: pytest.MonkeyPatch, work: Callable[..., None]) -> None:
    train = rl_otel.train().start()
    monkeypatch.setattr("rl_otel._values.plain", work)
    train.set_attribute("key", object())


def add_event(monkeypatch: pytest.MonkeyPatch, work: Callable[..., None]) -> None:
    train = rl_otel.train().start()
    monkeypatch.setattr("rl_otel._spans.otel.now", work)
    train.add_event("event")


def flush(monkeypatch: pytest.MonkeyPatch, work: Callable[..., None]) -> None:
    monkeypatch.setattr(_runtime.active, "flush", work)
    rl_otel.flush()


BOUNDARIES = [enter, leave, record, set_attribute, add_event, flush]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_limit_of_the_host_leaves_our_code(traces: Traces, boundary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that strikes inside any of our calls stops the host as it was meant to."""
    monkeypatch.setattr(_safety, "strict", False)
    with monkeypatch.context() as patch, pytest.raises(Limit):
        boundary(patch, alarm)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_an_error_of_ours_is_kept_all_the_same(
    traces: Traces, boundary: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a handler is installed but did not run, the same exception is ours."""
    monkeypatch.setattr(_safety, "strict", False)
    with monkeypatch.context() as patch:
        boundary(patch, broken)
    assert ": Limit: " in caplog.text


@pytest.mark.parametrize("handler", HANDLERS, ids=["function", "method", "object", "partial", "partial method"])
def test_a_handler_of_any_kind_is_known(handler: Any) -> None:
    """Function, method, object with a call of its own, with arguments bound to it or not."""
    signal.signal(signal.SIGUSR1, handler)
    try:
        alarm()
    except Limit as error:
        with pytest.raises(Limit):
            _safety.pass_on(error)
        with pytest.raises(Limit):
            _safety.swallow("test", error)


@pytest.mark.parametrize("function", ["write", "open", "link"])
def test_a_limit_is_no_fault_of_the_disk(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that strikes while a record is written reaches the host, and the journal goes on with the next one."""
    writer = Writer(Path("run"), "host", 1, "instance", lambda: HEAD)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, alarm)
        with pytest.raises(Limit):
            writer.end(span(1))
    assert writer.lost == 1
    writer.end(span(2))
    writer.close()
    assert (writer.lost, writer.written) == (1, 1)
    assert not writer.overflow.numbers
