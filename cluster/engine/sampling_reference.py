"""The sampling rule written plainly: whole-vocabulary sorts, numpy and Python only, one step after another.

The sampler must agree with this bit for bit; tests and `verify-lossless` compare them. It shares with the fast path the
constants that define the rule (mass units, the float32 exponential's polynomial), not its code.

Legend: V vocabulary.
"""

import numpy as np
import numpy.typing as npt

from cluster.engine.logits_processors import GREEDY_TEMPERATURE, SamplingRow, min_p_floor, top_p_target
from cluster.engine.noise import FloatArray, IntArray
from cluster.engine.sampler_kernels import MASS_ONE

_COEFFICIENTS = [1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0]


def process(logits_V: FloatArray, row: SamplingRow, eos_token_ids: frozenset[int]) -> FloatArray:
    """Logits after every setting of a row; see `sampler.processed_logits`."""
    processed_V = logits_V.astype(np.float32)
    _mask(processed_V, row, eos_token_ids)
    for token_id, bias in row.params.logit_bias:
        if 0 <= token_id < processed_V.size:
            processed_V[token_id] += np.float32(bias)
    _penalise(processed_V, row)
    allowed = _allowed_by_grammar(row, processed_V.size)
    if allowed is not None:
        ends = eos_token_ids if row.params.ignore_eos else frozenset[int]()
        processed_V[[v for v in range(processed_V.size) if v not in allowed or v in ends]] = -np.inf
    if processed_V.max() == -np.inf:
        return _one_token(logits_V, row, allowed)
    if row.params.temperature < GREEDY_TEMPERATURE:
        return processed_V
    scaled_V: FloatArray = (processed_V - processed_V.max()) / np.float32(row.params.temperature)
    return _truncate(scaled_V, row)


def probabilities(processed_V: FloatArray, *, is_greedy: bool) -> npt.NDArray[np.float64]:
    """The distribution that `process` leaves, in double precision; all on the lowest best id of a greedy row."""
    weights_V = np.exp(processed_V.astype(np.float64) - processed_V.max())
    if is_greedy:
        weights_V = (np.arange(weights_V.size) == processed_V.argmax()).astype(np.float64)
    distribution_V: npt.NDArray[np.float64] = weights_V / weights_V.sum()
    return distribution_V


def masses(scaled_V: FloatArray) -> IntArray:
    """Probability of each token as an integer, `MASS_ONE` for a scaled logit of 0."""
    t_V = np.maximum(scaled_V, np.float32(-80.0))
    n_V = np.floor(t_V * np.float32(1.4426950408889634) + np.float32(0.5))
    r_V = t_V - n_V * np.float32(0.693359375) + n_V * np.float32(2.12194440e-4)
    p_V = np.zeros_like(t_V)
    for coefficient in _COEFFICIENTS:
        p_V = p_V * r_V + np.float32(coefficient)
    exponential_V = np.ldexp(p_V, n_V.astype(np.int32))
    mass_V: IntArray = (exponential_V * np.float32(MASS_ONE)).astype(np.int64)
    return mass_V


def _mask(logits_V: FloatArray, row: SamplingRow, eos_token_ids: frozenset[int]) -> None:
    params = row.params
    output = list(row.output_token_ids)
    masked: set[int] = set()
    if params.allowed_token_ids:
        masked |= set(range(logits_V.size)) - set(params.allowed_token_ids)
    for word in params.bad_words:
        if word and output[len(output) - len(word) + 1 :] == list(word[:-1]) and len(output) >= len(word) - 1:
            masked.add(word[-1])
    if row.output_index < params.min_tokens:
        masked |= set(params.stop_token_ids)
        if not params.ignore_eos:
            masked |= eos_token_ids
    for token_id in masked:
        if 0 <= token_id < logits_V.size:
            logits_V[token_id] = -np.inf


def _penalise(logits_V: FloatArray, row: SamplingRow) -> None:
    params = row.params
    output = list(row.output_token_ids)
    vocabulary = range(logits_V.size)
    for token_id in {*row.prompt_token_ids, *output}.intersection(vocabulary):
        if logits_V[token_id] > 0:
            logits_V[token_id] /= np.float32(params.repetition_penalty)
        else:
            logits_V[token_id] *= np.float32(params.repetition_penalty)
    for token_id in set(output).intersection(vocabulary):
        logits_V[token_id] -= np.float32(params.frequency_penalty) * np.float32(output.count(token_id))
        logits_V[token_id] -= np.float32(params.presence_penalty)


def _allowed_by_grammar(row: SamplingRow, vocab_size: int) -> set[int] | None:
    if row.allowed is None:
        return None
    mask_W = row.allowed().tolist()
    return {v for v in range(vocab_size) if mask_W[v // 32] >> v % 32 & 1}


def _one_token(raw_V: FloatArray, row: SamplingRow, by_grammar: set[int] | None) -> FloatArray:
    """Everything was masked: only the largest raw logit among the allowed ids is left; a grammar wins over the list."""
    listed = set(row.params.allowed_token_ids) & set(range(raw_V.size))
    if by_grammar is not None:
        listed = listed & by_grammar or by_grammar
    winner = max(sorted(listed) or range(raw_V.size), key=lambda token_id: (raw_V[token_id], -token_id))
    processed_V = np.full(raw_V.size, -np.inf, np.float32)
    processed_V[winner] = 0.0
    return processed_V


def _truncate(scaled_V: FloatArray, row: SamplingRow) -> FloatArray:
    params = row.params
    order_V: npt.NDArray[np.intp] = np.lexsort((np.arange(scaled_V.size), -scaled_V))
    kept_V = order_V[scaled_V[order_V] >= np.float32(min_p_floor(params.min_p))]
    if params.top_k > 0:
        kept_V = kept_V[: params.top_k]
    if params.top_p < 1.0:
        running_V = np.cumsum(masses(scaled_V)[kept_V])
        target = top_p_target(params.top_p, int(running_V[-1]))
        kept_V = kept_V[: int(np.argmax(running_V >= target)) + 1]
    processed_V = np.full(scaled_V.size, -np.inf, np.float32)
    processed_V[kept_V] = scaled_V[kept_V]
    return processed_V
