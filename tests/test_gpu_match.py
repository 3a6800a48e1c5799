"""Which device of the driver a process means by its first, second…, whatever hides and reorders them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_otel._gpu.match import match
from rl_otel._gpu.vendors import Local
from tests.nvml import uuid

FOUR = [uuid(number) for number in (0xAAAAAA, 0xBBBBBB, 0xCCCCCC, 0xCCCCDD)]
A, B, C, D = FOUR
PARTS = ["MIG-11111111-1111-1111-1111-111111111111", "MIG-22222222-2222-2222-2222-222222222222"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, FOUR),
        ("3,1", [D, B]),
        (" 2 , 0 ", [C, A]),
        (B, [B]),
        (f"{D},{A}", [D, A]),
        (B[:10].lower(), [B]),
        ("GPU-cccc", []),  # of two of that beginning CUDA takes none
        ("", []),
        ("-1", []),
        ("0,-1,1", [A]),
        ("7", []),
        ("1,7,2", [B]),
        ("1,1", []),
        ("nonsense", []),
    ],
)
def test_a_torch_without_uuids_is_understood_by_what_is_visible(visible: str | None, expected: list[str]) -> None:
    """CUDA_VISIBLE_DEVICES is read as CUDA does; what names nothing certain gives no device, never a wrong one."""
    found = [match(Local(number, "", None), FOUR, visible, ordered=True) for number in range(4)]
    assert found == [*expected, *[None] * (4 - len(expected))]


@pytest.mark.parametrize("visible", [None, "3,1"])
def test_an_order_that_may_differ_gives_no_device(visible: str | None) -> None:
    """Where the fastest device is CUDA's first, numbers say nothing to the driver; a UUID still does."""
    assert match(Local(0, "", None), FOUR, visible, ordered=False) is None
    assert match(Local(0, "", None), FOUR, C, ordered=False) == C


@given(st.permutations(FOUR), st.sampled_from([None, "", "3,1", "7"]), st.booleans())
def test_a_uuid_decides_whatever_the_environment_says(uuids: list[str], visible: str | None, ordered: bool) -> None:
    """Torch's own UUID is the driver's, in another spelling."""
    for number, each in enumerate(FOUR):
        assert match(Local(number, each.removeprefix("GPU-").upper(), None), uuids, visible, ordered=ordered) == each


def test_a_uuid_that_the_driver_does_not_know_is_no_device() -> None:
    """A device of another vendor or another node has no figures here."""
    assert match(Local(0, "00000000-0000-0000-0000-000000000000", None), FOUR, None, ordered=True) is None


@pytest.mark.parametrize("local", [PARTS[1].removeprefix("MIG-"), A.removeprefix("GPU-")])
def test_a_part_of_a_divided_device_is_not_the_whole(local: str) -> None:
    """Whether CUDA gives the part's UUID or the whole device's, the figures are those of the part that is visible."""
    uuids = [A, *PARTS, B]
    assert match(Local(0, local, None), uuids, PARTS[1], ordered=True) == PARTS[1]


def test_a_divided_device_of_which_no_part_is_named_has_no_figures() -> None:
    """Those of the whole would be somebody else's too."""
    assert match(Local(0, A.removeprefix("GPU-"), None), [A, *PARTS, B], None, ordered=True) is None
    assert match(Local(1, B.removeprefix("GPU-"), None), [A, *PARTS, B], None, ordered=True) == B


def test_a_serial_number_is_found_in_the_uuid_that_spells_it() -> None:
    """On ROCm the bytes of torch's UUID are the text of the serial number that the driver tells."""
    serial = "ab1c2d3e4f506172"
    spelled = serial.encode().hex()
    assert match(Local(0, spelled, None), ["ffffffffffffffff", serial], None, ordered=True) == serial
