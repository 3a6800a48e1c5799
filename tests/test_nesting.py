"""Random programs of nested, concurrent and overlapping spans, against a model of what the trace must be."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace

import rl_otel
from rl_otel.testing import capture

if TYPE_CHECKING:
    from rl_otel.testing import Traces

LANES = 4  # tasks or threads that run side by side, each with a context of its own


@dataclasses.dataclass
class Node:
    """A span of the model."""

    name: str
    parent: Node | None
    handle: Any
    ended: bool = False

    @property
    def nearest(self) -> Node | None:
        node: Node | None = self
        while node is not None and node.ended:
            node = node.parent
        return node

    @property
    def root(self) -> Node:
        return self if self.parent is None else self.parent.root


class Model:
    """Opens and ends spans in several contexts, and knows what the recorded trace must look like."""

    def __init__(self) -> None:
        self.contexts = [contextvars.Context()]
        self.current: list[Node | None] = [None]
        self.nodes: list[Node] = []

    def fork(self, lane: int) -> None:
        """A task or thread begins with what is current in `lane`."""
        self.contexts.append(self.contexts[lane].copy())
        self.current.append(self.current[lane])

    def open(self, lane: int, foreign: bool) -> None:
        around = self.current[lane]
        parent = around.nearest if around is not None else None
        # A library's spans know only OpenTelemetry's context; asking ours brings that up to date.
        self.contexts[lane].run(rl_otel.current)
        name = f"span{len(self.nodes)}"
        handle = self.contexts[lane].run(rl_otel.phase(name).start)
        if foreign:
            self.contexts[lane].run(self._library)
        node = Node(name, parent, handle)
        self.nodes.append(node)
        self.current[lane] = node

    def _library(self) -> None:
        with trace.get_tracer("library").start_as_current_span(f"of {rl_otel.current().name}"):
            pass

    def end(self, lane: int, which: int) -> None:
        """End any open span, from any context."""
        open_nodes = [node for node in self.nodes if not node.ended]
        if open_nodes:
            node = open_nodes[which % len(open_nodes)]
            self.contexts[lane].run(node.handle.end)
            node.ended = True

    def check_current(self) -> None:
        for context, node in zip(self.contexts, self.current, strict=True):
            nearest = node.nearest if node is not None else None
            assert context.run(rl_otel.current).name == (nearest.name if nearest else "")

    def check(self, traces: Traces) -> None:
        spans = {span.name: span for span in traces.spans if not span.foreign}
        assert len(spans) == len([span for span in traces.spans if not span.foreign])
        assert spans.keys() == {node.name for node in self.nodes if node.ended}
        for node in self.nodes:
            assert node.handle.trace_id == node.root.handle.trace_id
            if node.ended:
                span = spans[node.name]
                assert (span.trace_id, span.span_id) == (node.handle.trace_id, node.handle.span_id)
                assert span.parent_id == (node.parent.handle.span_id if node.parent else "")
                assert 0 < span.start <= span.end
                assert node.parent is None or node.parent.handle.began <= span.start
        for span in traces.spans:
            if span.foreign:
                around = next(node for node in self.nodes if f"of {node.name}" == span.name)
                assert (span.trace_id, span.parent_id) == (around.handle.trace_id, around.handle.span_id)
        assert len({node.handle.trace_id for node in self.nodes}) == len([n for n in self.nodes if n.parent is None])


actions = st.lists(
    st.tuples(st.sampled_from(["open", "library", "end", "end", "fork"]), st.integers(0, LANES - 1), st.integers(0, 9)),
    max_size=40,
)


@settings(max_examples=3 * settings().max_examples)
@given(actions)
def test_the_recorded_tree_is_the_models(program: list[tuple[str, int, int]]) -> None:
    """Opened and ended in any order and any context, each span is recorded once, under the nearest open ancestor."""
    model = Model()
    with capture() as traces:
        for action, lane, which in program:
            lane %= len(model.contexts)
            if action == "fork" and len(model.contexts) < LANES:
                model.fork(lane)
            elif action == "end":
                model.end(lane, which)
            else:
                model.open(lane, foreign=action == "library")
            model.check_current()
        model.check(traces)
        while any(not node.ended for node in model.nodes):
            model.end(0, 0)
        model.check_current()
        model.check(traces)


# A program is a tree: each node opens a span and runs its children, one after another or all at once, with pauses.
trees = st.recursive(
    st.builds(list),
    lambda inner: st.lists(st.tuples(st.sampled_from(["in turn", "tasks", "thread", "generator"]), inner), max_size=3),
    max_leaves=12,
)


class Playing:
    """Runs a tree of spans under asyncio and notes, by itself, who is whose parent."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}

    def opened(self, parent: str) -> Any:
        name = f"span{len(self.parents)}"
        self.parents[name] = parent
        return rl_otel.phase(name)

    async def play(self, tree: list[Any], parent: str) -> None:
        with self.opened(parent) as span:
            await asyncio.sleep(0)
            tasks = []
            for how, branch in tree:
                if how == "tasks":
                    tasks.append(asyncio.create_task(self.play(branch, span.name)))
                elif how == "thread":
                    await asyncio.to_thread(self.in_thread, branch, span.name)
                elif how == "generator":
                    await self.consume(branch, span.name)
                else:
                    await self.play(branch, span.name)
            await asyncio.gather(*tasks)
            assert rl_otel.current() is span

    def in_thread(self, tree: list[Any], parent: str) -> None:
        with self.opened(parent) as span:
            for _, branch in tree:
                self.in_thread(branch, span.name)

    async def consume(self, tree: list[Any], parent: str) -> None:
        """Run a tree between the values of a decorated generator and inside it, and leave it early."""
        opener = self.opened(parent)

        @opener
        async def values() -> Any:
            while True:
                for _, branch in tree:
                    await self.play(branch, opener.name)
                yield
                await asyncio.sleep(0)

        stream = values()
        async for _ in stream:
            await self.play([], parent)
            break
        await stream.aclose()


@given(trees)
def test_concurrent_programs_are_recorded_as_they_ran(tree: list[Any]) -> None:
    """Tasks, threads and generators side by side: every span once, under the span that its code ran in."""
    playing = Playing()
    with capture() as traces:
        with rl_otel.step(0):
            asyncio.run(playing.play(tree, "step"))
        names = {span.span_id: span.name for span in traces.spans}
        recorded = {span.name: names[span.parent_id] for span in traces.spans if span.parent_id}
        assert recorded == playing.parents
        assert len(traces.spans) == len(playing.parents) + 1
        assert {span.trace_id for span in traces.spans} == {traces.one("step").trace_id}
