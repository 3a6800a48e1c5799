"""The run's random numbers and our ids: neither depends on the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import needs, process

# A seeded loop that draws from every generator at hand, re-seeding for each trajectory as in-process engines do.
# It runs once for each argument, which gives a run folder and settings, in a child forked before rl_otel is imported.
LOOP = """
    import asyncio, hashlib, json, os, random, sys

    TORCH = sys.argv[1] == "torch"
    if TORCH:
        import numpy, torch

    def seed(n):
        random.seed(n)
        if TORCH:
            numpy.random.seed(n)
            torch.manual_seed(n)

    def draw():
        drawn = [random.random(), random.getrandbits(64)]
        return drawn + ([float(numpy.random.rand()), float(torch.rand(()))] if TORCH else [])

    def states():
        found = [random.getstate()]
        if TORCH:
            found += [str(numpy.random.get_state(legacy=False)), torch.get_rng_state().tolist()]
        return hashlib.sha256(repr(found).encode()).hexdigest()

    def main(run_dir):
        import rl_otel
        ids, drawn = [], []
        if run_dir:
            rl_otel.configure(run_dir=run_dir)

        def keep(span):
            ids.append([span.trace_id, span.span_id])

        async def play(n):
            with rl_otel.trajectory(group=0, sample=n, detached=n % 2 == 1) as trajectory:
                keep(trajectory)
                with rl_otel.generate() as generation:
                    keep(generation)
                    seed(42)
                    drawn.append(draw())
                    generation.record(output_tokens=random.randrange(100))
                await asyncio.sleep(0)
                with rl_otel.env_step("toy") as env_step:
                    keep(env_step)
                    drawn.append(draw())
                    env_step.record(reward=random.random())

        async def collect():
            await asyncio.gather(*map(play, range(8)))

        seed(42)
        for i in range(2):
            with rl_otel.step(i) as step:
                keep(step)
                with rl_otel.rollout() as rollout:
                    keep(rollout)
                    asyncio.run(collect())
                with rl_otel.train() as train:
                    keep(train)
                    drawn.append(draw())
                step.record(loss=drawn[-1][0])
        if run_dir:
            from opentelemetry import trace
            with trace.get_tracer("library").start_as_current_span("theirs") as span:
                context = span.get_span_context()
                ids.append([f"{context.trace_id:032x}", f"{context.span_id:016x}"])
        rl_otel.flush(0.2)
        return {"ids": ids, "drawn": drawn, "states": states()}

    for argument in sys.argv[2:]:
        run_dir, settings = json.loads(argument)
        if os.fork() == 0:
            os.environ.update(settings)
            os.write(1, json.dumps(main(run_dir)).encode() + b"\\n")
            os._exit(0)
        assert os.wait()[1] == 0
"""

SETTINGS: dict[str, dict[str, str]] = {
    "on": {},
    "sampled": {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
    "sampled off": {"OTEL_TRACES_SAMPLER": "always_off"},
    "dead port": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    "disabled": {"OTEL_SDK_DISABLED": "true"},
    "no exporter": {"OTEL_TRACES_EXPORTER": "none"},
}


def runs(kind: str, *runs: tuple[str, dict[str, str]], timeout: float = 20.0) -> list[dict[str, Any]]:
    # Python 3.12 warns of a fork beside threads, and numeric libraries start theirs on import.
    alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = process.run(LOOP, kind, *map(json.dumps, runs), env=alone, timeout=timeout)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_ids_are_distinct_whatever_is_seeded() -> None:
    """Runs with the same seeds, re-seeding in every trajectory, share no trace id and no span id."""
    first, second = runs("plain", ("first", {}), ("second", {}))
    spans = [span for found in (first, second) for _, span in found["ids"]]
    assert len(spans) == len(set(spans)) == 2 * (2 * (3 + 8 * 3) + 1)
    assert not {trace for trace, _ in first["ids"]} & {trace for trace, _ in second["ids"]}
    assert len({trace for trace, _ in first["ids"]}) == 2 + 2 * 4 + 1  # steps, detached trajectories, the library's
    assert all(len(span) == 16 and set(span) != {"0"} for span in spans)


@pytest.mark.once
@pytest.mark.parametrize("kind", ["plain", pytest.param("torch", marks=[needs.torch, needs.numpy])])
def test_tracing_changes_no_random_number(kind: str) -> None:
    """With tracing off, on, sampled or sending, a seeded run draws the same and leaves its generators the same."""
    plain, *traced = runs(kind, ("", {}), *(("runs", settings) for settings in SETTINGS.values()), timeout=100)
    assert len(plain["drawn"]) == 2 * (8 * 2 + 1)
    for how, found in zip(SETTINGS, traced, strict=True):
        assert bool(found["ids"][0][0]) == (how != "disabled")
        assert found["drawn"] == plain["drawn"], how
        assert found["states"] == plain["states"], how


def test_a_fork_does_not_repeat_the_ids_of_its_parent() -> None:
    """Two children forked from one traced process draw ids of their own."""
    script = """
        import os, rl_otel
        from rl_otel import _ids
        first = _ids.span_id().hex()
        for _ in range(2):
            if os.fork() == 0:
                os.write(1, f"{_ids.trace_id().hex()} {_ids.span_id().hex()} ".encode())
                os._exit(0)
            os.wait()
        print(first, _ids.trace_id().hex(), _ids.span_id().hex())
    """
    ids = process.run(script).stdout.split()
    assert len(ids) == len(set(ids)) == 7
