"""What a report lacks or has had to set right, a sentence each."""

from __future__ import annotations

from rl_otel._analysis import Analysis, absent
from rl_otel._read import Run
from rl_otel._table import counted, cut, numbered, short

_TOLD = 100_000_000  # ns: what clocks of hosts that are set by a server differ by changes no figure
_LONGEST = 64  # characters of a host's name


def missing_lines(analysis: Analysis, run: Run) -> list[str]:
    """Return a line for each thing that is not in a report, and for each clock that was another than the others."""
    lines = [_clock(host, offset) for host, offset in analysis.clocks.widest.items() if abs(offset) >= _TOLD]
    if analysis.rootless:
        first, last = min(analysis.rootless), max(analysis.rootless)
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        lines.append(f"spans of {steps} are here, but no journal has the beginning: that of the driver is missing")
    for role, (size, ranks) in absent(run.sources).items():
        which = f"{numbered('rank', ranks)} of {counted(size, role or 'rank')}"
        lines.append(f"{which} left no journal here: copy those of other hosts into {run.folder}")
    unseen = analysis.waste.unseen()
    if unseen:
        who = "call configure() in each process that plays them, and copy the journals of other hosts"
        lines.append(f"of {counted(unseen, 'trajectory')} trained on nothing is here: {who} into {run.folder}")
    if run.lost:
        lines.append(f"{run.lost} spans never reached a journal and are missing here")
    return lines


def _clock(host: str, offset: int) -> str:
    where = "behind" if offset > 0 else "ahead"
    return f"the clock of {cut(host, _LONGEST)} was {short(abs(offset))} {where}: its times are moved by as much"


__all__ = ["missing_lines"]
