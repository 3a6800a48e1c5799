"""The journal's file: what was written is read back, in order and no more, whatever happened to it in between."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rl_otel
from rl_otel import _record
from rl_otel._journal import Writer, frame, journals, read
from rl_otel._record import FORMAT, End, Late, Lost, Process, Start
from rl_otel.testing import Traces
from tests import process

#: Ids hold any bytes, those that look like the beginning of a frame as well.
IDS = st.one_of(st.binary(min_size=8, max_size=8), st.just(b"\xc1R\x01\0\0\0\xc1R"))
VALUES = st.one_of(st.text(max_size=8), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
ATTRIBUTES = st.dictionaries(st.text(max_size=8), VALUES, max_size=3)
RECORDS = st.one_of(
    st.builds(End, IDS, IDS, IDS, st.text(max_size=8), st.integers(0, 2**62), st.integers(0, 2**62), ATTRIBUTES),
    st.builds(Start, IDS, IDS, IDS, st.text(max_size=8), st.integers(0, 2**62), ATTRIBUTES),
    st.builds(Late, IDS, ATTRIBUTES, st.booleans()),
    st.builds(Lost, st.dictionaries(st.text(max_size=8), st.integers(0, 2**62))),
)
JOURNAL = st.lists(RECORDS, max_size=6)


def written(records: list[Any]) -> bytes:
    """Return records as they lie in a file."""
    return b"".join(frame(_record.encode(record)) for record in records)


def all_of(data: bytes, offset: int = 0) -> list[Any]:
    """Return the records that a reader finds in `data`."""
    path = Path("some.journal")
    path.write_bytes(data)
    return [record for record, _ in read(path, offset)]


# --- Frames -----------------------------------------------------------------------------------------------------------


@given(JOURNAL, RECORDS, st.data())
def test_a_torn_tail_is_left_for_later(before: list[Any], last: Any, data: st.DataObject) -> None:
    """Of a file that ends within a record, all before it is read; once it is whole, the rest from that offset."""
    whole, tail = written(before), written([last])
    cut = data.draw(st.integers(0, len(tail) - 1))
    path = Path("torn.journal")
    path.write_bytes(whole + tail[:cut])
    found = list(read(path))
    assert [record for record, _ in found] == before

    with path.open("ab") as file:
        file.write(tail[cut:])
    assert [record for record, _ in read(path, found[-1][1] if found else 0)] == [last]


@given(JOURNAL, RECORDS, JOURNAL, st.data())
def test_a_torn_record_costs_itself_alone(before: list[Any], torn: Any, after: list[Any], data: st.DataObject) -> None:
    """What was appended behind half a record is read, and nothing is made up of the two."""
    half = written([torn])
    half = half[: data.draw(st.integers(0, len(half) - 1))]
    assert all_of(written(before) + half + written(after)) == before + after


@given(JOURNAL, st.binary(max_size=60), JOURNAL)
def test_garbage_is_passed_over(before: list[Any], garbage: bytes, after: list[Any]) -> None:
    """Bytes that are no frame, as a disk may leave them after a power cut, hide no record."""
    assert all_of(written(before) + garbage + b"\0" * 20 + written(after)) == before + after


@given(st.lists(JOURNAL, max_size=4), st.data())
def test_interleaved_rests_cost_only_what_they_tore(parts: list[list[Any]], data: st.DataObject) -> None:
    """Records between the two halves of another, as two threads leave them on a full disk, are read."""
    torn = written([End(b"t" * 16, b"s" * 8, b"", "torn", 1, 2, {"text": "x" * 40})])
    cut = data.draw(st.integers(1, len(torn) - 1))
    between = [record for part in parts for record in part]
    found = all_of(torn[:cut] + written(between) + torn[cut:])
    assert found == between or (not between and len(found) == 1)


@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_each_offset_is_a_place_to_go_on_from(records: list[Any]) -> None:
    """A reader that stopped behind any record gets exactly those that follow."""
    path = Path("resumed.journal")
    path.write_bytes(written(records))
    for position, (_, offset) in enumerate(read(path)):
        assert [record for record, _ in read(path, offset)] == records[position + 1 :]


@given(st.binary(max_size=300))
def test_no_bytes_make_a_reader_fail(garbage: bytes) -> None:
    """Anything may lie in a file of that name; it holds no record, and nothing is raised."""
    assert all_of(garbage) == []
    assert all_of(frame(garbage)) == []


def test_deep_nesting_is_no_record() -> None:
    """A payload nested beyond all reason is passed over."""
    nested = b"\x93\xa4late\xc4\x08abcdefgh\x81\xa1a" + b"\x91" * 100_000
    assert all_of(frame(nested) + written([Late(b"abcdefgh", {})])) == [Late(b"abcdefgh", {})]


def test_what_a_newer_version_writes_is_read_as_far_as_it_is_known() -> None:
    """A kind that is not known is passed over, a field behind the known ones ignored."""
    newer = frame(msgspec.msgpack.encode(["mood", 1]))
    longer = frame(msgspec.msgpack.encode(["lost", {"journal": 3}, "why"]))
    assert all_of(newer + longer + newer) == [Lost({"journal": 3})]


def test_records_across_the_chunks_of_reading() -> None:
    """A file of several megabytes, with records longer than what is read at once, comes back whole."""
    records = [Late(bytes(8), {"n": n, "text": "x" * (n * 997 % 300_000)}) for n in range(40)]
    records.insert(20, Late(bytes(8), {"text": "y" * 3_000_000}))
    assert all_of(written(records)) == records


def test_a_file_is_read_while_it_is_written() -> None:
    """A reader that comes again and again, at any moment, gets each record once and in order."""
    path = Path("growing.journal")
    path.touch()
    records = [Late(bytes(8), {"n": n}) for n in range(300)]
    data = written(records)

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for at in range(0, len(data), 37):
                file.write(data[at : at + 37])

    writer = threading.Thread(target=write)
    writer.start()
    found: list[Any] = []
    offset, deadline = 0, time.monotonic() + 10
    while len(found) < len(records) and time.monotonic() < deadline:
        for record, behind in read(path, offset):
            found.append(record)
            offset = behind
    writer.join()
    assert found == records


# --- Files ------------------------------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_first_span() -> None:
    """Who configures and records nothing leaves no folder."""
    rl_otel.configure(run_dir="runs")
    rl_otel.shutdown()
    assert list(Path().iterdir()) == []


def test_a_journal_begins_with_who_writes_it() -> None:
    """The first record tells format, run, restart and resource."""
    rl_otel.configure(service_name="grpo", run_dir="runs", run_id="r1", resource={"rl.system": "mine"})
    with rl_otel.step(0):
        pass
    rl_otel.shutdown()
    (path,) = journals(Path("runs/r1"))
    first, *others = [record for record, _ in read(path)]
    assert isinstance(first, Process)
    assert (first.format, first.run, first.restart) == (FORMAT, "r1", 0)
    known = {key: first.resource[key] for key in ("service.name", "rl.system", "rl.run.id", "process.pid")}
    assert known == {"service.name": "grpo", "rl.system": "mine", "rl.run.id": "r1", "process.pid": os.getpid()}
    assert [type(record) for record in others] == [Start, End]


def test_a_journal_is_private() -> None:
    """Folders that are made are 0700 and files 0600, whatever the umask allows."""
    before = os.umask(0)
    try:
        rl_otel.configure(run_dir="deep/runs", run_id="r1")
        with rl_otel.step(0):
            pass
        rl_otel.shutdown()
    finally:
        os.umask(before)
    (path,) = journals(Path("deep/runs/r1"))
    modes = {str(each): oct(each.stat().st_mode & 0o777) for each in (path, *list(path.parents)[:3])}
    assert modes == {str(path): "0o600", "deep/runs/r1": "0o700", "deep/runs": "0o700", "deep": "0o700"}


@pytest.mark.parametrize("leads", ["runs", "runs/r1"])
def test_another_users_link_is_not_followed(
    leads: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody else has laid a link, nothing is written behind it; one line says so."""
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    link = Path(leads)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere.absolute())
    belongs_to_another(link, monkeypatch)

    rl_otel.configure(run_dir="runs", run_id="r1")
    with rl_otel.step(0):
        pass
    report = rl_otel.shutdown()
    assert (report.kept, report.dropped) == (0, 1)
    assert not list(elsewhere.rglob("*.journal"))
    assert [record.getMessage() for record in caplog.records] == [
        f"rl_otel: cannot write to the run folder runs/r1: {leads} belongs to another user"
    ]


def test_another_users_folder_in_a_public_place_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody else made in /tmp under our name could be changed under our hands."""
    public = Path("public")
    public.mkdir(mode=0o700)
    public.chmod(0o1777)
    (public / "rl-otel").mkdir(mode=0o777)
    belongs_to_another(public / "rl-otel", monkeypatch)
    rl_otel.configure(run_dir=public / "rl-otel", run_id="r1")
    with rl_otel.step(0):
        pass
    assert rl_otel.shutdown().dropped == 1


def belongs_to_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `path` look as if another user had made it."""
    try:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    except PermissionError:
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)


def test_a_link_in_place_of_the_file_is_not_followed() -> None:
    """A journal is never written into a file that a link of its name leads to."""
    target = Path("target")
    target.touch()
    writer = Writer(Path("run"), "host", 1, "instance", lambda: Process(FORMAT, "r", 0, {}, 1, 1))
    writer.folder.mkdir()
    writer.path.symlink_to(target.absolute())
    writer.end(End(b"t" * 16, b"s" * 8, b"", "step", 1, 2, {}))
    writer.close()
    assert (writer.written, writer.lost) == (0, 1)
    assert target.read_bytes() == b""


# --- When nothing can be written --------------------------------------------------------------------------------------


def test_an_unwritable_folder_costs_the_spans_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on; all spans are counted as dropped, one line says why."""
    Path("file").touch()
    rl_otel.configure(run_dir="file", run_id="r1")
    for i in range(3):
        with rl_otel.step(i), rl_otel.train():
            pass
    report = rl_otel.shutdown()
    assert (report.sent, report.pending, report.kept, report.dropped) == (0, 0, 0, 6)
    assert not report
    (record,) = caplog.records
    assert "cannot write to the run folder file/r1" in record.getMessage()


FULL_DISK = """
    import resource, sys
    import rl_otel
    rl_otel.configure(run_dir="runs", run_id="full")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with rl_otel.step(0) as step:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        for i in range(50):
            with rl_otel.env_step("full") as env_step:
                env_step.record(reward=float(i))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        with rl_otel.env_step("free again"):
            pass
    report = rl_otel.shutdown()
    print(report.kept, report.dropped)
"""


def test_a_full_disk_costs_only_what_did_not_fit() -> None:
    """What fits before and after is in the journal, torn halves in between harm nobody, the rest is counted."""
    done = process.run(FULL_DISK)
    kept, dropped = map(int, done.stdout.split())
    traces = Traces(Path("runs/full"))
    assert kept + dropped == 52
    assert dropped > 10
    assert len(traces.spans) == kept
    assert [span.attributes["rl.environment.name"] for span in traces.all("env.step")][-1] == "free again"
    assert traces.records[-1] == Lost({"journal": dropped})
    lines = [line for line in done.stderr.splitlines() if "belongs into" not in line]
    assert len(lines) == 1
    assert "spans are lost (and counted): [Errno 27] File too large" in lines[0]


def test_what_ends_after_shutdown_is_written_nowhere() -> None:
    """A span that was open at shutdown ends without harm, and reopens no file."""
    rl_otel.configure(run_dir="runs", run_id="r1")
    step = rl_otel.step(0).start()
    rl_otel.shutdown()
    step.end()
    kinds = [type(record) for path in journals(Path("runs/r1")) for record, _ in read(path)]
    assert kinds == [Process, Start]
