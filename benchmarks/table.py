"""Rounds to lines of text."""

from __future__ import annotations

import statistics

from benchmarks.rows import OURS, PEERS, Round, Row

_HEAD = ("", "rl_otel", "beside it", "ratio", "at most", "aim", "holds", *(f"{peer}, ratio" for peer in PEERS))


def lines(rows: list[Row], rounds: list[Round]) -> list[str]:
    """Return the table, a line a row, and its notes."""
    notes = [row.note for row in rows if row.note]
    cells = [_HEAD, *((_title(row, notes), *_cells(row, rounds)) for row in rows)]
    used = [column for column in zip(*cells, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in used]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in zip(*used, strict=True)]
    noted = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    return [table[0], "-" * max(map(len, table)), *table[1:], "", *noted]


def _title(row: Row, notes: list[str]) -> str:
    return f"{row.title} [{notes.index(row.note) + 1}]" if row.note else row.title


def _cells(row: Row, rounds: list[Round]) -> tuple[str, ...]:
    beside = statistics.median(row.values(rounds, row.beside))
    return (
        _spread(row.values(rounds, OURS), row.unit),
        f"{row.beside} {_short(beside)} {row.unit}",
        _spread(row.ratios(rounds, OURS)),
        row.at_most.text if row.at_most else "",
        ", ".join(aim.text for aim in row.aims),
        _verdict(row, rounds),
        *(_spread(row.ratios(rounds, peer)) for peer in PEERS),
    )


def _verdict(row: Row, rounds: list[Round]) -> str:
    if row.at_most is None:
        return ""
    if not row.holds(row.at_most, rounds):
        return "NO"
    return next((f"aim {aim.text}" for aim in reversed(row.aims) if row.holds(aim, rounds)), "yes")


def _spread(values: list[float], unit: str = "") -> str:
    if not values:
        return ""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{_short(middle)} {unit}".rstrip() + f" ({_short(least)} to {_short(most)})"


def _short(value: float) -> str:
    """Return three digits, never more than two behind the point."""
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"
