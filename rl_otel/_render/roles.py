"""What processes of other roles did while a step ran."""

from __future__ import annotations

from rl_otel._analysis import StepReport
from rl_otel._figures import Done, Role
from rl_otel._table import counted, cut, gib, short, wrapped

_LONGEST = 32  # characters of a name


def role_lines(report: StepReport) -> list[str]:
    """Return a line for each role whose processes had phases meanwhile: no part of the step's own rows."""
    return [line for role in report.roles for line in wrapped(_sentence(role))]


def _sentence(role: Role) -> str:
    head = cut(role.name, _LONGEST) if role.name else "others"
    if role.processes > 1:
        head += f" ({counted(role.processes, 'process')})"
    words = [_done(done, role.processes) for done in role.phases]
    if role.memory.peak is not None:
        words.append(f"peak mem {'>=' if role.memory.lower_bound else ''}{gib(role.memory.peak)} GiB")
    return f"meanwhile {head}: {', '.join(words)}"


def _done(done: Done, processes: int) -> str:
    # Of several processes the median one, and that which was longest at it.
    longest = f"  max {short(done.max)}" if processes > 1 and short(done.max) != short(done.median) else ""
    return f"{cut(done.name, _LONGEST)} {short(done.median)}{longest}"
