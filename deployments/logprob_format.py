"""Log-probabilities in the forms that OpenAI's two APIs and vLLM's prompt logprobs have."""

from collections.abc import Sequence
from typing import Any

from cluster.types import TokenLogprobs
from deployments.codec import TextCodec

FLOOR = -9999.0
"""JSON has no infinity; OpenAI uses this value for a probability of zero."""


def chat_logprobs(entries: Sequence[TokenLogprobs], codec: TextCodec) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion."""
    return {
        "content": [
            _token(entry.token_id, entry.logprob, codec)
            | {"top_logprobs": [_token(token_id, logprob, codec) for token_id, logprob in entry.top]}
            for entry in entries
        ],
        "refusal": None,
    }


def completion_logprobs(
    entries: Sequence[TokenLogprobs | None], token_ids: Sequence[int], codec: TextCodec, *, offset: int = 0
) -> dict[str, Any]:
    """`choices[].logprobs` of a text completion.

    Args:
        entries: one per token; None for the first token of a prompt.
        token_ids: the tokens.
        codec: gives their texts.
        offset: characters of the choice before the first of them.
    """
    texts = [codec.token_text(token_id)[0] for token_id in token_ids]
    offsets = [offset]
    for text in texts[:-1]:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": texts,
        "token_logprobs": [None if entry is None else _finite(entry.logprob) for entry in entries],
        "top_logprobs": [None if entry is None else _top(entry, codec) for entry in entries],
        "text_offset": offsets[: len(texts)],
    }


def prompt_logprobs(entries: Sequence[TokenLogprobs | None], codec: TextCodec) -> list[dict[str, Any] | None]:
    """VLLM's `prompt_logprobs`: per prompt token a map from token id to logprob, rank and text."""
    return [None if entry is None else _ranked(entry, codec) for entry in entries]


def _ranked(entry: TokenLogprobs, codec: TextCodec) -> dict[str, Any]:
    ranks = {entry.token_id: (entry.logprob, entry.rank)}
    ranks |= {token_id: (logprob, rank) for rank, (token_id, logprob) in enumerate(entry.top, 1)}
    return {
        str(token_id): {"logprob": _finite(logprob), "rank": rank, "decoded_token": codec.token_text(token_id)[0]}
        for token_id, (logprob, rank) in ranks.items()
    }


def _top(entry: TokenLogprobs, codec: TextCodec) -> dict[str, float]:
    """Text to logprob; where two tokens have one text, the likelier stays. The chosen token is always there."""
    top: dict[str, float] = {}
    for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
        top.setdefault(codec.token_text(token_id)[0], _finite(logprob))
    return top


def _token(token_id: int, logprob: float, codec: TextCodec) -> dict[str, Any]:
    text, raw = codec.token_text(token_id)
    return {"token": text, "logprob": _finite(logprob), "bytes": list(raw)}


def _finite(logprob: float) -> float:
    return max(logprob, FLOOR)
