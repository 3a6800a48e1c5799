"""The page that describes the journal to readers, against the records and the frames as they are."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rl_otel import _folder, _keeper, _record
from rl_otel._journal import Lock, Sent, frame, overflow, room, segment_path, writer
from rl_otel._journal.folder import base_path
from rl_otel._record import Event, Link

PAGE = (Path(__file__).parent.parent / "docs" / "journal.md").read_text()
KINDS: dict[str, Any] = {kind.__struct_config__.tag: kind for kind in _record.Record.__args__}


def documented(kind: str) -> list[str]:
    """Return the fields of a kind as the page has them, each with its default."""
    (row,) = re.findall(rf"^\| `{kind}` \|[^|]*\| (.*) \|$", PAGE, re.MULTILINE)
    return str(row).split(", ")


def declared(kind: Any) -> list[str]:
    """Return the fields of a kind as the code has them, each with its default."""

    def shown(field: msgspec.structs.FieldInfo) -> str:
        if field.required:
            return f"`{field.name}`"
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        return f"`{field.name}` = {json.dumps(default)}"

    return [shown(field) for field in msgspec.structs.fields(kind)]


def test_page_has_every_kind_of_record() -> None:
    """The table has a row for each kind and no other."""
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == list(KINDS)


@pytest.mark.parametrize("kind", list(KINDS))
def test_page_has_the_fields_in_their_order(kind: str) -> None:
    """A reader who takes fields by their place in the table takes the right ones."""
    assert documented(kind) == declared(KINDS[kind])


def test_page_has_the_parts_of_links_and_events() -> None:
    """What is inside `links` and `events` is as the page says."""
    for struct, name in ((Link, "links"), (Event, "events")):
        fields = ", ".join(f"`{name}`" for name in struct.__struct_fields__)
        assert f"`{name}`: arrays of {fields}." in PAGE


def test_page_has_flags_statuses_and_format() -> None:
    """Numbers that a reader compares with are those of the code."""
    assert (_record.SAMPLED, _record.AWAITED, _record.LOCAL) == (1, 2, 4)
    assert (_record.UNSET, _record.OK, _record.ERROR) == (0, 1, 2)
    assert f"`format` is {_record.FORMAT}." in PAGE


def test_frame_is_read_by_the_page_alone() -> None:
    """A reader of one's own, written after the page, finds kind and fields."""
    record = _record.Late(b"12345678", {"rl.loss": 0.5}, True)
    data = frame(_record.encode(record))
    mark, length, check, payload = data[:2], data[2:6], data[6:10], data[10:]
    assert mark == bytes.fromhex("C1 52")
    assert int.from_bytes(length, "little") == len(payload)
    assert int.from_bytes(check, "little") == zlib.crc32(payload)
    assert msgspec.msgpack.decode(payload) == ["late", b"12345678", {"rl.loss": 0.5}, True]


def test_page_has_the_names_of_all_files() -> None:
    """What lies in a run folder is named as the page says."""
    (found,) = re.findall(r"^## Files\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)
    assert base_path(Path("run"), "host", 7, "12345678-9abc") == Path("run/host-7-12345678")
    base = Path("<run folder>/<host>-<pid>-<instance>")
    segment = segment_path(base, 3)
    for path in (segment, Sent(segment).path, Lock(base).path):
        assert str(path).replace("00003", "<segment>") + " " in found


def test_page_has_the_limits() -> None:
    """Sizes and times that the page gives are those of the code."""
    text = " ".join(PAGE.split())
    for limit in (
        f"when one has reached {writer.SEGMENT >> 20} MiB",
        f"wait in memory, {overflow.LIMIT >> 20} MiB of them at most",
        f"keeps {room.CAP // 1_000_000} MB of segments",
    ):
        assert limit in text
    assert (_keeper.TICK, _folder.OLD) == (5.0, 7 * 24 * 3600.0)
    assert "every five seconds" in text
    assert "after a week" in text
