"""Which runs there are, and which of them somebody means."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rl_otel._folder import places
from rl_otel._journal import journals
from rl_otel._terminal import command

_LISTED: Final = 8


class NoRun(Exception):
    """There is no run at that path. The message says what is there instead, and what to type."""


def find_run(path: Path, verb: str) -> Path:
    """Return the run folder that `path` means: one itself, the only one in it, or one by its name where runs are kept.

    Raises:
        NoRun: there is none, or more than one.
    """
    for folder in (path, *(place / path for place in places())):
        if folder.is_dir() and journals(folder):
            return folder
    runs = _runs(path)
    if len(runs) == 1:
        return runs[0]
    if runs:
        names = _listed([run.name for run in runs])
        raise NoRun(f"{path} holds {len(runs)} runs, newest first: {names}. Try: {command(verb, runs[0])}")
    if path.is_file() and journals(path.parent):
        raise NoRun(f"{path} is a file; give the run folder. Try: {command(verb, path.parent)}")
    found = "is a file" if path.is_file() else "has no journals" if path.is_dir() else "is not there"
    raise NoRun(f"{path} {found}; {_elsewhere(verb)}")


def newest_run(verb: str) -> Path:
    """Return the run folder that was written to last.

    Raises:
        NoRun: there is none.
    """
    runs = _runs(*places())
    if not runs:
        raise NoRun(_elsewhere(verb))
    return runs[0]


def _elsewhere(verb: str) -> str:
    """Return which runs there are, and what to type."""
    runs = _runs(*places())
    if runs:
        names = _listed([str(run) for run in runs])
        return f"your runs, newest first: {names}. Try: {command(verb, runs[0])}"
    looked = ", ".join(map(str, dict.fromkeys(places())))
    return f"no run in {looked}: a run makes one once it has called rl_otel.configure() and opened its first span"


def _runs(*folders: Path) -> list[Path]:
    """Return the run folders in `folders`, that written last first."""
    written: dict[Path, float] = {}
    for folder in folders:
        for each in folder.iterdir() if folder.is_dir() else ():
            written[each] = max(map(_written, journals(each)), default=0.0) if each.is_dir() else 0.0
    return sorted(filter(written.get, written), key=lambda run: (written[run], run), reverse=True)


def _written(journal: Path) -> float:
    """Return when a journal was last written to, in s since the epoch; 0 where it is gone meanwhile."""
    try:
        return journal.stat().st_mtime
    except OSError:
        return 0.0


def _listed(names: list[str]) -> str:
    told = ", ".join(names[:_LISTED])
    return told if len(names) <= _LISTED else f"{told} and {len(names) - _LISTED} more"
