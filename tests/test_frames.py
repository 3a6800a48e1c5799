"""Bytes that only look like a journal: looking through them has an end."""

from __future__ import annotations

from struct import pack
from zlib import crc32

import pytest

from rl_otel._journal import frames
from rl_otel._journal.frames import MARK, Scan, frame

MEGABYTE = 1 << 20


@pytest.mark.parametrize("promised", [100_000, 900_000, 60_000_000])
def test_marks_that_promise_long_frames_cost_no_more_than_a_bounded_look(
    promised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a hundred thousand marks could ask for a checksum of a megabyte; the frame behind them is found."""
    summed = 0

    def counting(payload: bytes) -> int:
        nonlocal summed
        summed += len(payload)
        return crc32(payload)

    monkeypatch.setattr(frames, "_IN_VAIN", 4 * MEGABYTE)
    monkeypatch.setattr(frames, "crc32", counting)
    mark = MARK + pack("<II", promised, 1)
    garbage, scan = mark * (MEGABYTE // len(mark)), Scan(0)
    found = [payload for data in (garbage, garbage, frame(b"whole")) for payload in scan.feed(data).payloads]
    assert found == [b"whole"]
    assert summed <= 5 * MEGABYTE
    assert scan.offset == 2 * len(garbage) + len(frame(b"whole"))
