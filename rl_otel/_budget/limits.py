"""How much of one trace is sent, by all processes together and by one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rl_otel._identity import Identity

_TOTAL, _LIVE = 450, 400  # bytes a span: Tempo refuses a trace of 5 MB, and 10,000 spans make 4.5 MB
_LEAST: Final = 16_384  # bytes: the resources around a few spans take more room than the spans

_SHARERS: Final = 16  # processes that send their part of a step
_STRANGER: Final = 32  # a process that no rank of the loop tells apart gets what one of 16 others has: half of a 16th


@dataclass(frozen=True, slots=True)
class Budget:
    """What one process sends of one trace at most; bytes are those of OTLP protobuf, resources included."""

    spans: int
    live: int  # bytes sent as the run goes on
    total: int  # bytes with what is sent later on demand
    envelope: int = 0  # bytes of a service's resource and scope, which come with each request
    window: int = 5_000_000_000  # ns: what is ready in it goes together in one request
    batch: int = 512  # spans of a request at most

    @classmethod
    def of(cls, spans: int, *, envelope: int = 0, window: float = 5.0, batch: int = 512) -> Budget:
        """Return the budget for `spans`, with bytes in proportion; `window` in seconds."""
        live, total = (max(spans * each, _LEAST) if spans > 0 else 0 for each in (_LIVE, _TOTAL))
        return cls(max(spans, 0), live, total, envelope, round(window * 1e9), batch)


def quota(spans: int, who: Identity) -> int:
    """Return how many of a step's `spans` one of its processes may send; over the ranks of a loop never more than that.

    The owner of the root has half and the others equal parts of the rest. Of more than 16 ranks only the first of each
    node sends, and of more than 16 nodes only every so many-th.
    """
    sharers, shares = _sharers(who)
    if who.owns_root:
        return spans if sharers == 1 else spans - spans // 2
    if not shares:
        return 0
    if who.serves or who.child or who.world_size <= 1:
        return spans // _STRANGER
    return spans // 2 // max(sharers - 1, 1)


def _sharers(who: Identity) -> tuple[int, bool]:
    """Return how many ranks send their part of a step, and whether this one does."""
    if who.world_size <= _SHARERS:
        return who.world_size, True
    if who.node is None or who.nodes is None or who.local_rank is None:
        # Ranks are counted node by node, as far as anybody says.
        size = who.local_size or 1
        stride = size * -(-who.world_size // size // _SHARERS)
        return -(-who.world_size // stride), who.rank % stride == 0
    stride = -(-who.nodes // _SHARERS)
    first = who.local_rank == 0 and who.node % stride == 0
    # Rank 0 has the place of the first node, wherever it runs.
    return -(-who.nodes // stride), who.rank == 0 or (first and who.node > 0)
