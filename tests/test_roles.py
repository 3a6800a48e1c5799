"""Several loops in one process: each role has a timeline of its own."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import rl_otel
from rl_otel import _runtime
from rl_otel import semconv_metrics as table
from rl_otel._metrics.observed import OBSERVED
from rl_otel._spans import role as roles
from tests import metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from rl_otel.testing import Traces

recording = pytest.mark.usefixtures("recording")


def active(name: str = "rl.phase.active") -> dict[str, list[str]]:
    """Return the phases whose gauge is not 0, by role."""
    found: dict[str, list[str]] = {}
    for point in metrics.now()[name]:
        phases = found.setdefault(point.attributes["rl.role"], [])
        if point.value:
            phases.append(point.attributes["rl.phase"])
    return found


def role_of(span: object) -> object:
    return span.attributes.get("rl.role")  # type: ignore[attr-defined]


@recording
async def test_exactly_one_phase_is_active_on_each_timeline_while_both_work(caplog: pytest.LogCaptureFixture) -> None:
    """Generation beside training moves its own gauge and leaves the trainer's alone; nobody is told of an overlap."""
    generating, done = asyncio.Event(), asyncio.Event()

    async def generate() -> None:
        with rl_otel.rollout():
            generating.set()
            await done.wait()
            done.clear()
        generating.set()
        await done.wait()

    with rl_otel.role("generator"):
        task = asyncio.create_task(generate())
    await generating.wait()
    with rl_otel.step(0):
        assert active() == {"driver": ["other"], "generator": ["rollout"]}
        with rl_otel.train():
            assert active() == {"driver": ["train"], "generator": ["rollout"]}
            assert active("rl.phase.open.duration") == {"driver": ["train"], "generator": ["rollout"]}
            generating.clear()
            done.set()
            await generating.wait()
            assert active() == {"driver": ["train"], "generator": ["idle"]}
    assert active() == {"driver": ["idle"], "generator": ["idle"]}
    done.set()
    await task
    assert not caplog.records


@recording
async def test_a_role_that_plays_trajectories_is_not_idle() -> None:
    """Trajectories that are traces of their own are no phases, and still something that their role does."""
    with rl_otel.role("generator"):
        with rl_otel.trajectory("a"), rl_otel.generate():
            assert active() == {"driver": ["idle"], "generator": ["other"]}
        with rl_otel.trajectory("b"), rl_otel.wait("slot"):  # a part of it, and no phase
            assert active() == {"driver": ["idle"], "generator": ["other"]}
        with rl_otel.wait("weight_sync"):
            assert active() == {"driver": ["idle"], "generator": ["wait"]}
        assert active() == {"driver": ["idle"], "generator": ["idle"]}


def test_every_span_inside_carries_the_role(traces: Traces) -> None:
    """Where it is not the process's own: on phases, trajectories, calls, parts, and what is added afterwards."""
    with rl_otel.role("generator"):
        with rl_otel.trajectory("a"), rl_otel.generate(), rl_otel.reward():
            pass
        with rl_otel.generate():
            pass
        with rl_otel.weight_sync() as sync, sync.part("load"):
            pass
        rl_otel.add("wait", 1, 2, reason="slot")
        with rl_otel.role("driver"), rl_otel.data():
            pass
        with rl_otel.role("judge"), rl_otel.logprobs():
            pass
    with rl_otel.train():
        pass
    others = {"data": None, "logprobs": "judge", "train": None}
    assert {span.name: role_of(span) for span in traces.spans} == {
        "trajectory": "generator", "generate": "generator", "reward": "generator", "weight_sync": "generator",
        "weight_sync.load": "generator", "wait": "generator", **others,
    }  # fmt: skip


def test_a_phase_of_another_role_is_no_time_of_the_step(traces: Traces) -> None:
    """A generation task that was made inside a step inherits it; the trainer's rows stay the trainer's."""

    async def generate() -> None:
        with rl_otel.role("generator"), rl_otel.rollout(), rl_otel.trajectory("a"), rl_otel.generate():
            pass

    async def train() -> None:
        with rl_otel.step(0) as step:
            task = asyncio.create_task(generate())
            with rl_otel.train():
                await task
            assert {key for key in step.summary if key.startswith("timing/")} == {
                "timing/step", "timing/other", "timing/train",
            }  # fmt: skip
            assert step.summary["timing/other"] < step.summary["timing/step"]

    asyncio.run(train())
    assert traces.one("rollout").trace_id == traces.one("step").trace_id
    assert traces.one("step").attributes.get("rl.role") is None


def test_phases_of_another_role_outside_a_step_are_roots_and_no_time_of_the_run(traces: Traces) -> None:
    """They stand beside the loop whose steps make the run: neither setup nor between steps."""
    with rl_otel.role("generator"), rl_otel.wait("buffer_full"):
        pass
    with rl_otel.step(0), rl_otel.train():
        pass
    with rl_otel.role("generator"), rl_otel.wait("weight_sync"):
        pass
    with rl_otel.checkpoint():
        pass
    assert [span.parent_id for span in traces.all("wait")] == ["", ""]
    assert _runtime.active is not None
    assert [phase.name for phase in _runtime.active.printer.run.phases] == ["train", "checkpoint"]


def test_steps_of_a_role_count_as_the_process_s_own_would(traces: Traces) -> None:
    """A loop may be in a role as a whole: its phases are its steps' time."""
    with rl_otel.role("trainer"), rl_otel.step(3) as step, rl_otel.train():
        pass
    assert "timing/train" in step.summary
    assert role_of(traces.one("step")) == role_of(traces.one("train")) == "trainer"


def test_tasks_and_bound_threads_inherit_it(traces: Traces) -> None:
    """What begins inside belongs to the role, also when the `with` has been left; a bare thread does not."""

    async def tasks() -> None:
        async def late() -> None:
            await asyncio.sleep(0)
            with rl_otel.data():
                pass

        with rl_otel.role("generator"):
            task = asyncio.create_task(late())
        await task

    def work() -> None:
        with rl_otel.logprobs():
            pass

    @rl_otel.role("generator")
    def loop() -> None:
        with rl_otel.reward():
            pass

    asyncio.run(tasks())
    with ThreadPoolExecutor() as pool, rl_otel.role("generator"):
        pool.submit(rl_otel.bind(work)).result()
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    with rl_otel.train():
        pass
    assert {span.name: role_of(span) for span in traces.spans} == {
        "data": "generator", "logprobs": "generator", "reward": "generator", "train": None,
    }  # fmt: skip


async def test_it_decorates_whatever_is_called(traces: Traces) -> None:
    """Functions, coroutine functions, generators: the role is theirs, and does not leak to who consumes them."""
    decorate = rl_otel.role("generator")

    @decorate
    def function() -> None:
        with rl_otel.data():
            pass

    @decorate
    async def coroutine() -> None:
        with rl_otel.reward():
            pass

    @decorate
    def generator() -> Iterator[int]:
        with rl_otel.values():
            pass
        yield 1

    @decorate
    async def asynchronous() -> AsyncIterator[int]:
        with rl_otel.advantage():
            pass
        yield 1

    function()
    await coroutine()
    for _ in generator():
        with rl_otel.train():
            pass
    async for _ in asynchronous():
        with rl_otel.optimizer():
            pass
    assert {span.name: role_of(span) for span in traces.spans} == {
        "data": "generator", "reward": "generator", "values": "generator", "train": None,
        "advantage": "generator", "optimizer": None,
    }  # fmt: skip


@recording
def test_a_loop_may_open_a_phase_of_a_new_name_while_metrics_are_read() -> None:
    """What is collected meanwhile is whole: names that a loop comes to know are there the next time."""
    runtime = _runtime.active
    assert runtime is not None
    with rl_otel.rollout():
        watched: Any = SimpleNamespace(timelines=runtime.timelines)
        for metric in (table.PHASE_ACTIVE, table.PHASE_AGE):
            read = OBSERVED[metric](watched)
            first = next(read)
            with rl_otel.phase(f"new while {metric.name} is read"):
                assert "rollout" in {phase for _, (phase, _) in (first, *read)}


async def test_it_is_left_however_its_block_ends(traces: Traces) -> None:
    """An exception, a cancelled task, `start` and `end`, one inside another: the one around it is current again."""
    with pytest.raises(ZeroDivisionError), rl_otel.role("a"):
        raise ZeroDivisionError
    async with rl_otel.role("b"):
        inner = rl_otel.role("c").start()
        inner.end()
        with rl_otel.data():
            pass
    inner.end()
    with rl_otel.train():
        pass
    assert (role_of(traces.one("data")), role_of(traces.one("train"))) == ("b", None)


def test_it_is_left_in_whatever_order_handles_end(traces: Traces) -> None:
    """Loops that overlap, as of callbacks, and one handle inside itself: what has ended is current no more."""
    first, second = rl_otel.role("a").start(), rl_otel.role("b").start()
    first.end()
    with rl_otel.data():
        pass
    second.end()
    with first, first, rl_otel.values():
        pass
    with rl_otel.train():
        pass
    roles = {name: role_of(traces.one(name)) for name in ("data", "values", "train")}
    assert roles == {"data": "b", "values": "a", "train": None}


async def test_tasks_may_share_a_handle(traces: Traces) -> None:
    """Each task leaves its own, whichever of them came and went meanwhile."""
    shared, entered = rl_otel.role("generator"), asyncio.Event()

    async def first() -> None:
        with shared:
            await entered.wait()
        with rl_otel.data():
            pass

    async def second() -> None:
        with shared:
            entered.set()
            await asyncio.sleep(0)
        with rl_otel.values():
            pass

    await asyncio.gather(first(), second())
    assert role_of(traces.one("data")) is role_of(traces.one("values")) is None


def test_brackets_and_a_name_are_asked_for() -> None:
    """A role is opened as every opener is; without its brackets or name Python's own error says so."""
    with pytest.raises(TypeError, match=r"write `with rl_otel.role\(\):`, with brackets"), rl_otel.role:  # type: ignore[attr-defined]
        pass
    with pytest.raises(TypeError, match="brackets"):
        rl_otel.role(lambda: None)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(rl_otel.role("x"))).role == "x"


def test_roles_are_bounded(traces: Traces, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Names that never end share one more role, which is said once."""
    monkeypatch.setattr(roles, "_known", {})
    for number in range(roles.MOST + 3):
        with rl_otel.role(f"worker-{number}"), rl_otel.data():
            pass
    assert {role_of(span) for span in traces.spans} == {
        *(f"worker-{number}" for number in range(roles.MOST)), "other",
    }  # fmt: skip
    (record,) = caplog.records
    assert record.getMessage().startswith("rl_otel: role('worker-32'): a process has at most 32 roles")


@recording
def test_metrics_carry_the_role_of_their_timeline() -> None:
    """Steps, phases and waits are told apart by whose loop they were of."""
    with rl_otel.role("trainer"), rl_otel.step(0), rl_otel.wait("batch"):
        pass
    with rl_otel.role("generator"), rl_otel.wait("buffer_full"):
        pass
    found = metrics.now()
    assert [point.attributes["rl.role"] for point in found["rl.loop.duration"]] == ["trainer"]
    assert {(p.attributes["rl.wait.reason"], p.attributes["rl.role"]) for p in found["rl.wait.duration"]} == {
        ("batch", "trainer"), ("buffer_full", "generator"),
    }  # fmt: skip
    assert {p.attributes["rl.role"] for p in found["rl.phase.duration"]} == {"trainer", "generator"}


def test_the_device_belongs_to_the_loop_that_works(recording: None) -> None:
    """Of phases of several roles the last stands for the GPU, and one that waits only where nothing else is open."""
    assert _runtime.active is not None
    gpu, seen = _runtime.active.gpu, []
    with rl_otel.step(0):
        seen.append(gpu._active())
        with rl_otel.train():
            with rl_otel.role("generator"), rl_otel.wait("buffer_full"):
                seen.append(gpu._active())
            with rl_otel.role("generator"), rl_otel.rollout():
                seen.append(gpu._active())
        with rl_otel.role("generator"), rl_otel.wait("weight_sync"):
            seen.append(gpu._active())
    seen.append(gpu._active())
    assert seen == [
        ("other", "driver"), ("train", "driver"), ("rollout", "generator"), ("wait", "generator"), ("idle", "driver"),
    ]  # fmt: skip
