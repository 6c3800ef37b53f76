"""Log-probabilities and entropy of the raw model distribution: before any setting of the request, at temperature 1.

Legend: V vocabulary, T entries of a top list.
"""

import math
from dataclasses import dataclass

import numpy as np

from cluster.engine import sampler_kernels as kernels
from cluster.engine.noise import FloatArray
from cluster.types import TokenLogprobs

LOWEST_LOGPROB = -9999.0
"""Stands for the log-probability of an impossible token: JSON has no infinity (OpenAI's convention)."""


@dataclass(frozen=True, slots=True)
class RowStats:
    """What is known of one raw row after one look at it.

    Attributes:
        top: largest logit.
        top_id: lowest id that holds it.
        log_sum: natural log of the sum of exp(logit - top).
        entropy_bits: entropy of the raw distribution.
    """

    top: float
    top_id: int
    log_sum: float
    entropy_bits: float


def row_stats(raw_V: FloatArray, work_V: FloatArray) -> RowStats | None:
    """Look at one row of raw logits.

    Args:
        raw_V: float32 logits, -0.0 excluded.
        work_V: overwritten.

    Returns:
        None when the row holds NaN or +inf, or no finite value: it defines no distribution.
    """
    top, top_id, valid = kernels.scan(raw_V)
    if not valid or top == -math.inf:
        return None
    mass, moment = kernels.sums(raw_V, np.float32(top), work_V)
    log_sum = math.log(mass / kernels.MASS_ONE)
    return RowStats(float(top), int(top_id), log_sum, max(0.0, (log_sum + moment / mass) / math.log(2.0)))


def token_logprobs(raw_V: FloatArray, stats: RowStats, token_id: int, num_top: int) -> TokenLogprobs:
    """Log-probability and rank of one token, and the most likely tokens.

    Args:
        raw_V: float32 logits.
        stats: of the same row.
        token_id: the token at this position.
        num_top: entries of the top list.

    Returns:
        Ranks and the top list follow falling logit, then rising id.
    """
    ids_T = np.empty(min(num_top, raw_V.size), np.int64)
    kernels.top_ids(raw_V, ids_T)
    return TokenLogprobs(
        token_id=token_id,
        logprob=_logprob(raw_V, stats, token_id),
        rank=int(kernels.count_before(raw_V, token_id)) + 1,
        top=tuple((int(v), _logprob(raw_V, stats, int(v))) for v in ids_T),
    )


def _logprob(raw_V: FloatArray, stats: RowStats, token_id: int) -> float:
    return max(float(raw_V[token_id]) - stats.top - stats.log_sum, LOWEST_LOGPROB)
