"""What travels between gateway and verifier: msgpack, as arrays, one message per call and one per batch of outputs.

A stream item passes three processes, so its size and encoding are a cost per token: the delta of a choice is an array
of eleven small fields (some 30 bytes), where a pickled dataclass tree has 600.
"""

from collections.abc import Sequence

import msgspec

from cluster.errors import (
    DeadlineError,
    EngineDeadError,
    InvalidRequestError,
    OutriderError,
    OverloadedError,
    RequestError,
    UnavailableError,
)
from cluster.types import FinishReason, Request, RequestOutput, SpeculationStats, TokenLogprobs

WIRE_VERSION = 3

_Logprobs = tuple[int, float, int, tuple[tuple[int, float], ...]]


class GenerateCall(msgspec.Struct, frozen=True, array_like=True):
    """All choices of one client request.

    Attributes:
        requests: one per choice; deadline_s and arrival_s are set by the receiver, whose clock counts.
        timeout_s: seconds that are left when the call is sent, or None.
        version: of this encoding.
        trace: context of the gateway's span; empty where the request is not traced.
        model: fingerprint of the model whose tokens these are; empty for whichever there is.
    """

    requests: tuple[Request, ...]
    timeout_s: float | None = None
    version: int = WIRE_VERSION
    trace: bytes = b""
    model: str = ""

    @property
    def call_id(self) -> str:
        """Names the call, for aborting it."""
        return self.requests[0].request_id


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """`RequestOutput` of one choice, with the choice's index in the call for its id."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    logprobs: tuple[_Logprobs, ...] = ()
    prompt_logprobs: tuple[_Logprobs | None, ...] | None = None
    speculation: SpeculationStats | None = None


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error that ends the whole call."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """One stream item: what one or more rounds added to the choices of a call, or an error."""

    deltas: tuple[Delta, ...]
    failure: Failure | None = None


class EngineCard(msgspec.Struct, frozen=True):
    """What a verifier says about its engine.

    Attributes:
        model_id: name of the model.
        max_model_len: longest prompt plus output in tokens.
        vocab_size: token ids are below this.
        numerics: "invariant" or "fast".
        acceptance: which draft tokens are kept: "coupled", "rejection" or "block".
        dtype: of weights and activations.
        num_speculative_tokens: longest draft of a round.
        layout: who drafts: "actor", "local", "ngram" or "off".
        layout_reason: why, with the numbers.
        fingerprint: of the model.
    """

    model_id: str
    max_model_len: int
    vocab_size: int
    numerics: str
    dtype: str
    num_speculative_tokens: int
    layout: str = "ngram"
    layout_reason: str = ""
    fingerprint: str = ""
    acceptance: str = "coupled"


_encoder = msgspec.msgpack.Encoder()
_call_decoder = msgspec.msgpack.Decoder(GenerateCall)
_batch_decoder = msgspec.msgpack.Decoder(Batch)
_card_decoder = msgspec.msgpack.Decoder(EngineCard)


def encode(message: GenerateCall | Batch | EngineCard) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode_call(data: bytes) -> GenerateCall:
    """The call behind bytes.

    Raises:
        UnavailableError: the sender is of another version.
    """
    call = _call_decoder.decode(data)
    if call.version != WIRE_VERSION:
        raise UnavailableError("gateway and verifier differ in version; try again", code="version_mismatch")
    return call


def decode_batch(data: bytes) -> Batch:
    """The stream item behind bytes."""
    return _batch_decoder.decode(data)


def decode_card(data: bytes) -> EngineCard:
    """The card behind bytes."""
    return _card_decoder.decode(data)


def delta(index: int, outputs: Sequence[RequestOutput]) -> Delta:
    """Successive outputs of one choice (at least one) as a single delta."""
    last = outputs[-1]
    prompt_logprobs = next((item.prompt_logprobs for item in outputs if item.prompt_logprobs is not None), None)
    return Delta(
        index=index,
        text=last.text if len(outputs) == 1 else "".join(item.text for item in outputs),
        token_ids=last.token_ids if len(outputs) == 1 else tuple(t for item in outputs for t in item.token_ids),
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        num_prompt_tokens=last.num_prompt_tokens,
        num_output_tokens=last.num_output_tokens,
        num_cached_tokens=last.num_cached_tokens,
        logprobs=tuple(_pack(entry) for item in outputs for entry in item.logprobs),
        prompt_logprobs=None
        if prompt_logprobs is None
        else tuple(None if entry is None else _pack(entry) for entry in prompt_logprobs),
        speculation=last.speculation,
    )


def _pack(entry: TokenLogprobs) -> _Logprobs:
    return (entry.token_id, entry.logprob, entry.rank, entry.top)


def unpack_logprobs(entry: _Logprobs) -> TokenLogprobs:
    """The entry behind its array."""
    token_id, logprob, rank, top = entry
    return TokenLogprobs(token_id=token_id, logprob=logprob, rank=rank, top=top)


def failure_of(error: OutriderError) -> Failure:
    """An error as it travels; an engine's death says no more than that."""
    if isinstance(error, EngineDeadError):
        return Failure(503, "the engine of this replica stopped; try again", code="engine_dead")
    if isinstance(error, OverloadedError):
        return Failure(429, error.message, error.param, error.code, error.retry_after_s)
    if isinstance(error, RequestError):
        return Failure(error.status, error.message, error.param, error.code)
    return Failure(500, "internal error")


def refusal_of(error: OutriderError) -> Failure:
    """An error of a call that never reached the engine; it did not bring about the engine's end."""
    failure = failure_of(error)
    return msgspec.structs.replace(failure, code="no_engine") if isinstance(error, EngineDeadError) else failure


def error_of(failure: Failure) -> RequestError:
    """The error behind a failure."""
    if failure.status == 429:
        return OverloadedError(failure.message, retry_after_s=failure.retry_after_s or 1.0)
    kinds = {400: InvalidRequestError, 408: DeadlineError, 503: UnavailableError}
    return kinds.get(failure.status, RequestError)(failure.message, param=failure.param, code=failure.code)
