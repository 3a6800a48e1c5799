"""The printed table of a step and the summary of a run: the same lines from a training process and from `report`.

At most 80 columns. What is not known is left out, never printed as 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rl_otel import semconv
from rl_otel._figures import Memory, Rollout, Row, RunFigures, Spread, StepFigures

WIDTH = 80
_GIB = 1 << 30
_LONGEST_LABEL = 32
LONGEST_ID = 48
_HANDED = "  (this process alone: rl-otel report tells of those it handed its context to)"
_NUMBERED = 8
FAILED = (semconv.ERROR, semconv.TIMEOUT)


def step_lines(step: StepFigures) -> list[str]:
    """Return the lines of a step's table, without line ends."""
    lines = [_headline(step), *_rows(step)]
    trajectories = [] if step.training is None else [_sentence(step.training)]
    lines += wrapped("; ".join(filter(None, (*trajectories, *_of_the_step(step)))))
    if step.evaluation is not None:
        reward = step.evaluation.reward
        told = "" if reward is None else f"reward {_number(reward, 3, sign='+')}"
        evaluated = _sentence(step.evaluation, told)
        lines += wrapped(f"eval: {evaluated}" if evaluated else "")
    return lines + [_HANDED] * step.handed


def run_lines(run: RunFigures) -> list[str]:
    """Return the lines of a run's summary, without line ends."""
    medians = "" if run.median is None else " medians leave out the first, which warms up"
    lines = [f"Training Summary ({counted(run.steps, 'step')}):{medians}", _total("Total wall-clock", exact(run.wall))]
    lines.append(_share("Setup", run.setup, run.wall))
    for phase in run.phases:
        median = "" if phase.median is None else f"   median {short(phase.median)}"
        lines.append(_share(f"Cumul. {phase.name}", phase.time, run.wall) + median)
    if run.overlap:
        lines.append(_share("Overlap", run.overlap, run.wall))
    if run.steps:
        lines += [_share("Other", run.other, run.wall), _share("Between steps", run.between, run.wall)]
    lines += _run_memory(run) + _step_line(run) + _evaluation_line(run)
    return lines


def exact(time: int) -> str:
    """Return a time in ns for a column: `6.35s`, to hundredths where these say anything."""
    if time < 5_000_000:
        return _tiny(time) if time else "0.00s"
    return f"{time / 1e9:.2f}s" if time < 3600e9 else _hours(time, seconds=True)


def short(time: int) -> str:
    """Return a time in ns for a sentence, in two digits up to a hundred: `41s`, `4.1s`, `0.12s`, `0.4s`, `45ms`."""
    if time >= 3599.5e9:
        return _hours(time, seconds=False)
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        value = time / size
        if value >= 0.0995:
            digits = ".0f" if value >= 9.95 else ".1f" if value >= 0.995 else ".2g"
            return f"{value:{digits}}{unit}"
    return f"{time}ns" if time else "0s"


def scaled(number: float) -> str:
    """Return a count in three characters or so: `950`, `9.1k`, `1.9M`."""
    thousands = 0
    while number >= 999.5 and thousands < 4:
        number, thousands = number / 1000, thousands + 1
    unit = ("", "k", "M", "G", "T")[thousands]
    whole = number >= 9.95 or (not unit and number == int(number))
    return f"{number:.0f}{unit}" if whole else f"{number:.1f}{unit}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where there is not one."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Return what has these numbers, in order, those in a row together: `ranks 1, 3 to 5 and 9`."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    words = [word for row in rows for word in ([f"{row[0]} to {row[-1]}"] if len(row) > 2 else map(str, row))]
    if len(words) > _NUMBERED:
        words[_NUMBERED - 1 :] = ["others"]
    told = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{noun} {told}" if len(numbers) == 1 else f"{noun}s {told}"


def cut(text: str, width: int) -> str:
    """Return a text in at most `width` characters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def wrapped(sentence: str, indent: str = "  ") -> list[str]:
    """Return a sentence in lines of at most 80 columns that break after a comma or a semicolon; of none, no line."""
    if not sentence:
        return []
    lines: list[str] = []
    line = indent
    for piece in re.split(r"(?<=[,;]) ", sentence):
        if line.strip() and len(line) + 1 + len(piece) > WIDTH:
            lines.append(line)
            line = indent + "  "
        line += piece if line.isspace() or not line else f" {piece}"
    return [*lines, line]


def _headline(step: StepFigures) -> str:
    words = [f"Step {step.index:>3}", *_ended_by(step)]
    if step.loss is not None:
        words.append(f"Loss: {_number(step.loss, 4)}")
    if step.reward is not None:
        words.append(f"Reward: {_number(step.reward, 3, sign='+')}")
    if step.samples is not None:
        words.append(f"Samples: {step.samples}")
    return " | ".join(words)


def _ended_by(step: StepFigures) -> list[str]:
    """Return how a step ended that did not end well."""
    if step.error is not None:
        return [f"failed: {cut(step.error, _LONGEST_LABEL)}"]
    if step.aborted is not None:
        return [f"aborted: {cut(step.aborted, _LONGEST_LABEL)}"]
    return ["left"] if step.left else []


def _number(value: float, decimals: int, sign: str = "") -> str:
    """Return a number with fixed decimals, or as a power of ten where these would not show it."""
    hidden = 0 < abs(value) < 0.5 * 10**-decimals or abs(value) >= 1e6
    return format(value, f"{sign}.{decimals}{'e' if hidden else 'f'}")


def _rows(step: StepFigures) -> list[str]:
    """Return the table itself; a column in which nothing is known is not there."""
    rows = [*step.rows, *_totals(step)]
    devices = [_size(row.memory.device) for row in rows]
    labels = [_label(row, _LONGEST_LABEL - (14 if any(devices) else 0)) for row in rows]
    width = max(18, *(len(label) + 1 for label in labels))
    columns = [
        _column("Time", 7, [exact(row.time) for row in rows]),
        _column("GPU", 8, ["" if row.gpu is None else exact(row.gpu) for row in rows]),
        _peaks([row.memory for row in rows]),
        _column("Device", 11, devices),
    ]
    known = [column for column in columns if any(cell.strip() for cell in column[1:])]
    head, *lines = (_line(label, cells, width) for label, *cells in zip(["Phase", *labels], *known, strict=True))
    head = head.replace(",", " ")
    return [head, "  " + "-" * (len(head) - 1), *lines]


def _line(label: str, cells: list[str], width: int) -> str:
    line = f"  {label:<{width}}{cells[0]}"
    for before, cell in pairwise(cells):
        end = len(line.rstrip())
        line = (line[:end] + "," + line[end:] if cell.strip() and before.strip() else line + " ") + cell
    return line.rstrip()


def _totals(step: StepFigures) -> list[Row]:
    overlap = [Row("overlap", 0, 1, step.overlap)] if step.overlap else []
    return [*overlap, Row(semconv.OTHER, 0, 1, step.other), Row("total", 0, 1, step.total)]


def _label(row: Row, longest: int) -> str:
    times = f" x{row.count}" if row.count > 1 else ""
    indent = "  " * min(row.depth, longest // 5)
    return f"{indent}{cut(row.name, longest - len(indent) - len(times))}{times}:"


def _column(head: str, width: int, cells: list[str]) -> list[str]:
    width = max(width, *(len(cell) + 1 for cell in cells))
    return [cell.rjust(width) for cell in (head, *cells)]


def _peaks(memory: list[Memory]) -> list[str]:
    """Return the column of peaks; one that may have been higher says so."""
    sizes = _column("", 11, [_peak(each) for each in memory])[1:]
    ratios = ["" if each.ratio is None else f"  ({100 * each.ratio:.1f}%)" for each in memory]
    cells = ["   Peak Mem", *map("".join, zip(sizes, ratios, strict=True))]
    width = max(map(len, cells))
    return [cell.ljust(width) for cell in cells]


def _peak(memory: Memory) -> str:
    return (">=" if memory.lower_bound and memory.peak is not None else "") + _size(memory.peak)


def _size(size: int | None) -> str:
    return "" if size is None else f"{gib(size)} GiB"


def gib(size: int) -> str:
    """Return bytes as GiB, without the unit."""
    return f"{size / _GIB:.2f}"


def _sentence(rollout: Rollout, *more: str) -> str:
    return "; ".join(filter(None, (_trajectories(rollout), _outcomes(rollout), _tokens(rollout), *more)))


def _of_the_step(step: StepFigures) -> list[str]:
    """Return what is told of a step besides its trajectories: what it trained on, and who waited for whom."""
    words = []
    if step.staleness is not None:
        least, most = step.staleness.min, step.staleness.max
        known = f"{least}" if least == most else f"{least} to {most} (mean {step.staleness.mean:.1f})"
        words.append(f"{counted(step.staleness.count, 'trajectory')} trained on, staleness {known}")
    if step.dropped:
        words.append("dropped " + ", ".join(f"{count} {cut(reason, 24)}" for reason, count in step.dropped.items()))
    words.append(_waited("", step.timing.get(semconv.WAIT), step.waited))
    words += [_waited(f"{cut(role, 24)} ", None, reasons) for role, reasons in step.waited_beside.items()]
    return words


def _waited(who: str, whole: int | None, reasons: Mapping[str, int]) -> str:
    """Return how long somebody waited and for what; of `whole`, where it is known, the reasons are parts."""
    told = [f"{cut(reason, 24)} {short(time)}" for reason, time in reasons.items() if reason and time]
    if whole is not None and len(told) == 1 and reasons == {next(iter(reasons)): whole}:
        return f"{who}waited {short(whole)} for {next(iter(reasons))}"
    if whole:
        return f"{who}waited {short(whole)}" + (f": {', '.join(told)}" if told else "")
    return f"{who}waited: {', '.join(told)}" if told else ""


def _trajectories(rollout: Rollout) -> str:
    words = _spread(rollout.duration, rollout.count)
    if rollout.env_ratio is not None:
        words.append(f"env {percent(rollout.env_ratio)}")
    # Of fewer than ten the nearest p90 is the last one itself.
    if rollout.tail is not None and (rollout.count or 0) >= 10:
        words.append(f"tail {short(rollout.tail)}")
    if len(rollout.slowest) > 1:
        words.append(f"slowest {cut(rollout.slowest[0].id, LONGEST_ID)}")
    head = ""
    if rollout.count is not None:
        kept = f" (kept {rollout.count - sum(rollout.dropped.values())})" if rollout.dropped else ""
        head = counted(rollout.count, "trajectory") + kept
    elif rollout.sequences is not None:
        head = counted(rollout.sequences, "sequence")
    return ": ".join(filter(None, (head, ", ".join(words))))


def _spread(duration: Spread | None, count: int | None) -> list[str]:
    if duration is None:
        return []
    if count == 1:
        return [short(duration.max)]
    return [f"p50 {short(duration.p50)}  p90 {short(duration.p90)}  max {short(duration.max)}"]


def _outcomes(rollout: Rollout) -> str:
    ended = sum(rollout.outcomes.values())
    failed = sum(rollout.outcomes.get(outcome, 0) for outcome in FAILED)
    aborted = rollout.outcomes.get(semconv.ABORTED_OUTCOME, 0)
    truncated = rollout.outcomes.get(semconv.TRUNCATED, 0)
    words = [f"{failed} failed" if failed else "", f"{aborted} aborted" if aborted else ""]
    words.append(f"{percent(truncated / ended)} truncated" if truncated else "")
    words.append(f"{rollout.continued} to be continued" if rollout.continued else "")
    return ", ".join(filter(None, words))


def _tokens(rollout: Rollout) -> str:
    words = []
    if rollout.output_tokens is not None:
        words.append(f"{scaled(rollout.output_tokens)} tok out")
    if rollout.output_rate is not None:
        words.append(f"{scaled(rollout.output_rate)} tok/s")
    return ", ".join(words)


def percent(ratio: float) -> str:
    """Return a share as people write it."""
    return "<1 %" if 0 < ratio < 0.005 else f"{100 * ratio:.0f} %"


def _total(label: str, time: str) -> str:
    return f"  {cut(label, 29)}:".ljust(32) + f"{time:>9}"


def _share(label: str, time: int, whole: int) -> str:
    share = f"  ({100 * time / whole:5.1f}%)" if whole else ""
    return _total(label, exact(time)) + share


def _run_memory(run: RunFigures) -> list[str]:
    lines = []
    for name, memory in run.memory.items():
        for what, size in (("Peak mem", memory.peak), ("Device mem", memory.device)):
            if size is not None:
                bound = ">=" if memory.lower_bound and size == memory.peak else ""
                lines.append(f"  {cut(f'{what} ({name})', 29)}:".ljust(32) + f"{bound + gib(size):>7} GiB")
    return lines


def _step_line(run: RunFigures) -> list[str]:
    words = [] if run.median is None else [f"median {short(run.median)}"]
    if run.first is not None:
        words.append(f"first {short(run.first)}")
    if run.slowest is not None:
        # The first step is not in slowest either: say so where that would mislead.
        later = " after it" if run.first is not None and run.first > run.slowest[0] else ""
        words.append(f"slowest{later} {short(run.slowest[0])} (step {run.slowest[1]})")
    return wrapped(f"Step: {', '.join(words)}") if words else []


def _evaluation_line(run: RunFigures) -> list[str]:
    if not run.evaluations:
        return []
    line = f"  Evaluation: {counted(run.evaluations, 'time')}"
    if run.first_evaluation is not None and run.last_evaluation is not None:
        first, last = (_number(reward, 3, sign="+") for reward in (run.first_evaluation, run.last_evaluation))
        line += f", reward {last}" if run.evaluations == 1 else f", reward {first} first, {last} last"
    return [line]


def _tiny(time: int) -> str:
    return f"{time / 1e6:.1f}ms" if time >= 95_000 else f"{time / 1e3:.0f}us" if time >= 950 else f"{time}ns"


def _hours(time: int, *, seconds: bool) -> str:
    minutes, second = divmod(round(time / 1e9), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}h{minute:02}m{second:02}s" if seconds else f"{hours}h{minute:02}m"
