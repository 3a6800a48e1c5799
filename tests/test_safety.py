"""The boundary's log lines: one a minute for each key, and never a traceback of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_otel import _safety
from rl_otel._safety import say, say_once
from tests import process

if TYPE_CHECKING:
    import pytest


def test_what_cannot_be_shown_prints_no_traceback() -> None:
    """An argument of the host that fails to be formatted costs itself: the line is there, and no error of logging."""
    done = process.run(
        """
        from rl_otel._safety import say

        class Broken:
            def __repr__(self):
                raise RuntimeError("no repr")

        say("one", "lost %r", Broken())
        say("two", "lost %d of %s", "many", 3)
        """
    )
    told = "(with values that cannot be shown)"
    assert done.stderr == f"lost %r {told}\nlost %d of %s {told}\n"


def test_a_per_cent_in_a_value_is_a_per_cent(caplog: pytest.LogCaptureFixture) -> None:
    """What was formatted is not formatted again."""
    say("key", "used %s", "100 %d")
    say("other", "used 100 %d")
    assert caplog.messages == ["used 100 %d", "used 100 %d"]


def test_a_key_has_one_line_a_minute(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back meanwhile is counted in the next line."""
    moment = 1000.0
    monkeypatch.setattr(_safety.time, "monotonic", lambda: moment)
    for i in range(3):
        say("key", "lost %d", i)
    moment += 61
    say("key", "lost %d", 3)
    say_once("key", "never again")
    assert caplog.messages == ["lost 0", "lost 3 (2 more like this)"]


def test_a_handler_of_the_host_may_call_us(caplog: pytest.LogCaptureFixture) -> None:
    """A value whose text makes us say something else does not go round in circles."""

    class Talkative:
        def __repr__(self) -> str:
            say("inner", "inner")
            return "talkative"

    say("outer", "outer %r", Talkative())
    assert caplog.messages == ["outer talkative"]
