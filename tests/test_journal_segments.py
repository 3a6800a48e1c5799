"""A journal in segments: whatever is appended, cut and read in between, a reader gets it once and in order."""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rl_otel
from rl_otel import _record
from rl_otel._journal import Cursor, Place, Writer, frame, journals, offset_of, read, segment_of, segment_path, segments
from rl_otel._journal import writer as writing
from rl_otel._record import End, Process
from rl_otel.testing import capture
from tests.disk import disk
from tests.records import HEAD, RECORDS, span, writer

#: What happens to a journal: a record, a disk with so much space from now on, a look by the thread of ours, a read.
EVENTS = st.lists(
    st.one_of(RECORDS, st.builds(int, st.integers(0, 200)), st.sampled_from(["space", "tend", "read"])), max_size=40
)
FOLDERS = count()
_HANDLED = 1_000_000  # and up: spans of a signal handler


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEGMENT", 400)


def ids(records: list[Any]) -> list[int]:
    """Return the numbers of the spans among records."""
    return [int.from_bytes(record.span, "big") for record in records if isinstance(record, End)]


def on_disk(base: Path) -> list[Any]:
    """Return all records of a process, segment by segment."""
    return [record for segment in segments(base) for record, _ in read(segment_path(base, segment))]


@pytest.mark.usefixtures("_small")
@given(EVENTS)
def test_any_sequence_gives_back_what_was_written(events: list[Any]) -> None:
    """Appends, short writes, full disks, rotations and reads in any order: each record once, in order, no other."""
    journal = writer(f"run {next(FOLDERS)}")
    cursor = Cursor(journal.base, overflow=journal.overflow)
    accepted: list[Any] = []
    seen: list[tuple[Any, Place]] = []
    with disk() as place:
        for event in events:
            if event == "read":
                seen += cursor
            elif event == "tend":
                journal.tend()
            elif event == "space":
                place.space = None
            elif isinstance(event, int):
                place.space = event
            elif journal.append(event):
                accepted.append(event)
        place.space = None
        journal.close()
    seen += cursor
    assert [record for record, _ in seen if record != HEAD] == accepted
    assert [cursor.fetch(ref) for _, ref in seen] == [record for record, _ in seen]
    assert [record for record in on_disk(journal.base) if record != HEAD] == accepted
    assert [record for record, _ in Cursor(journal.base)] == on_disk(journal.base)
    cursor.close()


def test_a_full_segment_is_followed_by_another() -> None:
    """Sixteen megabytes are a segment; each begins with who writes it."""
    assert writing.SEGMENT == 16 << 20
    journal = writer()
    for number in range(40):
        journal.end(span(number, 500_000))
    journal.close()
    assert segments(journal.base) == [0, 1]
    assert segment_path(journal.base, 1).name == "host-1-instance.00001.journal"
    sizes = [path.stat().st_size for path in journals(Path("run"))]
    assert 16 << 20 <= sizes[0] < (16 << 20) + 600_000
    firsts = [next(read(path))[0] for path in journals(Path("run"))]
    assert firsts == [HEAD, HEAD]
    assert ids(on_disk(journal.base)) == list(range(40))


@pytest.mark.usefixtures("_small")
def test_a_run_in_segments_is_reported_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Steps that lie in several segments are read as one process, by the fixture and by the report."""
    with capture() as traces:
        for i in range(5):
            with rl_otel.step(i), rl_otel.train():
                pass
        assert [span.attributes["rl.step"] for span in traces.all("step")] == [0, 1, 2, 3, 4]
        assert len(journals(traces.folder)) > 3
        from rl_otel.__main__ import main

        assert main(["report", str(traces.folder)]) == 0
    assert "Training Summary (5 steps):" in capsys.readouterr().out


@pytest.mark.usefixtures("_small")
def test_a_cursor_goes_on_where_another_stopped() -> None:
    """Segment and offset are all that a reader needs to remember."""
    journal = writer()
    for number in range(20):
        journal.end(span(number))
    places = [place for _, place in Cursor(journal.base)]
    for position, place in enumerate(places):
        rest = list(Cursor(journal.base, segment_of(place), offset_of(place)))
        assert [each for _, each in rest] == places[position:]


@pytest.mark.usefixtures("_small")
def test_a_record_that_comes_late_to_a_segment_is_read() -> None:
    """A thread that was held up in its write reaches the segment before the one that is read by now."""
    journal = writer()
    cursor = Cursor(journal.base, overflow=journal.overflow)
    for number in range(8):
        journal.end(span(number))
    assert ids([record for record, _ in cursor]) == list(range(8))
    assert cursor.segment > 0
    for number in range(8, 10):
        late = frame(_record.encode(span(number)))
        with segment_path(journal.base, cursor.segment - 1).open("ab") as file:
            file.write(late)
        assert ids([record for record, _ in cursor]) == [number]
    assert list(cursor) == []


@pytest.mark.usefixtures("_small")
def test_a_cursor_passes_over_segments_that_are_gone() -> None:
    """Where segments were removed the reader goes on with the next there is; what was in them cannot be fetched."""
    journal = writer()
    for number in range(30):
        journal.end(span(number))
    cursor = Cursor(journal.base, overflow=journal.overflow)
    places = {int.from_bytes(record.span, "big"): ref for record, ref in cursor if isinstance(record, End)}
    for segment in (0, 1, 3):
        segment_path(journal.base, segment).unlink()
    left = [number for number, place in places.items() if segment_of(place) not in (0, 1, 3)]
    assert ids([record for record, _ in Cursor(journal.base)]) == left
    assert [cursor.fetch(places[number]) for number in (0, left[0], left[-1])] == [None, span(left[0]), span(left[-1])]


def test_a_place_that_holds_no_record_gives_none() -> None:
    """A segment that was damaged after it was read costs what lay there."""
    journal = writer()
    journal.end(span(1))
    cursor = Cursor(journal.base)
    *_, (_, place) = cursor
    path, whole = segment_path(journal.base, 0), segment_path(journal.base, 0).read_bytes()
    for kept in (5, 20, 0):  # of the head, of the payload, of nothing
        path.write_bytes(whole[: offset_of(place) + kept] + bytes(len(whole) - offset_of(place) - kept))
        assert cursor.fetch(place) is None
        cursor.close()


def test_threads_that_write_at_once_lose_nothing_where_segments_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads through many segments, read meanwhile: each record once, by reader and on disk."""
    monkeypatch.setattr(writing, "SEGMENT", 8000)
    journal = writer()
    cursor = Cursor(journal.base, overflow=journal.overflow)
    threads = [
        threading.Thread(target=lambda k=k: [journal.end(span(k * 1000 + i)) for i in range(300)]) for k in range(8)
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        found = [record for _ in range(20) for record, _ in cursor]
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    journal.close()
    found += [record for record, _ in cursor]
    assert sorted(ids(found)) == [k * 1000 + i for k in range(8) for i in range(300)]
    assert sorted(ids(on_disk(journal.base))) == sorted(ids(found))
    assert journal.written == 2400
    assert len(segments(journal.base)) > 3


@pytest.mark.usefixtures("_small")
def test_a_signal_handler_may_write_while_segments_change() -> None:
    """A handler that interrupts the writer anywhere, also as it changes segments, neither hangs nor loses anything."""
    journal, handled = writer(), list[int]()

    def handler(*_: Any) -> None:
        handled.append(_HANDLED + len(handled))
        journal.end(span(handled[-1]))

    before = signal.signal(signal.SIGVTALRM, handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
    written = 0
    try:
        while len(handled) < 20:  # however fast the machine is, or coarse its timer
            journal.end(span(written))
            written += 1
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    journal.close()
    found = ids(on_disk(journal.base))
    assert sorted(found) == [*range(written), *handled]
    assert [number for number in found if number < _HANDLED] == list(range(written))
    assert segments(journal.base) == list(range(len(segments(journal.base))))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a list of open files")
@pytest.mark.usefixtures("_small")
def test_files_of_old_segments_are_closed() -> None:
    """One file is open however many segments there were; a thread inside a write keeps its own until it is through."""
    journal = writer()
    journal.end(span(0))
    inside = journal._file
    assert inside is not None
    for number in range(1, 50):
        journal.end(span(number))
    assert len(opened(journal)) == 2
    os.fstat(inside.descriptor)
    del inside
    assert len(opened(journal)) == 1
    journal.close()
    assert opened(journal) == []


def opened(journal: Writer) -> list[Path]:
    """Return the files of a journal that this process has open."""
    targets = [link.resolve() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(path for path in targets if path.parent == journal.folder.resolve())


@pytest.mark.usefixtures("_small")
def test_where_no_file_can_be_opened_the_segment_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process out of descriptors writes on into the segment it has, and takes another as soon as it can."""
    journal = writer()
    journal.end(span(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        for number in range(1, 20):
            journal.end(span(number))
    assert segments(journal.base) == [0]
    for number in range(20, 40):
        journal.end(span(number))
    assert len(segments(journal.base)) > 2
    assert ids(on_disk(journal.base)) == list(range(40))


@pytest.mark.usefixtures("_small")
def test_each_segment_says_the_same_of_its_process() -> None:
    """The first record of every segment is that of the first: whoever has only one knows the run."""
    with capture() as traces:
        for i in range(12):
            with rl_otel.step(i):
                pass
        firsts = [next(read(path))[0] for path in journals(traces.folder)]
    assert len(firsts) > 3
    assert isinstance(firsts[0], Process)
    assert all(first == firsts[0] for first in firsts)
