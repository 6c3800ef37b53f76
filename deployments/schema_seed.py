"""Request and response of the seed documents' service."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from deployments.schema import Body, Domain

ExecutionMode = Literal["speculative_accelerated", "standard_autoregressive"]


class SeedRequest(Body):
    """Body of `POST /v1/chat/speculative-completions`."""

    request_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    prompt: Annotated[str, Field(min_length=1)]
    domain: Domain = "general_chat"
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 256
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    force_speculative: bool | None = None


class SeedResponse(BaseModel):
    """Answer; times are milliseconds here, as the documents have them."""

    request_id: str
    execution_mode: ExecutionMode
    routing_reason: str
    total_tokens: int
    total_latency_ms: float
    time_per_token_ms: float
    tokens_proposed: int
    tokens_accepted: int
    step_acceptance_rate: float | None
    active_concurrency: int
    text: str
