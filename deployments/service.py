"""What the HTTP routes stand on: the model's constants, the verifiers, and the way from a body to an answer."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cluster.clock import Clock, MonotonicClock
from cluster.errors import InvalidRequestError, NotFoundError
from cluster.routing.policies import PolicyName
from cluster.routing.types import Route, RouteSnapshot
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from cluster.types import Request, SamplingParams
from deployments import wire
from deployments.auth import KeyRing
from deployments.chat_template import ChatRenderer
from deployments.client import VerifierClient
from deployments.codec import TextCodec, Tokenizer
from deployments.edge import CLIENT_GONE, ClientGoneError, RequestContext, context_of, until_disconnect
from deployments.generation import Generation, Pump
from deployments.limits import Limits
from deployments.prepare import Caller, Job, Preparer
from deployments.responses import Choice, full_response
from deployments.routing import Router
from deployments.schema_openai import ChatCompletionRequest

PING_TIMEOUT_S = 5.0
READY_TIMEOUT_S = 15.0
SERVE_MARGIN_S = 0.25
"""Our deadline comes this much before Ray Serve's for the same header, so that the answer has our form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        limits: bounds on requests.
        served_model_name: what clients call the model; None takes the engine's name.
        default_timeout_s: deadline of requests without the header; None for no deadline.
        keep_alive_s: idle time after which a stream carries a comment.
        routing: policy that chooses the pool on the OpenAI routes.
    """

    limits: Limits = field(default_factory=Limits)
    served_model_name: str | None = None
    default_timeout_s: float | None = None
    keep_alive_s: float = 15.0
    routing: PolicyName = "learned"


class Service:
    """One gateway, without HTTP routes and without Ray.

    Args:
        client: the verifiers.
        card: constants of their engine.
        tokenizer: the model's.
        settings: the gateway's.
        keys: API keys.
        replica: label in metrics.
        clock: for deadlines and durations.
        snapshot: tells what is known of the verifiers' pools; None where there are none.
    """

    def __init__(
        self,
        *,
        client: VerifierClient,
        card: wire.EngineCard,
        tokenizer: Tokenizer,
        settings: GatewaySettings,
        keys: KeyRing,
        replica: str = "0",
        clock: Clock | None = None,
        snapshot: Callable[[], RouteSnapshot] | None = None,
    ) -> None:
        self.client, self.card, self.settings, self.keys = client, card, settings, keys
        self.clock = clock or MonotonicClock()
        self.model = settings.served_model_name or card.model_id
        self.codec = TextCodec(tokenizer, card.vocab_size)
        self.renderer = ChatRenderer(tokenizer, settings.limits.template_timeout_s)
        self.preparer = Preparer(self.codec, card, settings.limits, self.model)
        self.metrics = MetricSet(names.GATEWAY_METRICS, {"gateway": replica})
        self.router = Router(settings.routing, card.max_model_len, snapshot)
        self.created = int(time.time())
        self.num_active = 0

    def check_model(self, model: str | None) -> None:
        """Refuse other models.

        Raises:
            NotFoundError: the name is not the served one.
        """
        if model not in (None, self.model, self.card.model_id):
            raise NotFoundError(
                f"the model {model!r:.200} does not exist; this server has {self.model!r}",
                param="model",
                code="model_not_found",
            )

    async def render(self, body: ChatCompletionRequest) -> list[int]:
        """The prompt ids of a conversation."""
        text = await self.renderer.render(
            body.messages,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            kwargs=body.chat_template_kwargs,
        )
        return await self.codec.encode(text, add_special_tokens=False)

    def timeout_s(self, request: HttpRequest) -> float | None:
        """Seconds that a request has.

        Raises:
            InvalidRequestError: the header is not a positive number.
        """
        header = request.headers.get("x-request-timeout-seconds")
        if header is None:
            return self.settings.default_timeout_s
        try:
            value = float(header)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e9:
            raise InvalidRequestError(
                "x-request-timeout-seconds must be a positive number of seconds",
                param="x-request-timeout-seconds",
                code="invalid_value",
            )
        return value - min(SERVE_MARGIN_S, value / 4)

    def generation(self, job: Job, request: HttpRequest) -> Generation:
        """A job on its way; nothing happens before it is read."""
        self.metrics.add(names.ROUTE_DECISIONS, 1, job.route.pool.value, job.route.reason.value)
        return Generation(
            job=job,
            client=self.client,
            codec=self.codec,
            clock=self.clock,
            timeout_s=self.timeout_s(request),
            keep_alive_s=self.settings.keep_alive_s,
        )

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count a request while it is in progress."""
        self.num_active += 1
        self.metrics.set(names.HTTP_ACTIVE, self.num_active)
        try:
            yield
        finally:
            self.num_active -= 1
            self.metrics.set(names.HTTP_ACTIVE, self.num_active)

    async def collect(self, generation: Generation, request: HttpRequest) -> list[Choice]:
        """All choices of a job, unless the client hangs up.

        Raises:
            RequestError: the request failed.
            ClientGoneError: the client hung up; the job is aborted.
        """
        with self.active():
            await until_disconnect(request.receive, asyncio.ensure_future(generation.collect()))
        self.note(generation, context_of(request))
        return generation.choices

    async def answer(self, job: Job, request: HttpRequest) -> Response:
        """The HTTP answer for a job, whole or as a stream.

        Raises:
            RequestError: the request failed before anything was sent.
        """
        generation = self.generation(job, request)
        headers = route_headers(job.route)
        if job.stream:
            with self.active():
                first = asyncio.ensure_future(generation.first())
                try:
                    await until_disconnect(request.receive, first)
                except ClientGoneError:
                    return Response(status_code=CLIENT_GONE)
            return EventResponse(self, generation, first.result(), headers)
        try:
            choices = await self.collect(generation, request)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(full_response(job, choices, generation.timing, self.codec), headers=headers)

    def note(self, generation: Generation, context: RequestContext) -> None:
        """Remember acceptance, and put counts (never texts) into the access log."""
        for choice in generation.choices:
            if choice.speculation is not None:
                self.router.acceptance.add(choice.speculation.num_accepted_tokens, choice.speculation.num_draft_tokens)
        context.log |= {
            "num_choices": len(generation.choices),
            "prompt_tokens": generation.choices[0].num_prompt_tokens,
            "completion_tokens": sum(choice.num_output_tokens for choice in generation.choices),
            "finish_reasons": [choice.finish_reason for choice in generation.choices],
        }

    async def check_ready(self) -> None:
        """Generate one token.

        Raises:
            RequestError: no verifier can.
        """
        sampling = SamplingParams(max_tokens=1, seed=0, temperature=0.0, ignore_eos=True)
        probe = Request(
            request_id=f"ready-{time.monotonic_ns()}", prompt_token_ids=(0,), sampling=sampling, priority=-1
        )
        call = wire.GenerateCall(requests=(probe,), timeout_s=READY_TIMEOUT_S)
        pump = Pump(self.client.generate(call))
        try:
            while await pump.next(READY_TIMEOUT_S) is not None:
                pass
        finally:
            await pump.close()

    def caller(self, request: HttpRequest) -> Caller:
        """Who asks."""
        context = context_of(request)
        return Caller(request_id=context.request_id, tenant=context.tenant)


def route_headers(route: Route) -> dict[str, str]:
    """Headers that tell where a request went."""
    return {"x-outrider-pool": route.pool.value, "x-outrider-routing-reason": route.reason.value}


class EventResponse(Response):
    """A stream of events that ends, and aborts its request, as soon as the client hangs up.

    Args:
        service: counts it as active.
        generation: the request.
        first: its first item, if it came in time.
        headers: of the answer.
    """

    media_type = "text/event-stream"

    def __init__(
        self, service: Service, generation: Generation, first: wire.Batch | None, headers: dict[str, str]
    ) -> None:
        super().__init__(headers=headers | {"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._service, self._generation, self._first = service, generation, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._service.active():
            try:
                await until_disconnect(receive, asyncio.ensure_future(self._send(send)))
            except ClientGoneError:
                scope["outrider.context"].status = CLIENT_GONE
            finally:
                await self._generation.close()
        self._service.note(self._generation, scope["outrider.context"])

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        events = self._generation.events(self._first)
        try:
            async for chunk in events:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await events.aclose()
