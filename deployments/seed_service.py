"""The seed documents' service: their request and response over our engine, with their five routing rules."""

from cluster.routing.types import Route
from cluster.types import Role, SpeculationStats
from deployments.prepare import Job
from deployments.responses import Choice, Timing
from deployments.schema import SpeculationBody
from deployments.schema_openai import ChatCompletionRequest, ChatMessage
from deployments.schema_seed import SeedRequest, SeedResponse


def as_chat(body: SeedRequest, route: Route) -> ChatCompletionRequest:
    """The same request as a chat completion."""
    return ChatCompletionRequest(
        messages=[ChatMessage(role="user", content=body.prompt)],
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        domain=body.domain,
        speculation=SpeculationBody(mode="on" if route.pool is Role.SPECULATIVE else "off"),
    )


def seed_response(request_id: str, job: Job, choice: Choice, timing: Timing, *, active: int) -> SeedResponse:
    """The documents' answer.

    Args:
        request_id: the caller's, or made up.
        job: what ran.
        choice: its one choice.
        timing: its times.
        active: requests in progress, this one included.
    """
    stats = choice.speculation or SpeculationStats()
    latency_ms = (timing.end_s - timing.start_s) * 1000
    return SeedResponse(
        request_id=request_id,
        execution_mode="speculative_accelerated" if job.route.pool is Role.SPECULATIVE else "standard_autoregressive",
        routing_reason=job.route.reason.value,
        total_tokens=choice.num_output_tokens,
        total_latency_ms=round(latency_ms, 3),
        time_per_token_ms=round(latency_ms / max(1, choice.num_output_tokens), 3),
        tokens_proposed=stats.num_draft_tokens,
        tokens_accepted=stats.num_accepted_tokens,
        step_acceptance_rate=stats.num_accepted_tokens / stats.num_draft_tokens if stats.num_draft_tokens else None,
        active_concurrency=active,
        text="".join(choice.texts),
    )
