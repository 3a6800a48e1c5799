"""For tests of traced code: what it records, handed back as spans.

`capture` is a context manager; with `pytest_plugins = ["rl_otel.testing"]` in a conftest.py the fixture `traces` does
the same around a test.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_otel import _configure, _record, _runtime, _safety
from rl_otel._config import Config
from rl_otel._journal import journals, read

_SENDING = {"endpoint", "exporter"}


@dataclass
class Recorded:
    """One span as it was recorded; `links` and `events` are those of the record."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    status: str
    message: str
    links: list[_record.Link] = field(default_factory=list)
    events: list[_record.Event] = field(default_factory=list)
    children: list[Recorded] = field(default_factory=list)
    foreign: bool = False

    @property
    def duration(self) -> int:
        """From start to end, in nanoseconds."""
        return self.end - self.start


class Traces:
    """What has been recorded since `capture` began; read anew at each look, and kept when it is over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: list[_record.Record] | None = None

    @property
    def records(self) -> list[_record.Record]:
        """Every record of the journal, in the order of writing."""
        if self._kept is not None:
            return self._kept
        return [record for path in journals(self.folder) for record, _ in read(path)]

    def keep(self) -> None:
        """Read for the last time: the journal goes."""
        self._kept = self.records

    @property
    def spans(self) -> list[Recorded]:
        """Every span that has ended, by start."""
        late: dict[bytes, dict[str, Any]] = {}
        found: dict[bytes, Recorded] = {}
        for record in self.records:
            if isinstance(record, _record.Late):
                late.setdefault(record.span, {}).update(record.attributes)
            elif isinstance(record, _record.End | _record.Foreign):
                found[record.span] = _recorded(record)
        for span, attributes in late.items():
            if span in found:
                found[span].attributes.update(attributes)
        return _joined(found)

    @property
    def roots(self) -> list[Recorded]:
        """The spans without a parent among the recorded ones."""
        spans = self.spans
        ids = {span.span_id for span in spans}
        return [span for span in spans if span.parent_id not in ids]

    def all(self, name: str) -> list[Recorded]:
        """Return the spans of that name, by start."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Recorded:
        """Return the one span of that name.

        Raises:
            AssertionError: there are none or several.
        """
        found = self.all(name)
        if len(found) != 1:
            raise AssertionError(f"{len(found)} spans are named {name!r}; recorded were:\n{self.tree()}")
        return found[0]

    def tree(self) -> str:
        """Return the names of all spans, one a line, indented beneath their parents."""
        lines: list[str] = []

        def walk(spans: list[Recorded], depth: int) -> None:
            for span in spans:
                lines.append("  " * depth + span.name)
                walk(span.children, depth + 1)

        walk(self.roots, 0)
        return "\n".join(lines)


@contextlib.contextmanager
def capture(*, strict: bool = True, **settings: Any) -> Iterator[Traces]:
    """Record what happens inside, and hand it back; errors of rl_otel itself are raised instead of swallowed.

    Args:
        strict: also refuse what is no word of `record()`, instead of making it a custom attribute.
        settings: arguments for `rl_otel.configure`.

    Raises:
        RuntimeError: rl_otel is recording already.
    """
    if _runtime.active is not None:
        raise RuntimeError("rl_otel is recording already: call rl_otel.shutdown() before capture()")
    before = _safety.strict, _safety.strict_words
    _safety.strict, _safety.strict_words = True, strict
    with tempfile.TemporaryDirectory(prefix="rl-otel-") as temporary:
        try:
            # A test sends only where it says so itself: its shell may point to a real back end.
            sends = {"sending": bool(settings.keys() & _SENDING), "metrics": "endpoint" in settings}
            here = {"run_dir": temporary, "run_id": "captured", **sends}
            _configure.begin(Config.load(**{**here, **settings}))
            traces = Traces(_folder(temporary))
            try:
                yield traces
            finally:
                _runtime.shutdown()
                traces.keep()
        finally:
            _safety.strict, _safety.strict_words = before


def _folder(temporary: str) -> Path:
    runtime = _runtime.active
    return Path(temporary) if runtime is None else runtime.folder.path  # None: disabled, and nothing is there


def _recorded(record: _record.End | _record.Foreign) -> Recorded:
    return Recorded(
        name=record.name,
        trace_id=record.trace.hex(),
        span_id=record.span.hex(),
        parent_id=record.parent.hex(),
        start=record.start,
        end=record.end,
        attributes=dict(record.attributes),
        status=("unset", "ok", "error")[record.status],
        message=record.message,
        links=list(record.links),
        events=list(record.events),
        foreign=isinstance(record, _record.Foreign),
    )


def _joined(found: dict[bytes, Recorded]) -> list[Recorded]:
    spans = sorted(found.values(), key=lambda span: (span.start, span.span_id))
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        parent = by_id.get(span.parent_id)
        if parent is not None:
            parent.children.append(span)
    return spans


try:
    import pytest
except ImportError:
    pass  # `capture` serves any test runner
else:

    @pytest.fixture  # type: ignore[untyped-decorator]
    def traces() -> Iterator[Traces]:
        """What the test records, in strict mode."""
        with capture() as captured:
            yield captured
