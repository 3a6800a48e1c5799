"""When no disk takes a journal: it waits in memory, is sent from there, and is written when that works again."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rl_otel
from rl_otel import _keeper
from rl_otel._journal import Cursor, journals, overflow, segment_of, segments
from rl_otel._record import Lost
from rl_otel.testing import Traces
from tests import process
from tests.disk import disk
from tests.receiver import Receiver
from tests.records import HEAD, span, writer
from tests.test_journal_segments import ids, on_disk
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_otel._journal import Writer
    from tests.disk import Disk

CANNOT = "spans wait in memory (8 MiB at most, what does not fit is counted): "


def test_a_folder_that_cannot_be_written_costs_the_spans_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Without a back end nothing is left at the end: all spans are counted as dropped, one line says why."""
    Path("file").touch()
    rl_otel.configure(run_dir="file", run_id="r1")
    for i in range(3):
        with rl_otel.step(i), rl_otel.train():
            pass
    assert (rl_otel.flush().pending, rl_otel.flush().kept) == (6, 0)
    report = rl_otel.shutdown()
    assert (report.sent, report.pending, report.kept, report.dropped) == (0, 0, 0, 6)
    assert not report
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"rl_otel: cannot write to the run folder {Path('file/r1').absolute()}, {CANNOT}"
    )


@pytest.mark.parametrize("run_id", ["r1", None])
def test_a_folder_whose_name_is_too_long_is_one_that_cannot_be_written(
    run_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that no file system takes costs one line; what is recorded is sent from memory."""
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_dir="x" * 300, run_id=run_id)
        with rl_otel.step(0), rl_otel.train():
            pass
        report = rl_otel.shutdown()
        assert (report.sent, report.pending, report.dropped) == (2, 0, 0)
        assert [span.name for span in receiver.spans] == ["train", "step"]
    (record,) = caplog.records
    assert record.getMessage().startswith("rl_otel: cannot write to the run folder /")
    assert CANNOT in record.getMessage()
    assert "File name too long" in record.getMessage()


def test_what_no_disk_takes_is_still_sent() -> None:
    """With a back end a run on a read-only folder loses nothing."""
    Path("file").touch()
    with Receiver() as receiver:
        rl_otel.configure(endpoint=receiver.http, run_dir="file", run_id="r1")
        for i in range(3):
            with rl_otel.step(i), rl_otel.train():
                pass
        report = rl_otel.shutdown()
        assert (report.sent, report.pending, report.dropped) == (6, 0, 0)
        assert [span.name for span in receiver.spans] == ["train", "step"] * 3


def test_what_was_sent_from_memory_is_not_sent_from_disk() -> None:
    """A disk that is full in between and free again: the back end gets each span once, the folder has them all."""
    with Receiver() as receiver, disk() as place:
        rl_otel.configure(endpoint=receiver.http, run_dir="runs", run_id="r1")
        for space in (None, 0, None):
            place.space = space
            with rl_otel.step(0):
                pass
            rl_otel.flush()
        report = rl_otel.shutdown()
        assert (report.sent, report.pending, report.dropped) == (3, 0, 0)
        assert len(receiver.spans) == len({span.proto.span_id for span in receiver.spans}) == 3
    assert len(Traces(Path("runs/r1")).spans) == 3


FULL_DISK = """
    import resource, sys
    import rl_otel
    rl_otel.configure(run_dir="runs", run_id="full")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with rl_otel.step(0) as step:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        for i in range(50):
            with rl_otel.env_step(str(i)) as env_step:
                env_step.record(reward=float(i))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        with rl_otel.env_step("50"):
            pass
    report = rl_otel.shutdown()
    print(report.kept, report.dropped)
"""


def test_a_disk_that_is_full_for_a_while_costs_nothing() -> None:
    """All spans are in the journal in their order, those from before, during and after; two lines tell of it."""
    done = process.run(FULL_DISK)
    assert done.stdout.split() == ["52", "0"]
    found = [span.attributes["rl.environment.name"] for span in Traces(Path("runs/full")).all("env.step")]
    assert found == [str(i) for i in range(51)]
    cannot, again = [line for line in done.stderr.splitlines() if "was opened directly inside" not in line]
    assert CANNOT in cannot
    assert "[Errno 27] File too large" in cannot
    assert again.endswith(f"rl_otel: {Path('runs/full').absolute()} can be written again")


def test_a_short_write_is_finished_or_repeated() -> None:
    """Of a record that the disk took a part of the rest follows, else it waits in memory, whole."""
    journal = writer()
    journal.end(span(1))
    with disk() as place:
        place.space = 30
        journal.end(span(2))
        assert journal.overflow.spans == 1
        place.space = None
        journal.tend()
    journal.end(span(3))
    journal.close()
    assert ids(on_disk(journal.base)) == [1, 2, 3]
    assert segments(journal.base) == [0, 1]


def test_what_does_not_fit_into_memory_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest spans are kept, later ones lost and counted, and the journal tells how many once it can."""
    assert overflow.LIMIT == 8 << 20
    monkeypatch.setattr(overflow, "LIMIT", 5000)
    journal = writer()
    with disk() as place:
        place.space = 0
        for number in range(20):
            journal.end(span(number, 400))
        assert (journal.written, journal.lost) == (10, 10)
        assert journal.overflow.spans == 10
        place.space = None
        journal.tend()
    journal.end(span(20, 400))
    journal.close()
    records = on_disk(journal.base)
    assert ids(records) == [*range(10), 20]
    assert records[-1] == Lost({"journal": 10})


def test_what_was_delivered_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the back end takes the spans, a disk that takes none costs none."""
    monkeypatch.setattr(overflow, "LIMIT", 4000)
    monkeypatch.setattr(overflow, "PART", 500)
    journal = writer()
    cursor = Cursor(journal.base, overflow=journal.overflow)
    seen: list[int] = []
    with disk() as place:
        place.space = 0
        for number in range(100):
            journal.end(span(number, 400))
            for record, ref in cursor:
                seen += ids([record])
                for segment in range(segment_of(ref)):
                    journal.overflow.release(segment)
        place.space = None
        journal.close()
    assert seen == list(range(100))
    assert journal.lost == 0
    assert ids(on_disk(journal.base))[-1] == 99
    assert sum(path.stat().st_size for path in journals(Path("run"))) < 5000
    assert ids([record for record, _ in Cursor(journal.base)]) == ids(on_disk(journal.base))


def test_places_in_memory_are_places_on_disk() -> None:
    """Where a record was in memory it is on disk, so what a reader holds can be fetched before and after."""
    journal = writer()
    cursor = Cursor(journal.base, overflow=journal.overflow)
    with disk() as place:
        place.space = 40
        for number in range(5):
            journal.end(span(number))
        held = {ref: record for record, ref in cursor}
        assert len(held) == 6
        assert [cursor.fetch(ref) for ref in held] == list(held.values())
        place.space = None
        journal.tend()
    assert journal.overflow.numbers == []
    assert [cursor.fetch(ref) for ref in held] == list(held.values())
    assert list(cursor) == []
    cursor.close()


def test_a_try_that_fails_leaves_nothing_behind() -> None:
    """While the disk takes only a part of what waits, no half file stays, and nothing is lost."""
    journal = writer()
    with disk() as place:
        place.space = 0
        for number in range(5):
            journal.end(span(number))
        place.space = 100
        journal.tend()
        assert segments(journal.base) == []
        place.space = None
        journal.tend()
    assert [record for record in on_disk(journal.base) if record == HEAD] == [HEAD]
    assert ids(on_disk(journal.base)) == list(range(5))


def test_the_keeper_writes_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is free again is noticed without a span or a flush."""
    monkeypatch.setattr(_keeper, "TICK", 0.02)
    with disk() as place:
        place.space = 0
        rl_otel.configure(run_dir="runs", run_id="r1")
        with rl_otel.step(0):
            pass
        assert not journals(Path("runs/r1"))
        place.space = None
        until(lambda: journals(Path("runs/r1")))
        assert [span.name for span in Traces(Path("runs/r1")).spans] == ["step"]


def test_threads_that_find_the_disk_full_at_once_lose_nothing() -> None:
    """Eight threads while the disk is full now and then: each span once, on disk when there is space."""
    journal = writer()
    with disk() as place:
        threads = [threading.Thread(target=record, args=(journal, k)) for k in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            place.space = 0
            time.sleep(0.002)
            place.space = None
            journal.tend()
        for thread in threads:
            thread.join()
        journal.close()
    assert journal.lost == 0
    assert sorted(ids(on_disk(journal.base))) == [k * 1000 + i for k in range(8) for i in range(200)]


def record(journal: Writer, k: int) -> None:
    for i in range(200):
        journal.end(span(k * 1000 + i))


def test_a_write_that_fails_as_another_thread_moves_on_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a failed write and what is done about it others may have found the disk full, or free again."""
    journal = writer()
    journal.end(span(0))
    with disk() as place:
        meanwhile: list[Callable[[], None]] = []
        write = os.write

        def interrupted(descriptor: int, data: bytes) -> int:
            try:
                return write(descriptor, data)
            except OSError:
                if meanwhile:
                    meanwhile.pop(0)()
                raise

        monkeypatch.setattr(os, "write", interrupted)
        place.space = 0
        meanwhile.append(lambda: journal.end(span(1)))
        journal.end(span(2))
        assert journal.overflow.numbers == [1]
        meanwhile.append(free(place, journal))
        journal.end(span(3))
    assert journal.overflow.numbers == []
    assert segments(journal.base) == [0, 1]
    assert sorted(ids(on_disk(journal.base))) == [0, 1, 2, 3]


def test_a_signal_handler_may_write_while_what_waits_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span that ends in a handler, in the middle of the way from memory to disk, is on disk as well."""
    journal = writer()
    with disk() as place:
        place.space = 0
        journal.end(span(1))
        place.space = None
        write, handlers = os.write, [lambda: journal.end(span(2))]

        def interrupted(descriptor: int, data: bytes) -> int:
            written = write(descriptor, data)
            if handlers:
                handlers.pop()()
            return written

        monkeypatch.setattr(os, "write", interrupted)
        journal.tend()
    journal.end(span(3))
    assert journal.overflow.numbers == []
    assert ids(on_disk(journal.base)) == [1, 2, 3]


def free(place: Disk, journal: Writer) -> Callable[[], None]:
    def work() -> None:
        place.space = None
        journal.tend()

    return work


def test_what_waits_is_the_parents_after_a_fork() -> None:
    """A child does not write what its parent has in memory."""
    journal = writer()
    with disk() as place:
        place.space = 0
        journal.end(span(1))
        place.space = None
        journal.abandon()
        journal.tend()
        journal.close()
    assert not journals(Path("run"))
    assert journal.lost == 0
