"""`rl-otel export RUN [--step N]`: a run as OTLP JSON, for Jaeger's upload and any other reader."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rl_otel import _record, semconv
from rl_otel._analysis import links_of
from rl_otel._cli.common import add_verb, chosen_run, complain
from rl_otel._otlp import Span, encode_json, groups
from rl_otel._read import NoRun, Run, Source
from rl_otel._terminal import command

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_FRONT, _BACK = b'{"resourceSpans":[', b"]}"
_TOGETHER = 4096  # spans that are encoded at a time

_EPILOG = """\
exit codes:
  0  spans were written
  1  nothing to write: no span has ended, or none in that step
  2  wrong usage, no run at that path, or the output cannot be written

next:
  open Jaeger, Search, Upload, and choose the file
"""


def add_to(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = add_verb(
        verbs,
        run,
        help_="write a run as OTLP JSON, for Jaeger's upload",
        description="Write the spans that have ended, of all processes of a run, as one object of OTLP JSON.",
        epilog=_EPILOG,
    )
    parser.add_argument("--step", metavar="N", type=int, help="only the trace of this step, and of what it trained on")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="where to write (default: standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Export a run and return the exit code."""
    recorded = Run(chosen_run("export", arguments.folder))
    traces = None if arguments.step is None else _traces_of(recorded, arguments.step)
    pieces = _pieces(recorded, traces)
    first = next(pieces, None)
    if first is not None:
        _write(arguments.output, first, pieces)
    for problem in recorded.problems:
        complain("export", problem)
    if first is None:
        complain("export", _nothing(recorded.folder, arguments.step))
    return 1 if first is None else 0


def _write(path: Path | None, first: bytes, pieces: Iterator[bytes]) -> None:
    try:
        with _opened(path) as file:
            file.write(_FRONT + first)
            for piece in pieces:
                file.write(b"," + piece)
            file.write(_BACK + b"\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NoRun(f"cannot write {path or 'to standard output'}: {error.strerror or error}") from None


def _opened(path: Path | None) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdout.buffer) if path is None else open(path, "wb", opener=_private)


def _private(path: str, flags: int) -> int:
    # As private as the journals it comes from: they may hold prompts.
    return os.open(path, flags, 0o600)


def _nothing(folder: Path, step: int | None) -> str:
    what = "no span has ended" if step is None else f"no span of step {step} has ended"
    return f"{what} in {folder}, so there is nothing to export. What the run holds: {command('report', folder)}"


def _traces_of(recorded: Run, step: int) -> set[bytes]:
    """Return the traces of a step, one for each time it was begun, and those of what it trained on."""
    traces: set[bytes] = set()
    for source in recorded.sources:
        for record in source.records():
            if isinstance(record, (_record.Start, _record.End)) and record.attributes.get(semconv.STEP_INDEX) == step:
                traces.add(record.trace)
                if isinstance(record, _record.End):
                    traces.update(link.trace for link in links_of([record]).values())
    return traces


def _pieces(recorded: Run, traces: set[bytes] | None) -> Iterator[bytes]:
    """Yield what stands between the brackets of `resourceSpans`, a few thousand spans at a time."""
    for source in recorded.sources:
        batch: list[Span] = []
        for span in _whole(source, traces):
            batch.append(span)
            if len(batch) == _TOGETHER:
                yield _encoded(batch, source)
                batch = []
        if batch:
            yield _encoded(batch, source)


def _encoded(batch: list[Span], source: Source) -> bytes:
    return encode_json(groups(batch, source.resource)).removeprefix(_FRONT).removesuffix(_BACK)


def _whole(source: Source, traces: set[bytes] | None) -> Iterator[Span]:
    """Yield the spans that have ended, each with the attributes that came late."""
    awaited: dict[bytes, _record.End] = {}
    for record in source.records():
        if isinstance(record, _record.Late):
            span = awaited.get(record.span)
            if span is not None:
                span.attributes.update(record.attributes)
                if record.last:
                    yield awaited.pop(record.span)
        elif isinstance(record, (_record.End, _record.Foreign)) and (traces is None or record.trace in traces):
            if isinstance(record, _record.End) and record.flags & _record.AWAITED:
                awaited[record.span] = record
            else:
                yield record
    yield from awaited.values()
