"""From a checked body to engine requests: prompts to ids, defaults, seeds, salts, and limits that need the model."""

import hashlib
import secrets
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.errors import InvalidRequestError
from cluster.routing.types import Route
from cluster.types import Request, SamplingParams, SpeculationMode, SpeculationParams
from deployments.codec import TextCodec
from deployments.limits import Limits, check_count
from deployments.routing import Routed
from deployments.sampling import SamplingBuilder
from deployments.schema import SamplingBody, SpeculationBody
from deployments.schema_openai import ChatCompletionRequest, CompletionRequest
from deployments.shaping import Shaped
from deployments.tool_calls.plan import ToolPlan
from deployments.wire import EngineCard

DEFAULT_COMPLETION_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One client request, ready for a verifier.

    Attributes:
        response_id: id that the client sees.
        model: name that the client sees.
        is_chat: chat or text completion.
        requests: one per choice, prompt by prompt.
        num_prompts: prompts in the request.
        route: pool and reason.
        created: Unix time in whole seconds.
        stream: answer with events.
        include_usage: a usage chunk ends the stream.
        continuous_usage: every chunk carries usage.
        obfuscation: chunks are padded, or not; None leaves it to the server.
        logprobs: the client wants logprobs.
        echo: prompt texts to put before the choices, one per prompt; empty for none.
        drop_output: only the echoed prompt is wanted.
        return_token_ids: ids go along with the text.
        prompt_logprobs: vLLM's `prompt_logprobs` were asked for.
        service_tier: to be echoed.
        num_speculative_tokens: upper limit K in force.
        tools: that the answer may call; None for none.
    """

    response_id: str
    model: str
    is_chat: bool
    requests: tuple[Request, ...]
    num_prompts: int
    route: Route
    created: int
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    obfuscation: bool | None = None
    logprobs: bool = False
    echo: tuple[str, ...] = ()
    drop_output: bool = False
    return_token_ids: bool = False
    prompt_logprobs: bool = False
    service_tier: str | None = None
    num_speculative_tokens: int = 0
    tools: ToolPlan | None = None

    @property
    def choices_per_prompt(self) -> int:
        """The request's n."""
        return len(self.requests) // self.num_prompts

    def echo_of(self, index: int) -> str:
        """Prompt text that a choice begins with."""
        return self.echo[index // self.choices_per_prompt] if self.echo else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and what was decided before the body was looked at.

    Attributes:
        request_id: from the header, or made up.
        tenant: hash of the API key, "" on an open server.
    """

    request_id: str
    tenant: str = ""


def derive_seed(seed: int, index: int) -> int:
    """Seed of choice `index`: the request's own for index 0, else the first 8 bytes of BLAKE2b over both.

    BLAKE2b of the two numbers as little-endian unsigned 64-bit integers, read back the same way.
    """
    seed &= (1 << 64) - 1
    if index == 0:
        return seed
    digest = hashlib.blake2b(struct.pack("<QQ", seed, index), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class Preparer:
    """Builds jobs.

    Args:
        codec: the model's tokenizer.
        card: the engine's constants.
        limits: bounds on requests.
        model: name that clients use.
    """

    def __init__(self, codec: TextCodec, card: EngineCard, limits: Limits, model: str) -> None:
        self._codec, self._card, self._limits, self._model = codec, card, limits, model
        self._sampling = SamplingBuilder(codec, limits)

    def chat(self, body: ChatCompletionRequest, shaped: Shaped, routed: Routed, caller: Caller) -> Job:
        """A chat completion whose conversation is already rendered and tokenised.

        Raises:
            InvalidRequestError: a limit is exceeded or a field does not fit the model.
        """
        limit = body.max_completion_tokens or body.max_tokens or self._card.max_model_len
        sampling = self._sampling.build(body, limit, body.num_logprobs, body.prompt_logprobs)
        framing = None if shaped.tools is None else shaped.tools.framing
        if framing is not None and self._codec.is_special(framing.opening):
            sampling = replace(sampling, skip_special_tokens=False)  # Calls could not be told from text without it.
        job = self._job(body, [shaped.prompt_ids], sampling, routed, caller, grammar=shaped.grammar)
        return replace(job, tools=shaped.tools)

    async def prompts(self, body: CompletionRequest) -> list[Sequence[int]]:
        """The prompts of a text completion, as token ids.

        Raises:
            InvalidRequestError: there are too many, or an id is not the model's.
        """
        check_count(self._limits, "max_prompts", len(body.prompts), "prompt")
        return [await self._prompt_ids(prompt, body) for prompt in body.prompts]

    def completion(
        self,
        body: CompletionRequest,
        prompts: Sequence[Sequence[int]],
        routed: Routed,
        caller: Caller,
        *,
        grammar: str = "",
    ) -> Job:
        """A text completion whose prompts are already tokenised.

        Args:
            body: the request.
            prompts: token ids.
            routed: where it goes.
            caller: who asks.
            grammar: that answers must follow; empty for none.

        Raises:
            InvalidRequestError: a limit is exceeded or a field does not fit the model.
        """
        echo = tuple(
            prompt if isinstance(prompt, str) else self._codec.decode(prompt) for prompt in body.prompts if body.echo
        )
        prompt_logprobs = body.prompt_logprobs
        if body.echo and body.logprobs is not None:
            prompt_logprobs = max(body.logprobs, prompt_logprobs or 0)
        limit = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else max(1, body.max_tokens)
        sampling = self._sampling.build(body, limit, body.logprobs, prompt_logprobs)
        job = self._job(body, prompts, sampling, routed, caller, grammar=grammar)
        return replace(job, echo=echo, drop_output=body.max_tokens == 0)

    async def _prompt_ids(self, prompt: str | list[int], body: CompletionRequest) -> Sequence[int]:
        if isinstance(prompt, list):
            self._codec.check_ids(prompt, "prompt")
            return prompt
        return await self._codec.encode(prompt, add_special_tokens=body.add_special_tokens)

    def _job(
        self,
        body: SamplingBody,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingParams,
        routed: Routed,
        caller: Caller,
        *,
        grammar: str,
    ) -> Job:
        is_chat = isinstance(body, ChatCompletionRequest)
        n = body.n or 1
        check_n(self._limits, n, len(prompts))
        response_id = f"{'chatcmpl' if is_chat else 'cmpl'}-{caller.request_id}"
        # The id that the client chose may repeat; inside the engine it may not.
        engine_id = f"{response_id}-{secrets.token_hex(4)}"
        speculation = speculation_params(body.speculation, routed.route)
        salt = f"{caller.tenant}|{body.cache_salt or ''}"
        seed = secrets.randbits(64) if body.seed is None else body.seed
        requests = [
            Request(
                request_id=f"{engine_id}-{p * n + i}",
                prompt_token_ids=tuple(prompts[p]),
                sampling=self._fit(sampling, len(prompts[p]), derive_seed(seed, i)),
                speculation=speculation,
                priority=body.priority,
                cache_salt=salt,
                domain=routed.domain.value,
                grammar=grammar,
            )
            for p in range(len(prompts))
            for i in range(n)
        ]
        options = body.stream_options
        wished = speculation.num_speculative_tokens
        wished = self._card.num_speculative_tokens if wished is None else wished
        return Job(
            response_id=response_id,
            model=body.model or self._model,
            is_chat=is_chat,
            requests=tuple(requests),
            num_prompts=len(prompts),
            route=routed.route,
            created=int(time.time()),
            stream=bool(body.stream),
            include_usage=options is not None and options.include_usage,
            continuous_usage=options is not None and options.continuous_usage_stats,
            obfuscation=None if options is None else options.include_obfuscation,
            logprobs=sampling.logprobs is not None,
            return_token_ids=body.return_token_ids,
            prompt_logprobs=body.prompt_logprobs is not None,
            service_tier=body.service_tier,
            num_speculative_tokens=min(self._card.num_speculative_tokens, wished),
        )

    def _fit(self, sampling: SamplingParams, num_prompt_tokens: int, seed: int) -> SamplingParams:
        """Sampling for one choice: its seed, and no more tokens than the model's length leaves."""
        room = self._card.max_model_len - num_prompt_tokens
        if num_prompt_tokens == 0:
            raise InvalidRequestError("the prompt is empty", param="prompt", code="empty_prompt")
        if room < 1:
            raise InvalidRequestError(
                f"the prompt has {num_prompt_tokens} tokens; with one more for the answer, the model's limit is "
                f"{self._card.max_model_len}",
                param="prompt",
                code="context_length_exceeded",
            )
        max_tokens = min(sampling.max_tokens, room)
        return replace(sampling, seed=seed, max_tokens=max_tokens, min_tokens=min(sampling.min_tokens, max_tokens))


def check_n(limits: Limits, n: int, num_prompts: int) -> None:
    """Refuse too many choices.

    Raises:
        InvalidRequestError: n, or n times prompts, is above its limit.
    """
    if n > limits.max_n:
        raise InvalidRequestError(f"n must be at most {limits.max_n}", param="n", code="max_n")
    if n * num_prompts > limits.max_choices:
        raise InvalidRequestError(
            f"prompts times n must be at most {limits.max_choices}", param="n", code="max_choices"
        )


def speculation_params(body: SpeculationBody | None, route: Route) -> SpeculationParams:
    """What the engine is told: the request's wishes, unless the route says that nobody may draft."""
    body = body or SpeculationBody()
    mode = SpeculationMode(body.mode) if route.drafts else SpeculationMode.OFF
    return SpeculationParams(mode=mode, num_speculative_tokens=body.num_speculative_tokens, drafter=body.drafter)
