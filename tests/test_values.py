"""Numbers from outside: those of numpy and torch, not-a-numbers, huge ones, and very many."""

from __future__ import annotations

import enum
import itertools
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

import rl_otel
from rl_otel.testing import capture
from tests import needs, process
from tests.receiver import Receiver
from tests.test_words import exactly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_otel.testing import Traces

# --- numbers of other libraries ---------------------------------------------------------------------------------------


@needs.numpy
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("float32(0.5)", 0.5),
        ("float64(0.5)", 0.5),
        ("float16(0.5)", 0.5),
        ("array(0.5)", 0.5),
        ("array([0.25, 0.75])", 0.5),
        ("array([[0.25, 0.75]], dtype='float32')", 0.5),
        ("int64(1)", 1.0),
        ("bool_(True)", 1.0),
    ],
)
def test_numpy_numbers_are_numbers(traces: Traces, made: str, expected: float) -> None:
    """A reward of any numpy kind is a float in the span, so that a query can compare it."""
    import numpy

    with rl_otel.step(numpy.int64(3)) as step:
        step.record(reward=eval(f"numpy.{made}"), samples=numpy.uint8(160), optimizer_steps=numpy.float32(8))

    attributes = traces.one("step").attributes
    assert exactly(attributes["rl.reward.mean"]) == exactly(expected)
    assert exactly(attributes["rl.samples"]) == exactly(160)
    assert exactly(attributes["rl.optimizer.steps"]) == exactly(8)
    assert exactly(attributes["rl.step"]) == exactly(3)


@needs.numpy
def test_numpy_flags_and_arrays_keep_their_types() -> None:
    """A numpy bool is a bool, and an array under a name of one's own is a list of Python numbers."""
    import numpy

    with capture(strict=False) as traces, rl_otel.rollout(), rl_otel.env_step() as env_step:
        env_step.record(reward=numpy.array([1.0, 0.0]), terminated=numpy.bool_(True), truncated=numpy.array([0, 1]))
        env_step.record(counts=numpy.arange(3), name=numpy.str_("swe"), empty=numpy.array([]))

    attributes = traces.one("env.step").attributes
    expected = {
        "rl.env.reward": 0.5,
        "rl.env.terminated": True,
        "rl.env.truncated": False,
        "rl.custom.counts": [0, 1, 2],
        "rl.custom.name": "swe",
        "rl.custom.empty": [],
    }
    assert {name: exactly(value) for name, value in attributes.items()} == {
        name: exactly(value) for name, value in expected.items()
    }


@needs.torch
def test_torch_numbers_are_numbers(traces: Traces) -> None:
    """A loss with its graph, counts and flags of torch on the CPU are read at once, as Python's own."""
    import torch

    weight = torch.ones((), requires_grad=True)
    with rl_otel.step(0) as step, rl_otel.rollout() as rollout, rl_otel.trajectory(sample=torch.tensor(3)):
        with rl_otel.env_step() as env_step:
            env_step.record(reward=torch.tensor([1.0]), terminated=torch.tensor(True))
        rollout.record(rewards=torch.tensor([[0.0, 1.0], [1.0, 2.0]], dtype=torch.bfloat16))
        step.record(loss=weight * 2, samples=torch.tensor(160), lr=torch.nn.Parameter(torch.tensor(0.5)))

    assert exactly(traces.one("step").attributes["rl.loss"]) == exactly(2.0)
    assert exactly(traces.one("step").attributes["rl.samples"]) == exactly(160)
    assert exactly(traces.one("step").attributes["rl.lr"]) == exactly(0.5)
    assert exactly(traces.one("rollout").attributes["rl.reward.mean"]) == exactly(1.0)
    assert exactly(traces.one("trajectory").attributes["rl.sample.index"]) == exactly(3)
    assert exactly(traces.one("env.step").attributes["rl.env.terminated"]) == exactly(True)


def test_neither_numpy_nor_torch_is_imported_by_us() -> None:
    """Recording every kind of value, exporting and ending a run imports neither of the two."""
    process.run(
        """
        import sys
        class Nothing:
            def find_spec(self, name, path=None, target=None):
                assert name.partition(".")[0] not in ("numpy", "torch"), f"{name} was imported"
        sys.meta_path.insert(0, Nothing())

        import rl_otel
        rl_otel.configure(run_dir="runs")
        with rl_otel.step(0) as step, rl_otel.rollout() as rollout, rl_otel.trajectory() as trajectory:
            rollout.record(rewards=[1, 0.5, True])
            step.record({"a": object(), "b": [1, "x"], "c": {1: 2}}, loss=0.5)
        rl_otel.shutdown()
        assert not {"numpy", "torch"} & set(sys.modules)
        """
    )


def test_other_numbers_and_names_are_what_they_stand_for(traces: Traces) -> None:
    """Decimals and enums become the number or the text that they are made of."""

    class Count(enum.IntEnum):
        MANY = 8

    class Reason(str, enum.Enum):
        TURNS = "turn limit"

    with rl_otel.step(0) as step, rl_otel.rollout(), rl_otel.trajectory() as trajectory:
        step.record(loss=Decimal("0.25"), samples=Count.MANY)
        trajectory.record(reason=Reason.TURNS)

    assert exactly(traces.one("step").attributes["rl.loss"]) == exactly(0.25)
    assert exactly(traces.one("step").attributes["rl.samples"]) == exactly(8)
    assert exactly(traces.one("trajectory").attributes["rl.trajectory.reason"]) == exactly("turn limit")


def test_all_of_a_batch_counts(traces: Traces) -> None:
    """Rewards and tokens of ten thousand sequences are all in the figures: a list is not cut before it is summed."""
    with rl_otel.rollout() as rollout:
        with rl_otel.generate() as generation:
            generation.record(output_tokens=[1] * 10_000, finish_reasons=["stop"] * 10_000)
        rollout.record(rewards=[0.0] * 5_000 + [1.0] * 5_000)

    generate = traces.one("generate").attributes
    assert traces.one("rollout").attributes["rl.reward.mean"] == 0.5
    assert generate["rl.generate.sequences"] == generate["gen_ai.usage.output_tokens"] == 10_000
    assert len(generate["gen_ai.response.finish_reasons"]) == 4096


@needs.numpy
@pytest.mark.parametrize("shape", [(40_000,), (200, 200), (1, 40_000)])
def test_a_large_array_says_itself_what_it_comes_to(shape: tuple[int, ...]) -> None:
    """Millions of numbers become no Python objects: mean, sum and whether all hold are asked of the array."""
    import numpy

    class Large(numpy.ndarray):
        def tolist(self) -> Any:
            assert self.size <= 4096, "the host waits"
            return super().tolist()

    ones = numpy.ones(shape).view(Large)
    halves, infinities = ones * 0.5, ones * numpy.inf
    infinities[0] *= -1
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record(entropy=halves, samples=ones, mine=halves, kl=infinities)
        with rl_otel.env_step() as env_step:
            env_step.record(terminated=ones, truncated=ones - 1)

    attributes = traces.one("step").attributes
    assert attributes["rl.custom.mine"] == [0.5] * 4096
    assert exactly(attributes["rl.entropy"]) == exactly(0.5)
    assert exactly(attributes["rl.samples"]) == exactly(40_000)
    assert not math.isfinite(attributes["rl.kl"])
    assert traces.one("env.step").attributes["rl.env.terminated"] is True
    assert traces.one("env.step").attributes["rl.env.truncated"] is False


@needs.torch
def test_a_large_tensor_says_itself_what_it_comes_to(traces: Traces) -> None:
    """A tensor of whole numbers has a mean as well, and one of half precision does not overflow."""
    import torch

    with rl_otel.step(0) as step:
        step.record(
            loss=torch.ones(40_000, requires_grad=True), kl=torch.full((40_000,), 3), samples=torch.ones(40_000)
        )
        step.record(entropy=torch.full((40_000,), 60_000.0, dtype=torch.float16))

    attributes = traces.one("step").attributes
    assert exactly(attributes["rl.loss"]) == exactly(1.0)
    assert exactly(attributes["rl.kl"]) == exactly(3.0)
    assert exactly(attributes["rl.samples"]) == exactly(40_000)
    assert exactly(attributes["rl.entropy"]) == exactly(60_000.0)


class Endless:
    """A collection that never comes to its end."""

    def __len__(self) -> int:
        return 3

    def __contains__(self, item: object) -> bool:
        return True

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


def doubled(times: int) -> list[Any]:
    """Return a list with 2 ** times numbers in it, which takes no room."""
    value: list[Any] = [1.0]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize("value", [range(1 << 40), doubled(60), Endless(), [[1.0] * 30_000] * 2], ids=type)
def test_a_list_too_long_to_add_up_is_left_out(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The host does not wait for millions of objects, nested or not: no number is better than one of a part."""
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record(kl=value, loss=0.5)

    assert traces.one("step").attributes == {"rl.step": 0, "rl.loss": 0.5, "rl.telemetry.overhead": ANY}
    assert [record.getMessage() for record in caplog.records] == [
        "rl_otel: a list of more than 32768 numbers is not recorded; give their sum or mean"
    ]


@pytest.mark.parametrize("value", [doubled(60), {i: {i: [i]} for i in range(10_000)}, {"a": Endless()}], ids=type)
def test_what_is_nested_is_looked_at_in_part(value: Any) -> None:
    """Under a name of one's own the beginning is enough, and all lists and mappings share one limit."""
    with capture(strict=False) as traces, rl_otel.step(0) as step:
        step.record(mine=value)

    assert len(traces.one("step").attributes["rl.custom.mine"]) == 2048


def test_a_distributed_tensor_is_not_read(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """Reading a tensor that is spread over ranks is a collective, and would hang: it is left out with one line."""

    class DTensor:
        size = 1 << 20

        def full_tensor(self) -> Any:
            raise AssertionError("all ranks would have to come here")

        detach = tolist = item = mean = __float__ = full_tensor

    with rl_otel.step(0) as step:
        step.record(grad_norm=DTensor(), loss=0.5)

    assert traces.one("step").attributes == {"rl.step": 0, "rl.loss": 0.5, "rl.telemetry.overhead": ANY}
    assert "full_tensor()" in caplog.text


# --- numbers at the edge ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_not_a_number_reaches_the_back_end(protocol: str) -> None:
    """A loss that diverges is recorded and sent as what it is, in both encodings, and harms no other span."""
    losses = [1.0, math.nan, math.inf, -math.inf, 0.9]
    with Receiver() as receiver, capture(endpoint=receiver.http, protocol=protocol):
        for i, loss in enumerate(losses):
            with rl_otel.step(i) as step:
                step.record(loss=loss, reward=loss)
        report = rl_otel.flush()

    assert (report.sent, report.dropped) == (5, 0)
    received = {span.attributes["rl.step"]: span.attributes["rl.loss"] for span in receiver.spans}
    assert repr([received[i] for i in range(5)]) == repr(losses)


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_integers_are_exact_to_64_bits(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """GPU bytes are exact, up to the last integer of 64 bits; beyond it the nearest that OTLP knows is sent."""
    given = {"gpu": 85899345920, "last": 2**63 - 1, "first": -(2**63), "beyond": 2**63, "below": -(2**70)}
    with Receiver() as receiver, capture(strict=False, endpoint=receiver.http, protocol=protocol):
        with rl_otel.weight_sync() as sync:
            sync.record(given, bytes=2**100)
        assert rl_otel.flush().sent == 1

    sent = receiver.spans[0].attributes
    expected = {"gpu": 85899345920, "last": 2**63 - 1, "first": -(2**63), "beyond": 2**63 - 1, "below": -(2**63)}
    assert {name: sent[f"rl.custom.{name}"] for name in given} == expected
    assert sent["rl.weight_sync.bytes"] == 2**63 - 1
    told = "rl_otel: a number beyond 64 bits is recorded as the nearest of 64 bits"
    assert [message for message in caplog.messages if "64" in message] == [told]


def test_two_hundred_attributes_push_out_none_of_ours() -> None:
    """8 GPUs with 20 figures each and 40 of one's own: step, loss and run are there, the first 128, and a count."""
    figures = {f"gpu{gpu}/figure{i}": float(i) for gpu in range(8) for i in range(20)}
    with Receiver() as receiver, capture(strict=False, endpoint=receiver.http):
        with rl_otel.step(17) as step:
            step.record(figures)
            for i in range(40):
                step.record({f"reward/{i}": i})
            step.record(loss=0.5)
        rl_otel.flush()

    span = receiver.spans[0]
    assert (span.attributes["rl.step"], span.attributes["rl.loss"]) == (17, 0.5)
    assert span.resource["rl.run.id"] == "captured"
    names = [*figures, *(f"reward/{i}" for i in range(40))]
    kept = [name for name in span.attributes if name.startswith("rl.custom.")]
    assert sorted(kept) == sorted(f"rl.custom.{name}" for name in names[:128])
    assert span.attributes["rl.attributes.dropped"] == 72
