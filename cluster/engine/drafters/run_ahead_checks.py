"""What a drafter takes from a verifier: anything else harms the one sequence that it is about. Pure."""

import math
from collections.abc import Iterable

from cluster.engine.drafters.run_ahead_state import Followed
from cluster.messages import Open, Row
from cluster.types import SamplingParams

UNKNOWN_VERIFY_S, MAX_VERIFY_S = 0.05, 60.0
"""Assumed of a verifier that cannot tell yet how long its pass takes; and the longest that is believed."""

_MAX_ID = (1 << 31) - 1


def verify_time(verify_s: float) -> float:
    """The verify time that a round announces, made usable."""
    if not math.isfinite(verify_s) or verify_s <= 0:
        return UNKNOWN_VERIFY_S
    return min(verify_s, MAX_VERIFY_S)


def is_valid_open(message: Open, vocab_size: int) -> bool:
    """True when the sequence can be followed."""
    return (
        1 <= message.num_prompt_tokens <= len(message.token_ids)
        and _are_ids(message.token_ids, vocab_size - 1)
        and _is_valid_sampling(message.sampling)
    )


def continues(row: Row, followed: Followed, vocab_size: int, max_in_flight_tokens: int) -> bool:
    """True when the row takes up where the last message on its sequence ended."""
    return (
        followed.sequence is not None
        and row.epoch == followed.epoch
        and row.base_length == len(followed.sequence.token_ids) + len(row.new_token_ids)
        and len(row.draft_token_ids) <= max_in_flight_tokens
        and _are_ids(row.new_token_ids, vocab_size - 1)
        and _are_ids(row.draft_token_ids, vocab_size - 1)
    )


def _are_ids(token_ids: Iterable[int], highest: int) -> bool:
    return all(0 <= token_id <= highest for token_id in token_ids)


def _is_valid_sampling(sampling: SamplingParams) -> bool:
    """The ranges of the HTTP interface, loosely: kernels must not meet what they were not written for."""
    numbers = (
        sampling.temperature,
        sampling.repetition_penalty,
        sampling.presence_penalty,
        sampling.frequency_penalty,
        *(bias for _, bias in sampling.logit_bias),
    )
    return (
        all(math.isfinite(number) for number in numbers)
        and sampling.temperature >= 0
        and sampling.repetition_penalty > 0
        and 0 < sampling.top_p <= 1
        and 0 <= sampling.min_p <= 1
        and 0 <= sampling.top_k <= _MAX_ID
        and _are_ids((token_id for token_id, _ in sampling.logit_bias), _MAX_ID)
        and _are_ids(sampling.allowed_token_ids, _MAX_ID)
        and _are_ids(sampling.stop_token_ids, _MAX_ID)
        and all(_are_ids(word, _MAX_ID) for word in sampling.bad_words)
    )
