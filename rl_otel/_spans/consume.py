"""What a step trains on: links to trajectories, and how stale they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rl_otel import _figures, _record, _values, semconv
from rl_otel._metrics import events
from rl_otel._safety import say_once
from rl_otel._spans import misuse

if TYPE_CHECKING:
    from rl_otel._register import Played
    from rl_otel._runtime import Runtime
    from rl_otel._spans.gather import Books
    from rl_otel._spans.span import Span

MOST_LINKS: Final = 1024  # of a step, one a trajectory; above it is one a group

#: Trajectories as a trainer names them: ids, or `(id, attempt, segment)`.
Ids: TypeAlias = Iterable[str | int | tuple[str | int, int, int]]
#: The policy version that each began with, in their order or by id.
Versions: TypeAlias = Sequence[int | None] | Mapping[Any, int | None]


class Trained(NamedTuple):
    """One trajectory that is trained on."""

    name: str
    ids: tuple[bytes, bytes]
    group: str | None
    version: int | None


class Consumed(NamedTuple):
    """What one call of `consume` says, until a span takes it."""

    links: list[_record.Link]
    staleness: list[int]


def consumed(
    span: Span, runtime: Runtime, books: Books, ids: Ids, *, versions: Versions | None, current: int | None
) -> Consumed:
    """Return links to trajectories that this step has not linked to yet, and the staleness of those.

    Args:
        span: the step's.
        runtime: that knows what this process has played.
        books: of the step.
        ids: which.
        versions: that they began with, where this process does not know.
        current: the policy version of the trainer.
    """
    if isinstance(ids, str | bytes):
        raise TypeError(f"{_values.shown(ids)} is one text, put it in a list")
    trained = [each for each in _trained(span, runtime, list(ids), versions) if each.ids[1] not in books.linked]
    trained = list({each.ids[1]: each for each in trained}.values())
    books.linked.update(each.ids[1] for each in trained)
    stale = {each.ids[1]: age for each in trained if (age := _staleness(each, current)) is not None}
    own = (_link(each, stale.get(each.ids[1])) for each in trained)
    return Consumed([*(own if len(books.linked) <= MOST_LINKS else _by_group(trained))], [*stale.values()])


def put(span: Span, runtime: Runtime, what: Consumed) -> None:
    """Have `span` say what it trains on."""
    span.link(what.links)
    new = _figures.staleness_of(what.staleness)
    if new is None:
        return
    attributes = span.attributes
    both = _figures.joined_staleness([attributes, _figures.staleness_attributes(new)])
    if both is not None:
        attributes.update(_figures.staleness_attributes(both))
    if runtime.meter is not None:
        runtime.meter.add(events.Staleness(span.seen, what.staleness))


def _trained(span: Span, runtime: Runtime, ids: list[Any], versions: Versions | None) -> Iterator[Trained]:
    register = runtime.register
    in_order = enumerate(() if versions is None else versions)  # an array of numpy has no truth
    given: Mapping[Any, int | None] = versions if isinstance(versions, Mapping) else dict(in_order)
    for index, which in enumerate(ids):
        plain, attempt, segment = which if isinstance(which, (tuple, list)) else (which, 1, 1)
        name, attempt, segment = _values.text(str(plain)), int(attempt), int(segment)
        played = register.played(name, attempt)
        told = given.get(index if given is not versions else tuple(which) if which is not plain else which)
        version = played.version if told is None and played is not None else told
        yield Trained(
            name,
            register.find(name, attempt, segment),
            _group(name, played),
            misuse.argument(span, "policy_versions", version, int),
        )


def _group(name: str, played: Played | None) -> str | None:
    """Return the group of a trajectory; of one that ran elsewhere, that which its id tells: `<group>/<sample>`."""
    return played.group if played is not None else name.rpartition("/")[0] or None


def _staleness(trained: Trained, current: int | None) -> int | None:
    if trained.version is None or current is None:
        return None
    if trained.version > current:
        say_once(
            "staleness",
            "rl_otel: trajectory %s began with policy version %d and the trainer is at %d: its staleness is not known. "
            "In the process that trains, weight_sync().record(policy_version=) says the version of its weights",
            trained.name,
            trained.version,
            current,
        )
        return None
    return current - trained.version


def _link(trained: Trained, stale: int | None) -> _record.Link:
    what: dict[str, Any] = {semconv.TRAJECTORY_ID: trained.name}
    if stale is not None:
        what[semconv.STALENESS] = stale
    return _record.Link(*trained.ids, what)


def _by_group(trained: list[Trained]) -> Iterator[_record.Link]:
    """Yield a link a group, to its first trajectory; those of no group share one."""
    groups: dict[str | None, list[Trained]] = {}
    for each in trained:
        groups.setdefault(each.group, []).append(each)
    for group, members in groups.items():
        what: dict[str, Any] = {semconv.TRAJECTORY_ID: members[0].name, semconv.GROUP_TRAJECTORIES: len(members)}
        if group is not None:
            what[semconv.GROUP_ID] = group
        yield _record.Link(*members[0].ids, what)
