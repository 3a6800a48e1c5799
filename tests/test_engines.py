"""Inference servers: what vLLM and SGLang record of a request stands beneath the generate that made it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pkgutil
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import rl_otel
from rl_otel._budget import in_share
from tests import engine, needs
from tests.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.engine import Engine
    from tests.otlp import ReceivedSpan

    Inject = Callable[[dict[str, str]], dict[str, str]]

ASKED: dict[str, Any] = {"model": "qwen3-8b", "messages": [{"role": "user", "content": "2 + 2"}]}
LATENCY = ("e2e", "time_in_model_decode", "time_in_model_inference", "time_in_model_prefill", "time_to_first_token")
AT_ONCE = 100


@pytest.fixture(scope="module")
def back_end() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def vllm(back_end: Receiver) -> Iterator[Engine]:
    with engine.running(engine.VLLM, back_end.http) as server:
        yield server


@pytest.fixture(scope="module")
def sglang(back_end: Receiver) -> Iterator[Engine]:
    with engine.running(engine.SGLANG, back_end.http) as server:
        yield server


@pytest.fixture(scope="module")
def deaf(back_end: Receiver) -> Iterator[Engine]:
    with engine.running(engine.DEAF, back_end.http) as server:
        yield server


class Sent:
    """The spans that one trace has in the back end."""

    def __init__(self, back_end: Receiver, server: Engine, trace_id: str) -> None:
        delivered = rl_otel.shutdown(timeout=30.0)
        assert (bool(delivered), delivered.pending, delivered.dropped) == (True, 0, 0)
        server.flush()
        self.spans = [span for span in back_end.spans if span.proto.trace_id.hex() == trace_id]
        self.by_id = {span.proto.span_id: span for span in self.spans}
        assert len(self.by_id) == len(self.spans), "a span was sent twice"

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def requests(self) -> dict[str, ReceivedSpan]:
        """Return what an engine says of each request, by the request's name."""
        found = [span for span in self.spans if "gen_ai.latency.e2e" in span.attributes]
        assert len({span.attributes["gen_ai.request.id"] for span in found}) == len(found)
        return {span.attributes["gen_ai.request.id"]: span for span in found}

    def path(self, span: ReceivedSpan) -> list[str]:
        """Return the names from the root down to a span."""
        names = [span.name]
        while parent := span.proto.parent_span_id:
            span = self.by_id[parent]
            names.append(span.name)
        return names[::-1]


# --- None is mixed up -------------------------------------------------------------------------------------------------


def answer_of(server: Engine, name: str, together: int = 1) -> Any:
    """Ask as a program does that has nothing but the standard library."""
    headers = {"content-type": "application/json", "x-request-id": name, "x-together": str(together)}
    with contextlib.closing(HTTPConnection(urlsplit(server.url).netloc, timeout=engine.PATIENCE)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(ASKED), rl_otel.context.inject(headers))
        return json.loads(connection.getresponse().read())


def ask(server: Engine, name: str, together: int = 1) -> None:
    with rl_otel.generate() as generation:
        generation.set_attribute("request", name)
        answer_of(server, name, together)


def in_threads(server: Engine) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(rl_otel.bind(lambda n: ask(server, f"thread {n}", AT_ONCE)), range(AT_ONCE)))


def in_tasks(server: Engine) -> None:
    import aiohttp

    async def call(session: aiohttp.ClientSession, n: int) -> None:
        name = f"task {n}"
        with rl_otel.generate() as generation:
            generation.set_attribute("request", name)
            headers = rl_otel.context.inject({"x-request-id": name, "x-together": str(AT_ONCE)})
            async with session.post(f"{server.url}/v1/chat/completions", json=ASKED, headers=headers) as answer:
                assert (await answer.json())["id"] == f"chatcmpl-{name}"

    async def calls() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(call(session, n) for n in range(AT_ONCE)))

    asyncio.run(calls())


@pytest.mark.parametrize("at_once", [in_threads, pytest.param(in_tasks, marks=needs.aiohttp)])
def test_a_hundred_calls_at_once_each_have_their_own_span_of_vllm(
    vllm: Engine, back_end: Receiver, at_once: Callable[[Engine], None]
) -> None:
    """Of 100 requests in flight together, each one's span in the engine is the child of the generate that made it."""
    rl_otel.configure(endpoint=back_end.http)
    with rl_otel.step(0) as step, rl_otel.rollout():
        at_once(vllm)
    sent = Sent(back_end, vllm, step.trace_id)
    ours, theirs = {span.attributes["request"]: span for span in sent.named("generate")}, sent.requests()
    assert len(ours) == AT_ONCE
    assert theirs.keys() == ours.keys()
    assert all(span.proto.parent_span_id == ours[name].proto.span_id for name, span in theirs.items())
    one = next(iter(theirs.values()))
    assert (one.name, one.resource["service.name"]) == ("llm_request", "vllm")
    assert {f"gen_ai.latency.{name}" for name in (*LATENCY, "time_in_queue")} <= one.attributes.keys()


def test_a_hundred_calls_at_once_each_have_their_own_spans_of_sglang(sglang: Engine, back_end: Receiver) -> None:
    """SGLang's request, its scheduler and its stages stand beneath the generate, queue, prefill and decode apart."""
    rl_otel.configure(endpoint=back_end.http)
    with rl_otel.step(0) as step, rl_otel.rollout():
        in_threads(sglang)
    sent = Sent(back_end, sglang, step.trace_id)
    ours, theirs = {span.attributes["request"]: span for span in sent.named("generate")}, sent.requests()
    assert len(ours) == AT_ONCE
    assert {name: span.proto.parent_span_id for name, span in theirs.items()} == {
        name: span.proto.span_id for name, span in ours.items()
    }
    assert {f"gen_ai.latency.{name}" for name in LATENCY} <= next(iter(theirs.values())).attributes.keys()
    for stage in ("prefill_waiting", "prefill_forward", "decode_forward"):
        paths = {tuple(sent.path(span)[:3]) for span in sent.named(stage)}
        assert len(sent.named(stage)) == AT_ONCE
        assert paths == {("step", "rollout", "generate")}


def test_of_trajectories_the_share_shown_in_detail_has_the_engine_s_spans(vllm: Engine, back_end: Receiver) -> None:
    """An engine is asked for its spans in one trajectory of 16, whose own calls are shown wherever there is room."""
    rl_otel.configure(endpoint=back_end.http)
    shares: dict[str, bool] = {}
    with rl_otel.step(0) as step, rl_otel.rollout():
        for n in range(48):
            with rl_otel.trajectory(f"share {n}") as trajectory:
                ask(vllm, f"share {n}")
            shares[f"share {n}"] = in_share(bytes.fromhex(trajectory.span_id))
    sent = Sent(back_end, vllm, step.trace_id)
    assert sent.requests().keys() == {name for name, shared in shares.items() if shared}
    assert {tuple(sent.path(span)) for span in sent.requests().values()} <= {
        ("step", "rollout", "trajectory", "generate", "llm_request")
    }
    flags = {name: dict(headers)["traceparent"][-2:] for name, headers in vllm.headers().items() if name in shares}
    assert flags == {name: f"0{shared:d}" for name, shared in shares.items()}


# --- Where there is nothing to add ------------------------------------------------------------------------------------


def test_a_step_that_is_not_sent_asks_no_engine_for_spans(
    vllm: Engine, back_end: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a step that the sampler leaves out the engine records nothing either: its traceparent says so."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    rl_otel.configure(endpoint=back_end.http)
    with rl_otel.step(0) as step, rl_otel.rollout():
        ask(vllm, "left out")
    assert Sent(back_end, vllm, step.trace_id).spans == []
    parent = dict(vllm.headers()["left out"])["traceparent"]
    assert (parent[3:35], parent[-3:]) == (step.trace_id, "-00")


def test_a_server_that_knows_nothing_of_tracing_changes_nothing(deaf: Engine, vllm: Engine, back_end: Receiver) -> None:
    """Its answers are those that it gives to anybody, and the generate is there without anything beneath."""
    before = answer_of(deaf, "same")
    rl_otel.configure(endpoint=back_end.http)
    with rl_otel.step(0) as step, rl_otel.rollout(), rl_otel.generate():
        assert answer_of(deaf, "same") == before
    sent = Sent(back_end, vllm, step.trace_id)
    assert sorted(span.name for span in sent.spans) == ["generate", "rollout", "step"]


def test_where_nothing_is_recorded_a_request_goes_as_it_was(vllm: Engine) -> None:
    """Without `configure()` no header is added, and no answer differs."""
    with rl_otel.step(0), rl_otel.rollout(), rl_otel.generate():
        assert answer_of(vllm, "untraced")["id"] == "chatcmpl-untraced"
    assert not dict(vllm.headers()["untraced"]).keys() & {"traceparent", "tracestate", "baggage"}


# --- Any client -------------------------------------------------------------------------------------------------------


def by_requests(server: Engine, name: str, inject: Inject = rl_otel.context.inject) -> None:
    import requests

    headers = inject({"x-request-id": name})
    requests.post(
        f"{server.url}/v1/chat/completions", json=ASKED, headers=headers, timeout=engine.PATIENCE
    ).raise_for_status()


def by_httpx(server: Engine, name: str, inject: Inject = rl_otel.context.inject) -> None:
    import httpx

    headers = inject({"x-request-id": name})
    httpx.post(f"{server.url}/v1/chat/completions", json=ASKED, headers=headers).raise_for_status()


def by_a_hook_of_httpx(server: Engine, name: str) -> None:
    import httpx

    def hand_on(request: httpx.Request) -> None:
        rl_otel.context.inject(request.headers)

    with httpx.Client(base_url=server.url, event_hooks={"request": [hand_on]}) as client:
        client.post("/v1/chat/completions", json=ASKED, headers={"x-request-id": name}).raise_for_status()


def by_openai(server: Engine, name: str) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        headers = rl_otel.context.inject({"x-request-id": name})
        answer = client.chat.completions.create(**ASKED, extra_headers=headers)
    assert answer.choices[0].message.content == f"to {name}"


def by_a_hook_of_openai(server: Engine, name: str) -> None:
    import openai

    async def hand_on(request: Any) -> None:
        rl_otel.context.inject(request.headers)

    async def call() -> None:
        http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [hand_on]})
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=http) as client:
            await client.chat.completions.create(**ASKED, extra_headers={"x-request-id": name})

    asyncio.run(call())


def by_aiohttp(server: Engine, name: str, inject: Inject = rl_otel.context.inject) -> None:
    import aiohttp

    async def call() -> None:
        headers = inject({"x-request-id": name})
        async with (
            aiohttp.ClientSession(server.url) as session,
            session.post("/v1/chat/completions", json=ASKED, headers=headers) as answer,
        ):
            answer.raise_for_status()

    asyncio.run(call())


@pytest.mark.parametrize(
    "client",
    [
        answer_of,
        pytest.param(by_requests, marks=needs.requests),
        pytest.param(by_httpx, marks=needs.httpx),
        pytest.param(by_a_hook_of_httpx, marks=needs.httpx),
        pytest.param(by_openai, marks=needs.openai),
        pytest.param(by_a_hook_of_openai, marks=needs.openai),
        pytest.param(by_aiohttp, marks=needs.aiohttp),
    ],
)
def test_any_client_hands_the_context_on(
    vllm: Engine, back_end: Receiver, client: Callable[[Engine, str], object]
) -> None:
    """`inject` into the headers of whatever client there is puts the engine's span beneath the generate."""
    rl_otel.configure(endpoint=back_end.http)
    with rl_otel.step(0) as step, rl_otel.rollout(), rl_otel.generate():
        client(vllm, client.__name__)
    (span,) = (sent := Sent(back_end, vllm, step.trace_id)).named("llm_request")
    assert span.attributes["gen_ai.request.id"] == client.__name__
    assert sent.path(span) == ["step", "rollout", "generate", "llm_request"]


# --- Beside OpenTelemetry's own instrumentation of clients ------------------------------------------------------------


def _instrumentor(package: str, name: str, client: Callable[..., None]) -> Any:
    module = f"opentelemetry.instrumentation.{package}"
    return pytest.param(f"{module}:{name}", client, marks=pytest.mark.needs(part=module), id=package)


@pytest.mark.once  # the instrumentors go with the newest SDK alone
@pytest.mark.parametrize("inject", [rl_otel.context.inject, dict], ids=["injected", "by itself"])
@pytest.mark.parametrize(
    ("instrumentor", "client"),
    [
        _instrumentor("requests", "RequestsInstrumentor", by_requests),
        _instrumentor("httpx", "HTTPXClientInstrumentor", by_httpx),
        _instrumentor("aiohttp_client", "AioHttpClientInstrumentor", by_aiohttp),
    ],
)
def test_an_instrumented_client_s_span_stands_between(
    vllm: Engine, back_end: Receiver, instrumentor: str, client: Callable[..., None], inject: Inject
) -> None:
    """Its client span is the engine's parent, no header is there twice, and what rl_otel sends itself is not traced."""
    rl_otel.configure(endpoint=back_end.http)
    instrumenting = pkgutil.resolve_name(instrumentor)()
    instrumenting.instrument()
    request = f"{instrumentor} {inject.__name__}"
    try:
        with rl_otel.step(0) as step, rl_otel.rollout(), rl_otel.generate():
            client(vllm, request, inject)
        sent = Sent(back_end, vllm, step.trace_id)
    finally:
        instrumenting.uninstrument()
    (span,) = sent.named("llm_request")
    assert sent.path(span) == ["step", "rollout", "generate", "POST", "llm_request"]
    assert [header for header, _ in vllm.headers()[request]].count("traceparent") == 1
    posts = [span for span in back_end.spans if span.name == "POST"]
    assert all(span.proto.parent_span_id for span in posts), "what rl_otel sent itself was traced"
