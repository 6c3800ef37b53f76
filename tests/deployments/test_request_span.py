"""Traces through a gateway and a verifier in this process, as a real OTLP receiver sees them."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from cluster.telemetry.tracing import Tracing
from cluster.telemetry.tracing_config import TracingConfig
from deployments.auth import KeyRing
from deployments.client import LocalClient
from deployments.edge import RequestContext
from deployments.routes import build_http_app
from deployments.service import GatewaySettings, Service
from deployments.tracing import tracer_for
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from tests.deployments.fake_engine import ByteTokenizer, FakeEngine
from tests.deployments.http_helpers import MESSAGES, events_of
from tests.otlp import OtlpReceiver, ReceivedSpan, otlp_receiver

pytestmark = pytest.mark.anyio

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY = {"messages": MESSAGES, "max_tokens": 9, "seed": 7, "temperature": 0.5}


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


class Traced:
    """A gateway and a verifier that trace."""

    def __init__(self, http: httpx.AsyncClient, tracings: list[Tracing], core: VerifierCore, receiver: OtlpReceiver):
        self.http, self.core, self._tracings, self._receiver = http, core, tracings, receiver

    def spans(self) -> dict[str, list[ReceivedSpan]]:
        for tracing in self._tracings:
            tracing.flush()
        found: dict[str, list[ReceivedSpan]] = {"gateway": [], "verifier": []}
        for span in self._receiver.spans:
            found[span.component].append(span)
        return found


@asynccontextmanager
async def traced(
    receiver: OtlpReceiver, engine: FakeEngine | None = None, keys: KeyRing | None = None, **values: Any
) -> AsyncIterator[Traced]:
    config = TracingConfig(endpoint=receiver.url, export_interval_s=60.0, **values)
    gateway = Tracing(config, component="gateway", replica="g")
    verifier = Tracing(config, component="verifier", replica="v")
    fake = engine or FakeEngine()
    core = VerifierCore(VerifierConfig(), lambda: fake, tracing=verifier)
    await core.start()
    client = LocalClient(core)
    service = Service(
        client=client,
        card=await client.card(),
        tokenizer=ByteTokenizer(),
        settings=GatewaySettings(max_resumes=0),
        keys=keys or KeyRing(),
        tracer=tracer_for(gateway, "fake/bytes"),
    )
    transport = httpx.ASGITransport(app=build_http_app(service))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield Traced(http, [gateway, verifier], core, receiver)
    finally:
        service.shaper.close()
        await core.stop()
        gateway.stop()
        verifier.stop()


async def test_a_request_is_one_trace_from_gateway_to_verifier(receiver: OtlpReceiver) -> None:
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "vendor=1", "x-request-id": "mine"}
    async with traced(receiver) as server:
        answer = await server.http.post("/v1/chat/completions", json=BODY | {"n": 2}, headers=headers)
        spans = server.spans()
    assert answer.status_code == 200
    (gateway,), choices = spans["gateway"], spans["verifier"]
    assert (gateway.name, gateway.kind, gateway.parent_id) == ("chat fake/bytes", 2, PARENT_ID)
    assert answer.headers["traceparent"] == f"00-{TRACE_ID}-{gateway.span_id}-01"
    assert {span.trace_id for span in (gateway, *choices)} == {TRACE_ID}
    assert {span.trace_state for span in (gateway, *choices)} == {"vendor=1"}
    assert [(span.name, span.kind, span.parent_id) for span in choices] == [("verifier.choice", 1, gateway.span_id)] * 2
    assert [span.attributes["outrider.request_id"].rpartition("-")[2] for span in choices] == ["0", "1"]
    assert all(gateway.start_ns <= span.start_ns <= span.end_ns <= gateway.end_ns for span in choices)


async def test_the_gateways_span_says_what_was_asked_and_what_came(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as server:
        body = BODY | {"n": 2, "top_k": 5, "presence_penalty": 0.5, "stop": ["never"], "stream": True}
        response = await server.http.post("/v1/chat/completions", json=body)
        events_of(response)
        (span,) = server.spans()["gateway"]
    found = dict(span.attributes)
    assert found.pop("gen_ai.response.id").startswith("chatcmpl-")
    assert 0 <= found.pop("gen_ai.response.time_to_first_chunk") < 10
    assert found.pop("outrider.request_id")
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "outrider",
        "gen_ai.request.model": "fake/bytes",
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": 5,
        "gen_ai.request.presence_penalty": 0.5,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "fake/bytes",
        "gen_ai.response.finish_reasons": ["length", "length"],
        "gen_ai.usage.input_tokens": span.attributes["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": 18,
        "gen_ai.usage.cache_read.input_tokens": 1,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "outrider.tenant": "",
        "outrider.pool": response.headers["x-outrider-pool"],
        "outrider.routing_reason": response.headers["x-outrider-routing-reason"],
        "outrider.domain": span.attributes["outrider.domain"],
    }
    assert not span.is_error


async def test_the_verifiers_span_says_what_speculation_did(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as server:
        await server.http.post("/v1/chat/completions", json=BODY)
        (span,) = server.spans()["verifier"]
    assert (
        span.attributes.items()
        >= {
            "outrider.finish_reason": "length",
            "outrider.output_tokens": 9,
            "outrider.resumed_tokens": 0,
            "outrider.role": "speculative",
            "outrider.preemptions": 0,
            "outrider.spec.rounds": 3,
            "outrider.spec.drafts": 3,
            "outrider.spec.draft_tokens": 12,
            "outrider.spec.accepted_tokens": 6,
        }.items()
    )
    assert [name for name, _, _ in span.events] == ["outrider.queue", "outrider.decode"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/speculative-completions"])
async def test_the_other_generation_routes_are_traced_too(receiver: OtlpReceiver, path: str) -> None:
    async with traced(receiver) as server:
        body = {"prompt": "hi", "max_tokens": 4}
        assert (await server.http.post(path, json=body)).status_code == 200
        (span,) = server.spans()["gateway"]
    assert span.name == ("text_completion fake/bytes" if path == "/v1/completions" else "chat fake/bytes")
    assert span.attributes["http.route"] == path


async def test_other_routes_and_requests_without_a_key_leave_no_trace(receiver: OtlpReceiver) -> None:
    async with traced(receiver, keys=KeyRing.of(["long-enough-key"])) as server:
        assert (await server.http.get("/health")).status_code == 200
        answer = await server.http.post("/v1/chat/completions", json=BODY)
        assert (answer.status_code, answer.headers.get("traceparent")) == (401, None)
        assert server.spans() == {"gateway": [], "verifier": []}


async def test_no_text_is_in_a_span_unless_it_is_asked_for(receiver: OtlpReceiver) -> None:
    body = BODY | {"messages": [{"role": "user", "content": "my secret"}], "stop": ["secret stop"]}
    async with traced(receiver) as server:
        await server.http.post("/v1/chat/completions", json=body)
        assert "secret" not in str(server.spans())
        assert "quick" not in str(server.spans())


@pytest.mark.parametrize("stream", [True, False])
async def test_texts_are_captured_where_that_is_configured(receiver: OtlpReceiver, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "my ☃"}], "max_tokens": 9, "stop": ["never"], "stream": stream}
    async with traced(receiver, capture_content=True) as server:
        await server.http.post("/v1/chat/completions", json=body)
        (span,) = server.spans()["gateway"]
    assert json.loads(span.attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "my ☃"}]}
    ]
    assert json.loads(span.attributes["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "The quick"}], "finish_reason": "length"}
    ]
    assert span.attributes["gen_ai.request.stop_sequences"] == ["never"]


async def test_captured_texts_are_cut_and_stay_valid_json(receiver: OtlpReceiver) -> None:
    async with traced(receiver, capture_content=True) as server:
        body = {"messages": [{"role": "user", "content": "\x01" * 40_000}, *MESSAGES], "max_tokens": 1}
        await server.http.post("/v1/chat/completions", json=body)
        (span,) = server.spans()["gateway"]
    first, second = json.loads(span.attributes["gen_ai.input.messages"])
    assert len(first["parts"][0]["content"]) == 32_768
    assert second["parts"][0]["content"] == ""


async def test_a_refused_request_has_an_error_that_is_not_the_servers(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as server:
        answer = await server.http.post("/v1/chat/completions", json=BODY | {"n": 10_000})
        (span,) = server.spans()["gateway"]
    assert answer.status_code == 400
    assert answer.headers["traceparent"].split("-")[2] == span.span_id
    assert span.attributes["error.type"] == answer.json()["error"]["code"]
    assert span.attributes["http.response.status_code"] == 400
    assert not span.is_error


async def test_a_dead_engine_is_an_error_in_both_spans(receiver: OtlpReceiver) -> None:
    async with traced(receiver, engine=FakeEngine(crash_at_step=2)) as server:
        response = await server.http.post("/v1/chat/completions", json=BODY | {"stream": True, "max_tokens": 50})
        assert '"error"' in response.text
        spans = server.spans()
    (gateway,), (choice,) = spans["gateway"], spans["verifier"]
    assert gateway.is_error and choice.is_error
    assert gateway.attributes["error.type"] == "engine_dead"
    assert choice.attributes["error.type"] == "EngineDeadError"
    assert [attributes["outrider.resume.result"] for _, _, attributes in gateway.events] == ["gave_up"]


async def test_requests_that_are_not_sampled_cost_no_span_and_carry_no_context(receiver: OtlpReceiver) -> None:
    engine = FakeEngine()
    async with traced(receiver, engine=engine, sample_ratio=0.0) as server:
        answer = await server.http.post("/v1/chat/completions", json=BODY)
        flags = int(answer.headers["traceparent"].rpartition("-")[2], 16)
        assert not flags & 1
        assert server.spans() == {"gateway": [], "verifier": []}
        assert server.core._spans is not None and server.core._spans.num_open == 0
    assert [request.trace for request in engine.seen] == [b""]


async def test_each_choice_brings_its_own_context_to_the_engine(receiver: OtlpReceiver) -> None:
    engine = FakeEngine()
    async with traced(receiver, engine=engine) as server:
        await server.http.post("/v1/chat/completions", json=BODY | {"n": 3})
        choices = server.spans()["verifier"]
    assert [request.trace[16:24].hex() for request in engine.seen] == [span.span_id for span in choices]


async def test_seeds_of_64_bits_fit_into_a_span_and_give_the_same_text_again(receiver: OtlpReceiver) -> None:
    engine = FakeEngine()
    async with traced(receiver, engine=engine) as server:
        await server.http.post("/v1/chat/completions", json=BODY | {"seed": -3})
        (span,) = server.spans()["gateway"]
    assert span.attributes["gen_ai.request.seed"] == -3
    assert engine.seen[0].sampling.seed == (1 << 64) - 3


async def test_the_scrape_counts_spans(receiver: OtlpReceiver) -> None:
    async with traced(receiver) as server:
        await server.http.post("/v1/chat/completions", json=BODY)
        server.spans()
        text = (await server.http.get("/metrics")).text
    for component, replica in (("gateway", "g"), ("verifier", "v")):
        labels = f'component="{component}",replica="{replica}",result="exported"'
        assert f"outrider_trace_spans_total{{{labels}}} 1.0" in text


def test_a_client_that_hangs_up_is_no_error_of_the_servers(receiver: OtlpReceiver) -> None:
    tracing = Tracing(TracingConfig(endpoint=receiver.url), component="gateway", replica="g")
    tracer = tracer_for(tracing, "m")
    assert tracer is not None
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "scheme": "http", "headers": []}
    span = tracer.begin(scope, RequestContext(request_id="r", start_s=tracing._clock.now_s()))
    assert span is not None
    span.end(route="/v1/completions", status=499)
    tracing.stop()
    (received,) = receiver.spans
    assert received.attributes["error.type"] == "client_gone"
    assert "http.response.status_code" not in received.attributes
    assert not received.is_error
