"""One step in figures: a row a phase, adding up to the step's total, and its trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, filterfalse
from typing import Any, TypeAlias

from rl_otel import semconv
from rl_otel._figures.gpu import GIB, NO_MEMORY, ByPhase, Memory, by_phase, memory
from rl_otel._figures.rollout import Direct, Rollout, dropped_of, joined
from rl_otel._figures.staleness import Staleness, joined_staleness
from rl_otel._figures.trajectory import NANO, Trajectory
from rl_otel._figures.waits import waited, waited_by_role
from rl_otel._split import union

_DEEPEST = 16

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase that has ended; `parent` is the span id of the phase around it, or anything else at the top."""

    name: str
    span: bytes
    parent: bytes
    start: int
    end: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    direct: Direct | None = None

    @property
    def evaluates(self) -> bool:
        """Whether it is an eval or inside one: no training figure contains it."""
        return self.name == semconv.EVAL or self.attributes.get(semconv.MODE) == semconv.MODE_EVAL


@dataclass(frozen=True, slots=True)
class Row:
    """A phase's line in the step table: all its spans at one place of the nesting, times in ns."""

    name: str
    depth: int
    count: int
    time: int
    gpu: int | None = None
    memory: Memory = NO_MEMORY


@dataclass(frozen=True, slots=True)
class StepFigures:
    """A step in figures: rows at the top - overlap + other = total, to the nanosecond."""

    index: int
    role: str | None  # whose loop it is, where its process has several
    start: int
    end: int
    loss: float | None
    reward: float | None
    samples: int | None
    left: bool
    error: str | None  # the type of what ended it
    aborted: str | None  # the same, where it was asked for
    rows: tuple[Row, ...]
    overlap: int
    other: int
    timing: dict[str, int]
    evaluation_timing: dict[str, int]
    gpu: ByPhase
    training: Rollout | None
    evaluation: Rollout | None
    staleness: Staleness | None
    dropped: dict[str, int]  # on the step itself; rollouts have theirs
    waited: dict[str, int]  # ns, by reason
    waited_beside: dict[str, dict[str, int]]  # of other roles: by role and reason
    handed: bool = False  # to other processes, of which nothing is known here

    @property
    def total(self) -> int:
        """From start to end, in nanoseconds."""
        return self.end - self.start


def step(
    index: int,
    start: int,
    end: int,
    attributes: Mapping[str, Any],
    *,
    phases: Sequence[Phase],
    trajectories: Sequence[Trajectory],
    elsewhere: Sequence[Phase] = (),
    handed: bool = False,
) -> StepFigures:
    """Return the figures of one step.

    `phases` are those of the step's own timeline; `elsewhere` are those of other processes and roles in the same
    step, which are no part of its time: their memory peaks count, and their rollouts. `handed` where other processes
    may have trajectories of it that are not among these.
    """
    own, others = _by_timeline(phases, elsewhere, attributes.get(semconv.ROLE))
    groups = _by_path(own)
    rows = tuple(_rows(groups, _by_path(others), start, end))
    covered = union(_clipped(chain.from_iterable(groups[path] for path in groups if len(path) == 1), start, end))
    training = _rollout(trajectories, own + others, evaluates=False)
    return StepFigures(
        dropped=dropped_of([attributes]),
        waited=waited(filter(_trains, own), start, end),
        waited_beside=waited_by_role(others, start, end),
        index=index,
        role=attributes.get(semconv.ROLE),
        start=start,
        end=end,
        loss=attributes.get(semconv.LOSS),
        reward=attributes.get(semconv.REWARD_MEAN, training and training.reward),
        samples=attributes.get(semconv.SAMPLES),
        left=bool(attributes.get(semconv.STEP_LEFT)),
        error=attributes.get(semconv.ERROR_TYPE),
        aborted=attributes.get(semconv.ABORTED),
        rows=rows,
        overlap=sum(row.time for row in rows if row.depth == 0) - covered,
        other=end - start - covered,
        timing=_timing(filter(_trains, own), start, end),
        evaluation_timing=_timing(filterfalse(_trains, own), start, end),
        gpu=by_phase(each for each in own + others if _trains(each)),
        training=training,
        evaluation=_rollout(trajectories, own + others, evaluates=True),
        staleness=joined_staleness((attributes, *(phase.attributes for phase in own if _trains(phase)))),
        handed=handed,
    )


def summary(step: StepFigures) -> dict[str, float | int]:
    """Return the step as the flat dict that people log: seconds, GiB and shares under the names they chart."""
    flat: dict[str, float | int] = {f"timing/{name}": time / NANO for name, time in step.timing.items()}
    flat["timing/step"] = step.total / NANO
    flat["timing/other"] = step.other / NANO
    peaks = ((name, known.peak) for name, known in step.gpu.memory.items())
    flat.update((f"gpu/{name}/peak_memory_gib", peak / GIB) for name, peak in peaks if peak is not None)
    flat.update((f"gpu/utilization/{name}", share) for name, share in step.gpu.utilization.items())
    flat.update(_rollout_summary("generate/", step.training))
    flat.update((f"eval/timing/{name}", time / NANO) for name, time in step.evaluation_timing.items())
    flat.update(_rollout_summary("eval/generate/", step.evaluation))
    if step.evaluation is not None and step.evaluation.reward is not None:
        flat["eval/reward"] = step.evaluation.reward
    dropped = Counter(step.dropped)
    dropped.update(step.training.dropped if step.training is not None else {})  # + would leave out zeros
    flat.update((f"dropped/{reason}", count) for reason, count in dropped.items())
    flat.update(_waits("async/waited", step.waited))
    for role, reasons in step.waited_beside.items():
        flat.update(_waits(f"async/{role}_waited", reasons))
    if step.staleness is not None:
        for figure in ("min", "mean", "max"):
            flat[f"async/staleness_{figure}"] = getattr(step.staleness, figure)
    return flat


def _waits(prefix: str, reasons: Mapping[str, int]) -> dict[str, float]:
    return {f"{prefix}/{reason or semconv.UNKNOWN}": time / NANO for reason, time in reasons.items()}


def _rollout_summary(prefix: str, rollout: Rollout | None) -> dict[str, float | int]:
    if rollout is None:
        return {}
    flat: dict[str, float | int] = {}
    for word, part in (("llm", "generate"), ("env", "env")):
        spread = rollout.parts.get(part)
        if spread is not None:
            for figure in ("mean", "p90", "max"):
                flat[f"{prefix}trajectory_{word}_time_{figure}"] = getattr(spread, figure) / NANO
    if rollout.env_ratio is not None:
        flat[f"{prefix}frac_time_in_env"] = rollout.env_ratio
    return flat


def _by_timeline(phases: Iterable[Phase], elsewhere: Iterable[Phase], role: Any) -> tuple[list[Phase], list[Phase]]:
    """Divide the phases into those of the step's role, in its process, and all others."""
    own: list[Phase] = []
    others = list(elsewhere)
    for phase in phases:
        (own if phase.attributes.get(semconv.ROLE, role) == role else others).append(phase)
    return own, others


def _trains(phase: Phase) -> bool:
    # The time of an eval as a whole is the step's; what happens inside it has names of its own.
    return phase.name == semconv.EVAL or not phase.evaluates


def _by_path(phases: Sequence[Phase]) -> dict[Path, list[Phase]]:
    """Group phases by their own name and the names of the phases around them."""
    by_span = {phase.span: phase for phase in phases}
    groups: dict[Path, list[Phase]] = {}
    for phase in phases:
        names, around = [phase.name], by_span.get(phase.parent)
        while around is not None and len(names) < _DEEPEST:
            names.append(around.name)
            around = by_span.get(around.parent)
        groups.setdefault(tuple(reversed(names)), []).append(phase)
    return groups


def _rows(
    groups: Mapping[Path, list[Phase]], elsewhere: Mapping[Path, list[Phase]], start: int, end: int, around: Path = ()
) -> Iterable[Row]:
    """Yield rows by first start, each followed by those nested in it."""
    inside = [path for path in groups if path[:-1] == around]
    for path in sorted(inside, key=lambda path: min(phase.start for phase in groups[path])):
        yield _row(path, groups[path], elsewhere.get(path, ()), start, end)
        yield from _rows(groups, elsewhere, start, end, path)


def _row(path: Path, group: list[Phase], elsewhere: Sequence[Phase], start: int, end: int) -> Row:
    gpu = [phase.attributes[semconv.GPU_DURATION] for phase in group if semconv.GPU_DURATION in phase.attributes]
    return Row(
        name=path[-1],
        depth=len(path) - 1,
        count=len(group),
        time=union(_clipped(group, start, end)),
        # A sum that lacks some of its terms would pass for the whole.
        gpu=sum(round(seconds * NANO) for seconds in gpu) if len(gpu) == len(group) else None,
        memory=memory((*group, *elsewhere)),
    )


def _clipped(phases: Iterable[Phase], start: int, end: int) -> Iterable[tuple[int, int]]:
    return ((max(phase.start, start), min(phase.end, end)) for phase in phases)


def _timing(phases: Iterable[Phase], start: int, end: int) -> dict[str, int]:
    """Return each name's inclusive time, wherever it is nested."""
    by_name: dict[str, list[Phase]] = {}
    for phase in phases:
        by_name.setdefault(phase.name, []).append(phase)
    return {name: union(_clipped(group, start, end)) for name, group in by_name.items()}


def _rollout(trajectories: Iterable[Trajectory], phases: Iterable[Phase], *, evaluates: bool) -> Rollout | None:
    kinds = (semconv.ROLLOUT, semconv.EVAL)
    around = [phase for phase in phases if phase.name in kinds and phase.evaluates == evaluates]
    played = [each for each in trajectories if (each.mode == semconv.MODE_EVAL) == evaluates]
    if not around and not played:
        return None
    figures = joined(
        played,
        [(phase.start, phase.end) for phase in around],
        [phase.attributes for phase in around],
        [phase.direct for phase in around if phase.direct is not None],
    )
    return figures if figures.known else None
