"""What `flush` and `shutdown` tell."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Delivery:
    """What became of the spans that have ended: ended = sent + pending + kept + dropped.

    True where nothing is pending or dropped.
    """

    sent: int = 0  # accepted by the back end
    pending: int = 0  # in the journal, on the way, or not decided on while its rollout runs
    kept: int = 0  # in the journal alone: no endpoint, sampled out, or left out by the budget
    dropped: int = 0  # refused by the back end, or never written
    timed_out: bool = False  # the time was up before all was delivered
    folder: str = field(default="", compare=False)  # the run folder, where the journal is

    def __bool__(self) -> bool:
        return not (self.pending or self.dropped or self.timed_out)
