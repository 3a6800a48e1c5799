"""Frames in a file: what was written is read back, in order and no more, whatever happened to it in between."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rl_otel import _record
from rl_otel._journal import frame, read
from rl_otel._record import End, Late, Lost
from tests.records import JOURNAL, RECORDS


def written(records: list[Any]) -> bytes:
    """Return records as they lie in a file."""
    return b"".join(frame(_record.encode(record)) for record in records)


def all_of(data: bytes, offset: int = 0) -> list[Any]:
    """Return the records that a reader finds in `data`."""
    path = Path("some.journal")
    path.write_bytes(data)
    return [record for record, _ in read(path, offset)]


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
