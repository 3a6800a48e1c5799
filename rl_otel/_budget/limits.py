"""How much of one trace is sent, by all processes together and by one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_TOTAL, _LIVE = 450, 400  # bytes a span: Tempo refuses a trace of 5 MB, and 10,000 spans make 4.5 MB
_LEAST: Final = 16_384  # bytes: the resources around a few spans take more room than the spans

_SHARERS: Final = 16  # processes that send their part of a step
_STRANGER: Final = 32  # a process that no rank tells apart gets what one of 16 others has: half of a 16th


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


def quota(spans: int, *, world_size: int, rank: int, owns_root: bool, local_size: int | None = None) -> int:
    """Return how many of a step's `spans` one of its processes may send; over all ranks never more than `spans`.

    The owner of the root has half and the others equal parts of the rest. Of more than 16 ranks only every so many-th
    sends, the first of its node where `local_size`, the ranks of a node, is known.
    """
    if world_size <= 1:
        return spans if owns_root else spans // _STRANGER
    stride = _stride(world_size, local_size or 1)
    sharers = -(-world_size // stride)
    if owns_root:
        return spans if sharers == 1 else spans - spans // 2
    return spans // 2 // max(sharers - 1, 1) if rank % stride == 0 else 0


def _stride(world_size: int, local_size: int) -> int:
    if world_size <= _SHARERS:
        return 1
    nodes = -(-world_size // local_size)
    return local_size * -(-nodes // _SHARERS)
