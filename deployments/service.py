"""What the HTTP routes stand on: the model's constants, the verifiers, and the way from a body to an answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse
from starlette.responses import Response

from cluster.clock import Clock, MonotonicClock
from cluster.errors import ConfigError, InvalidRequestError, NotFoundError, check_range
from cluster.grammar.limits import GrammarLimits
from cluster.routing.policies import PolicyName
from cluster.routing.types import Route, RouteSnapshot
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from cluster.types import Request, SamplingParams
from deployments import wire
from deployments.auth import KeyRing
from deployments.client import VerifierClient
from deployments.codec import TextCodec, Tokenizer
from deployments.draining import Drain
from deployments.edge import CLIENT_GONE, ClientGoneError, RequestContext, context_of, until_disconnect
from deployments.event_response import EventResponse
from deployments.generation import Generation
from deployments.limits import Limits
from deployments.prepare import Caller, Job, Preparer
from deployments.pump import Pump
from deployments.responses import Choice, full_response
from deployments.routing import Router
from deployments.shaping import Shaper
from deployments.tool_calls.framing import ParserName

if TYPE_CHECKING:
    from deployments.request_span import RequestTracer

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
        max_resumes: how many verifiers a request may lose before it fails.
        stream_obfuscation: chunks of streams are padded where the request does not say.
        drain_timeout_s: how long the gateway may go on with its streams when it is removed.
        tool_call_parser: how calls are found in answers where the model is free to make them.
    """

    limits: Limits = field(default_factory=Limits)
    served_model_name: str | None = None
    default_timeout_s: float | None = None
    keep_alive_s: float = 15.0
    routing: PolicyName = "learned"
    max_resumes: int = 3
    stream_obfuscation: bool = False
    drain_timeout_s: float = 600.0
    tool_call_parser: ParserName = "auto"

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in ("keep_alive_s", "default_timeout_s", "drain_timeout_s"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ConfigError(field=name, value=value, allowed="seconds above 0")
        check_range("max_resumes", self.max_resumes, 0, 100)


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
        tracer: makes a span of each request; None for none.
        peers: the scrapes of the other gateways; None where there are none.
        grammar: bounds of the grammars of requests.
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
        tracer: "RequestTracer | None" = None,
        peers: Callable[[], Awaitable[list[str]]] | None = None,
        grammar: GrammarLimits | None = None,
    ) -> None:
        self.client, self.card, self.settings, self.keys = client, card, settings, keys
        self.clock = clock or MonotonicClock()
        self.model = settings.served_model_name or card.model_id
        self.codec = TextCodec(tokenizer, card.vocab_size)
        self.shaper = Shaper(
            tokenizer,
            self.codec,
            vocab_size=card.vocab_size,
            limits=settings.limits,
            parser=settings.tool_call_parser,
            grammar=grammar or GrammarLimits(),
        )
        self.preparer = Preparer(self.codec, card, settings.limits, self.model)
        self.metrics = MetricSet(names.GATEWAY_METRICS, {"gateway": replica})
        self.router = Router(settings.routing, card.max_model_len, snapshot)
        self.drain = Drain(self.metrics, self.clock)
        self.created = int(time.time())
        self.num_active = 0
        self.tracer, self._peers = tracer, peers
        self.extra_metrics: tuple[MetricSet, ...] = ()

    def metric_sets(self) -> tuple[MetricSet, ...]:
        """What is recorded here."""
        traced = () if self.tracer is None else (self.tracer.metrics,)
        return (self.metrics, *traced, *self.extra_metrics)

    async def scrapes(self) -> list[str]:
        """What is recorded here, in all verifiers, in the other gateways, and in whatever else is deployed."""
        others = [self.client.metrics()] if self._peers is None else [self.client.metrics(), self._peers()]
        texts = [text for scrape in await asyncio.gather(*others) for text in scrape]
        return [*texts, *(metrics.render() for metrics in self.metric_sets())]

    def configure(self, settings: GatewaySettings) -> None:
        """Take other settings; requests in progress keep theirs, and an HTTP app made before keeps its limits."""
        self.settings = settings
        self.shaper.configure(settings.limits)
        self.preparer = Preparer(self.codec, self.card, settings.limits, self.model)
        self.router.policy = settings.routing

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
        """A job on its way; nothing happens before it is read.

        Raises:
            DrainingError: no new work is taken.
        """
        self.drain.check_work()
        self.metrics.add(names.ROUTE_DECISIONS, 1, job.route.pool.value, job.route.reason.value)
        span = context_of(request).span
        if span is not None:
            span.note_job(job)
        return Generation(
            job=job,
            client=self.client,
            codec=self.codec,
            clock=self.clock,
            timeout_s=self.timeout_s(request),
            keep_alive_s=self.settings.keep_alive_s,
            max_resumes=self.settings.max_resumes,
            on_resume=lambda reason, result: self.metrics.add(names.RESUMES, 1, reason, result),
            span=span,
            model=self.card.fingerprint,
            is_padded=self.settings.stream_obfuscation if job.obfuscation is None else job.obfuscation,
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
            work = asyncio.ensure_future(self.drain.bounded(generation.collect()))
            await until_disconnect(request.receive, work)
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
                first = asyncio.ensure_future(self.drain.bounded(generation.first()))
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
            if (stats := choice.speculation) is not None:
                self.router.acceptance.add(stats.num_accepted_tokens, stats.num_acceptable_tokens)
        if context.span is not None:
            context.span.note_answer(generation.job, generation.choices, generation.timing)
        context.log |= {
            "num_choices": len(generation.choices),
            "prompt_tokens": generation.choices[0].num_prompt_tokens,
            "completion_tokens": sum(choice.num_output_tokens for choice in generation.choices),
            "finish_reasons": [choice.finish_reason for choice in generation.choices],
        }

    async def check_ready(self) -> None:
        """Generate one token.

        Raises:
            DrainingError: this gateway is about to go.
            RequestError: no verifier can.
        """
        self.drain.check_ready()
        sampling = SamplingParams(max_tokens=1, seed=0, temperature=0.0, ignore_eos=True)
        probe = Request(
            request_id=f"ready-{time.monotonic_ns()}", prompt_token_ids=(0,), sampling=sampling, priority=-1
        )
        call = wire.GenerateCall(requests=(probe,), timeout_s=READY_TIMEOUT_S, model=self.card.fingerprint)
        pump = Pump(self.client.generate(call))
        try:
            while (data := await pump.next(READY_TIMEOUT_S)) is not None:
                if (failure := wire.decode_batch(data).failure) is not None:
                    raise wire.error_of(failure)
        finally:
            await pump.close()

    def caller(self, request: HttpRequest) -> Caller:
        """Who asks."""
        context = context_of(request)
        return Caller(request_id=context.request_id, tenant=context.tenant)


def route_headers(route: Route) -> dict[str, str]:
    """Headers that tell where a request went."""
    return {"x-outrider-pool": route.pool.value, "x-outrider-routing-reason": route.reason.value}
