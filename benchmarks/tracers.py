"""The same rollout for each side: a step, its rollout, trajectories, and calls with six attributes.

The attributes of a call are the same on all sides when they arrive. Where an API takes them at the start, which is
its cheapest way, they are given at the start. Endpoint and queue come from `OTEL_*` variables.
"""
# ruff: noqa: D102 - the class that the others inherit from says what each method does

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager as Context
from contextlib import nullcontext
from typing import Any


def nothing() -> None:
    """What happens inside a call where only the call is measured."""


class Nothing:
    """The run without spans."""

    def step(self, index: int) -> Context[Any]:
        """Open the root of a trace."""
        return nullcontext()

    def rollout(self) -> Context[Any]:
        """Open the rollout of a step."""
        return nullcontext()

    def trajectory(self) -> Context[Any]:
        """Open a trajectory of a rollout."""
        return nullcontext()

    def env_step(self, turn: int, inside: Callable[[], None] = nothing) -> None:
        """Trace `inside` as a step of the environment."""
        inside()

    def generate(self, turn: int) -> None:
        """Trace a generate call in which nothing happens."""

    async def awaiting(self, turn: int, inside: Awaitable[None]) -> None:
        """Trace `inside` as a generate call."""
        await inside

    def flush(self) -> None:
        """Deliver what has ended."""


class RlOtel(Nothing):
    """rl_otel, by its public API."""

    def __init__(self, trace_budget: int | None = None) -> None:
        import rl_otel

        rl_otel.configure("bench", trace_budget=trace_budget)
        self.step, self.rollout, self.trajectory = rl_otel.step, rl_otel.rollout, rl_otel.trajectory
        self._env_step, self._generate, self._flush = rl_otel.env_step, rl_otel.generate, rl_otel.flush

    def env_step(self, turn: int, inside: Callable[[], None] = nothing) -> None:
        with self._env_step("swe") as span:
            inside()
            span.record(reward=0.5, terminated=False, truncated=False)

    def generate(self, turn: int) -> None:
        with self._generate() as span:
            span.record(input_tokens=812, output_tokens=128)

    async def awaiting(self, turn: int, inside: Awaitable[None]) -> None:
        with self._generate() as span:
            await inside
            span.record(input_tokens=812, output_tokens=128)

    def flush(self) -> None:
        self._flush(60)


class Sdk(Nothing):
    """OpenTelemetry's SDK with its batch processor and its OTLP http exporter."""

    def __init__(self) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        provider = TracerProvider(resource=Resource.create({"service.name": "bench"}))
        provider.add_span_processor(self._processor())
        self._flush = provider.force_flush
        self._open = provider.get_tracer("bench").start_as_current_span

    def _processor(self) -> Any:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        return BatchSpanProcessor(OTLPSpanExporter())

    def _span(self, name: str, attributes: dict[str, Any]) -> Context[Any]:
        return self._open(name, attributes=attributes)

    def step(self, index: int) -> Context[Any]:
        return self._span("step", {"rl.step": index})

    def rollout(self) -> Context[Any]:
        return self._span("rollout", {"rl.step": 1})

    def trajectory(self) -> Context[Any]:
        return self._span("trajectory", {"rl.step": 1})

    def env_step(self, turn: int, inside: Callable[[], None] = nothing) -> None:
        attributes = {
            "rl.step": 1,
            "rl.turn": turn,
            "rl.environment.name": "swe",
            "rl.env.reward": 0.5,
            "rl.env.terminated": False,
            "rl.env.truncated": False,
        }
        with self._span("env.step", attributes):
            inside()

    def generate(self, turn: int) -> None:
        with self._span("generate", _generation(turn)):
            pass

    async def awaiting(self, turn: int, inside: Awaitable[None]) -> None:
        with self._span("generate", _generation(turn)):
            await inside

    def flush(self) -> None:
        self._flush(60_000)


class Fastotel(Sdk):
    """The SDK's spans, batched, encoded and sent by fastotel."""

    def _processor(self) -> Any:
        from fastotel import OTLPSpanProcessor

        return OTLPSpanProcessor()


class NemoLens(Sdk):
    """nemo-lens with its OTLP http exporter."""

    def __init__(self) -> None:
        from nemo.lens import NemoLensConfig, managed_span, setup_telemetry
        from opentelemetry import trace

        setup_telemetry(NemoLensConfig(enabled=True, span_groups="all", metrics_enabled=False))
        self._managed = managed_span
        self._flush = trace.get_tracer_provider().force_flush

    def _span(self, name: str, attributes: dict[str, Any]) -> Context[Any]:
        return self._managed("step", name, **attributes)


def _generation(turn: int) -> dict[str, Any]:
    return {
        "rl.step": 1,
        "rl.turn": turn,
        "gen_ai.operation.name": "chat",
        "rl.generate.purpose": "policy",
        "gen_ai.usage.input_tokens": 812,
        "gen_ai.usage.output_tokens": 128,
    }


TRACERS: dict[str, type[Nothing]] = {
    "none": Nothing,
    "rl_otel": RlOtel,
    "SDK": Sdk,
    "fastotel": Fastotel,
    "nemo-lens": NemoLens,
}
