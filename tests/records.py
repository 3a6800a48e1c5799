"""Records of a journal: plain spans, and whatever hypothesis can make."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from rl_otel._journal import Writer
from rl_otel._record import FORMAT, End, Late, Lost, Process, Start

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

HEAD = Process(FORMAT, "run", 0, {"service.name": "grpo"}, 1, 1)


def span(number: int, size: int = 0) -> End:
    """Return a span whose id is a number, with `size` bytes of text on it."""
    return End(b"t" * 16, number.to_bytes(8, "big"), b"", "env.step", number, number + 1, {"text": "x" * size})


def writer(folder: str = "run", pid: int = 1) -> Writer:
    """Return a process's writer, which has written nothing yet."""
    return Writer(Path(folder), "host", pid, "instance", lambda: HEAD)
