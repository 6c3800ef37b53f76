"""From deltas to OpenAI response bodies: choices, usage, and the metrics that benchmarks read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.errors import DeadlineError, InvalidRequestError, RequestError, UnavailableError
from cluster.types import GRAMMAR_FAILED, FinishReason, SpeculationStats, TokenLogprobs
from deployments.codec import TextCodec
from deployments.logprob_format import chat_logprobs, completion_logprobs, prompt_logprobs
from deployments.prepare import Job
from deployments.tool_calls.answer import read_answer
from deployments.wire import Delta, unpack_logprobs


@dataclass(slots=True)
class Choice:
    """What has arrived of one choice."""

    index: int
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    speculation: SpeculationStats | None = None

    def add(self, delta: Delta, *, keep: bool = True) -> None:
        """Take a delta in.

        Args:
            delta: the new part.
            keep: also remember text, ids and logprobs; a streamed answer has sent them already.

        Raises:
            RequestError: the choice ended without an answer: deadline, or the engine gave it up.
        """
        if keep:
            self.texts.append(delta.text)
            self.token_ids.extend(delta.token_ids)
            self.logprobs.extend(unpack_logprobs(entry) for entry in delta.logprobs)
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = [entry and unpack_logprobs(entry) for entry in delta.prompt_logprobs]
        self.stop_reason, self.speculation = delta.stop_reason, delta.speculation
        if not self.num_prompt_tokens:  # After a resume the first replica's count stands.
            self.num_cached_tokens = delta.num_cached_tokens
        self.num_prompt_tokens = delta.num_prompt_tokens
        self.num_output_tokens = delta.num_output_tokens
        self.finish_reason = delta.finish_reason
        if delta.finish_reason not in (None, FinishReason.STOP, FinishReason.LENGTH):
            raise _unfinished(delta.finish_reason, delta.stop_reason)


@dataclass(slots=True, kw_only=True)
class Timing:
    """Clock times of one request at the gateway, in seconds."""

    start_s: float
    first_s: float | None = None
    end_s: float = 0.0


def _unfinished(reason: FinishReason, stop_reason: str | int | None) -> RequestError:
    if reason is FinishReason.DEADLINE:
        return DeadlineError("the deadline passed before the answer was finished", code="deadline_exceeded")
    if reason is FinishReason.ERROR and stop_reason == GRAMMAR_FAILED:
        return InvalidRequestError(
            "the demanded form cannot be followed any further: it takes too much work, or leaves no token to choose",
            code=GRAMMAR_FAILED,
        )
    if reason is FinishReason.ERROR:
        return RequestError("the model gave no valid distribution for this request", code="invalid_logits")
    return UnavailableError("the answer was cut off; try again", code="aborted")


def full_response(job: Job, choices: Sequence[Choice], timing: Timing, codec: TextCodec) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    build = _chat_choice if job.is_chat else _completion_choice
    body = response_head(job, "chat.completion" if job.is_chat else "text_completion")
    body |= {"choices": [build(job, choice, codec) for choice in choices], "usage": usage(job, choices)}
    if job.is_chat and job.prompt_logprobs and choices[0].prompt_logprobs is not None:
        body["prompt_logprobs"] = prompt_logprobs(choices[0].prompt_logprobs, codec)
    return body | metrics(job, choices, timing)


def response_head(job: Job, kind: str) -> dict[str, Any]:
    """Fields that every body and chunk of an answer carries."""
    head = {"id": job.response_id, "object": kind, "created": job.created, "model": job.model}
    return head if job.service_tier is None else head | {"service_tier": job.service_tier}


def usage(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    """Token counts; the prompt of n choices counts once."""
    firsts = choices[:: job.choices_per_prompt]
    prompt_tokens = sum(choice.num_prompt_tokens for choice in firsts)
    completion_tokens = 0 if job.drop_output else sum(choice.num_output_tokens for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(choice.num_cached_tokens for choice in firsts)},
    }


def metrics(job: Job, choices: Sequence[Choice], timing: Timing) -> dict[str, Any]:
    """`metrics` at the root, for a single choice: vLLM's field names, times in milliseconds as there."""
    if len(choices) != 1 or timing.first_s is None:
        return {}
    num_tokens, span_s = choices[0].num_output_tokens, timing.end_s - timing.first_s
    values: dict[str, Any] = {
        "time_to_first_token_ms": _ms(timing.first_s - timing.start_s),
        "generation_time_ms": _ms(span_s),
        "mean_itl_ms": _ms(span_s / (num_tokens - 1)) if num_tokens > 1 else None,
        "tokens_per_second": round(num_tokens / (timing.end_s - timing.start_s), 3)
        if timing.end_s > timing.start_s
        else None,
    }
    stats = choices[0].speculation
    if stats is not None and stats.num_drafts:
        values["speculative_decoding"] = speculative_decoding(stats, job.num_speculative_tokens)
    return {"metrics": values}


def speculative_decoding(stats: SpeculationStats, num_speculative_tokens: int) -> dict[str, Any]:
    """VLLM's summary of a request that had at least one draft.

    A step is a round with a draft, so the histogram sums up to the steps and the mean length is 1 + accepted / steps.
    """
    size = max(num_speculative_tokens + 1, len(stats.accepted_per_draft))
    histogram = [*stats.accepted_per_draft, *[0] * (size - len(stats.accepted_per_draft))]
    return {
        "mean_acceptance_length": 1 + stats.num_accepted_tokens / stats.num_drafts,
        "draft_acceptance_rate": stats.num_accepted_tokens / stats.num_draft_tokens,
        "acceptance_histogram": histogram,
        "num_spec_steps": stats.num_drafts,
        "num_accepted_draft_tokens": stats.num_accepted_tokens,
        "num_draft_tokens": stats.num_draft_tokens,
        "num_spec_tokens": size - 1,
    }


def _chat_choice(job: Job, choice: Choice, codec: TextCodec) -> dict[str, Any]:
    text, calls = "".join(choice.texts), []
    if job.tools is not None:
        answer = read_answer(job.tools, job.requests[choice.index].request_id, text)
        text, calls = answer.content, [_whole_call(entry) for entry in answer.calls]
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if calls:
        message |= {"content": text or None, "tool_calls": calls}
    return {
        "index": choice.index,
        "message": message,
        "logprobs": chat_logprobs(choice.logprobs, codec) if job.logprobs else None,
    } | _end(job, choice, num_calls=len(calls))


def _whole_call(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "index"}


def finish_reason(reason: FinishReason, *, num_calls: int) -> str:
    """OpenAI's word: an answer that ended by itself and holds calls ended for them."""
    return "tool_calls" if num_calls and reason is FinishReason.STOP else reason.value


def _completion_choice(job: Job, choice: Choice, codec: TextCodec) -> dict[str, Any]:
    entries: list[TokenLogprobs | None] = [] if job.drop_output else list(choice.logprobs)
    token_ids = [] if job.drop_output else choice.token_ids
    text = "" if job.drop_output else "".join(choice.texts)
    if job.echo:
        prompt = job.requests[choice.index].prompt_token_ids
        text, token_ids = job.echo_of(choice.index) + text, [*prompt, *token_ids]
        entries = [*(choice.prompt_logprobs or []), *entries]
    body = {
        "index": choice.index,
        "text": text,
        "logprobs": completion_logprobs(entries, token_ids, codec) if job.logprobs else None,
    } | _end(job, choice)
    if job.prompt_logprobs and choice.prompt_logprobs is not None:
        body["prompt_logprobs"] = prompt_logprobs(choice.prompt_logprobs, codec)
    return body


def _end(job: Job, choice: Choice, *, num_calls: int = 0) -> dict[str, Any]:
    assert choice.finish_reason is not None
    reason = finish_reason(choice.finish_reason, num_calls=num_calls)
    end: dict[str, Any] = {"finish_reason": reason, "stop_reason": choice.stop_reason}
    return end | {"token_ids": choice.token_ids} if job.return_token_ids else end


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
