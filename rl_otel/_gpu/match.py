"""Which device of a driver is the one that a framework means. Indices differ between the two; UUIDs do not."""

from __future__ import annotations

from collections.abc import Sequence

from rl_otel._gpu.vendors.vendor import Local

_PART = "MIG-"


def match(local: Local, uuids: Sequence[str], visible: str | None, *, ordered: bool) -> str | None:
    """Return the driver's UUID for a device of this process, None where that is not certain.

    Args:
        local: the device.
        uuids: all that the driver has, in its order, each device before its parts.
        visible: what CUDA_VISIBLE_DEVICES says.
        ordered: whether CUDA counts devices as the driver does.
    """
    if not local.uuid:
        shown = _visible(visible, uuids, ordered=ordered)
        return shown[local.number] if local.number < len(shown) else None
    found = next((uuid for uuid in uuids if bare(uuid) in _spellings(local.uuid)), None)
    if found is not None and _is_divided(found, uuids):
        # Of a divided device CUDA gives one part; what the driver tells of the whole is not about that.
        parts = [uuid for uuid in _visible(visible, uuids, ordered=ordered) if uuid.startswith(_PART)]
        return parts[0] if len(parts) == 1 else None
    return found


def bare(uuid: str) -> str:
    """Return a UUID in a spelling in which two can be compared."""
    return uuid.strip().lower().removeprefix("gpu-").removeprefix("mig-").replace("-", "")


def _spellings(uuid: str) -> set[str]:
    """Return a UUID of torch as a driver may spell it: on ROCm its bytes are the text of a serial number."""
    plain = bare(uuid)
    try:
        return {plain, bytes.fromhex(plain).decode("ascii").lower()}
    except ValueError:
        return {plain}


def _is_divided(uuid: str, uuids: Sequence[str]) -> bool:
    return any(after.startswith(_PART) for after in uuids[uuids.index(uuid) + 1 :][:1]) and not uuid.startswith(_PART)


def _visible(value: str | None, uuids: Sequence[str], *, ordered: bool) -> list[str]:
    """Return what CUDA shows a process, in its order; without what is behind an entry that names nothing."""
    whole = [uuid for uuid in uuids if not uuid.startswith(_PART)]
    if value is None:
        return whole if ordered else []
    shown: list[str] = []
    for entry in value.split(","):
        uuid = _entry(entry.strip(), whole if ordered else [], uuids)
        if uuid is None:
            break
        shown.append(uuid)
    return shown if len(set(shown)) == len(shown) else []  # CUDA shows none if one is named twice


def _entry(entry: str, whole: Sequence[str], uuids: Sequence[str]) -> str | None:
    if entry.isdecimal():
        return whole[int(entry)] if int(entry) < len(whole) else None
    meant = [uuid for uuid in uuids if entry and uuid.lower().startswith(entry.lower())]
    return meant[0] if len(meant) == 1 else None
