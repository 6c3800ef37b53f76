"""Gumbel noise as a pure function of (seed, output index, token id): the shared randomness of the coupled rule.

DESIGN section 5. The bits must never change: texts that users reproduce by seed depend on them, and a drafter draws
with the same values as its verifier. So everything here is integer hashing and plain IEEE double arithmetic, with no
library logarithm and no generator state; batch, thread count and library versions cannot matter.

1. key = mix64(mix64(seed + G) + (index + 1) * G), with splitmix64's finaliser and increment G.
2. bits = lowbias32'(lowbias32(token id ^ low(key)) ^ high(key)): 32 bits per token (Wellons' two multiplier sets).
3. w = (bits + 0.5) * 2^-32, e = -log(1 - w), g = -log(e). Large g comes from small w, which doubles keep exactly, so
   the upper tail, which decides who wins, keeps its resolution. g lies in [-3.13, 22.88].

The kernels stand in one file because numba's cache notices a change only in the file of the kernel itself.

Legend: N rows, V vocabulary, C candidates, J tokens of one block.
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cluster.engine.jit import compiled

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

_MASK64 = (1 << 64) - 1
_INCREMENT = 0x9E3779B97F4A7C15
_LN2 = 0.6931471805599453
_SQRT2 = 1.4142135623730951
_BLOCK = 256
_BOUND_SLACK = 0.01  # over all roundings in the noise bound, which stay below 1e-4 where a token can still win


def row_key(seed: int, output_index: int) -> tuple[np.uint32, np.uint32]:
    """The key under which the tokens of one output position are hashed.

    Args:
        seed: seed of the choice; taken modulo 2^64.
        output_index: index of the token counted from the first generated one, >= 0.

    Returns:
        Low and high half of the 64-bit key.
    """
    key = _mix64(_mix64(seed + _INCREMENT) + (output_index + 1) * _INCREMENT)
    return np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)


def derive_seed(seed: int, choice: int) -> int:
    """Seed of one of n choices of a request; choice 0 keeps the request's seed, so n = 1 is a prefix of n > 1.

    Args:
        seed: seed of the request.
        choice: index of the choice, >= 0.

    Returns:
        A seed in [0, 2^64).
    """
    if choice == 0:
        return seed & _MASK64
    return _mix64(_mix64(seed ^ 0xD1B54A32D192ED03) + choice * _INCREMENT)


class Stream(IntEnum):
    """What noise is for under the rules `rejection` and `block`; each has a key space of its own.

    - DRAFT: draws of a drafter that says what it draws from.
    - ACCEPT: whether a draft token is kept.
    - TARGET: draws of the target: recovered, bonus and plain tokens.
    """

    DRAFT = 0xA0761D6478BD642F
    ACCEPT = 0xE7037ED1A0B428DB
    TARGET = 0x8EBC6AF09C88C6E3


def stream_seed(seed: int, stream: Stream, round_index: int = 0) -> int:
    """Seed of noise that shares no bit with the noise of another stream, of another round, or of the coupled rule.

    A sequence's rounds need noise of their own where several may look at one output position: what became of an
    earlier draft says something of the noise that it was drawn, or judged, with.

    Args:
        seed: seed of the choice.
        stream: what the noise is for.
        round_index: output tokens before the round, which tells a sequence's rounds apart since each emits one.

    Returns:
        A seed in [0, 2^64).
    """
    return _mix64(_mix64(seed ^ stream) + (round_index + 1) * _INCREMENT)


def uniform(seed: int, index: int) -> float:
    """A number between 0 and 1, both excluded, of 52 random bits; a pure function of its arguments."""
    key = _mix64(_mix64(seed + _INCREMENT) + (index + 1) * _INCREMENT)
    return ((key >> 12) + 0.5) * 2.0**-52


def gumbel(seed: int, output_index: int, vocab_size: int) -> Tensor:
    """Noise of every token at one output position.

    Args:
        seed: seed of the choice.
        output_index: index of the token counted from the first generated one.
        vocab_size: V.

    Returns:
        float32 [V] on the CPU.
    """
    out_V = np.empty(vocab_size, np.float32)
    _fill(out_V, *row_key(seed, output_index))
    return torch.from_numpy(out_V)


def gumbel_rows(seeds: Sequence[int], output_indices: Sequence[int], vocab_size: int) -> Tensor:
    """Noise of every token at several positions: row i is `gumbel(seeds[i], output_indices[i], vocab_size)`.

    Args:
        seeds: N seeds.
        output_indices: N output indices.
        vocab_size: V.

    Returns:
        float32 [N, V] on the CPU.
    """
    out_NV = np.empty((len(seeds), vocab_size), np.float32)
    for out_V, seed, output_index in zip(out_NV, seeds, output_indices, strict=True):
        _fill(out_V, *row_key(seed, output_index))
    return torch.from_numpy(out_NV)


def gumbel_at(seed: int, output_index: int, token_ids: Sequence[int]) -> Tensor:
    """Noise of a few tokens at one position, for drafters that rank a short list of candidates.

    Args:
        seed: seed of the choice.
        output_index: index of the token counted from the first generated one.
        token_ids: C token ids.

    Returns:
        float32 [C] on the CPU.
    """
    ids_C = np.asarray(token_ids, dtype=np.int64)
    out_C = np.empty(ids_C.size, np.float32)
    fill_gumbel(out_C, ids_C, seed, output_index)
    return torch.from_numpy(out_C)


def fill_gumbel(out_C: FloatArray, token_ids_C: IntArray, seed: int, output_index: int) -> None:
    """Write what `gumbel_at` returns into an array."""
    _gather(out_C, token_ids_C, *row_key(seed, output_index))


def _mix64(value: int) -> int:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014; Stafford's variant 13)."""
    value &= _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


@compiled
def token_bits(token_id: np.uint32, low: np.uint32, high: np.uint32) -> np.uint32:
    """32 random bits of one token under a row key; a bijection of the token id, in wrapping uint32 arithmetic."""
    h = np.uint32(token_id ^ low)
    h = np.uint32(h ^ (h >> np.uint32(16)))
    h = np.uint32(h * np.uint32(0x7FEB352D))
    h = np.uint32(h ^ (h >> np.uint32(15)))
    h = np.uint32(h * np.uint32(0x846CA68B))
    h = np.uint32(h ^ (h >> np.uint32(16)))
    h = np.uint32(h ^ high)
    h = np.uint32(h ^ (h >> np.uint32(16)))
    h = np.uint32(h * np.uint32(0x21F0AAAD))
    h = np.uint32(h ^ (h >> np.uint32(15)))
    h = np.uint32(h * np.uint32(0xD35A2D97))
    return np.uint32(h ^ (h >> np.uint32(15)))


@compiled
def gumbel_from_bits(bits: np.uint32) -> np.float32:
    """The Gumbel value of 32 random bits; falls as the bits rise."""
    rest = 1.0 - (np.float64(bits) + 0.5) * 2.0**-32  # exact: both terms are multiples of 2^-33
    return np.float32(-_log(-_log(rest)))


@compiled
def _log(x: float) -> float:
    """Natural logarithm of a normal positive double, within 4e-16 relative, from basic operations alone.

    x = 2^k m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s) with s = (m - 1) / (m + 1), whose series in s^2 (at
    most 0.0295) falls below double precision after ten terms. m - 1 is exact, so x near 1 keeps its relative precision.
    """
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> 52) - 1023
    mantissa = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    if mantissa >= _SQRT2:
        mantissa = mantissa * 0.5
        exponent = exponent + 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = 1.0 / 17.0 + z * (1.0 / 19.0)
    series = 1.0 / 13.0 + z * (1.0 / 15.0 + z * series)
    series = 1.0 / 9.0 + z * (1.0 / 11.0 + z * series)
    series = 1.0 / 5.0 + z * (1.0 / 7.0 + z * series)
    series = z * (1.0 / 3.0 + z * series)
    return np.float64(exponent) * _LN2 + (2.0 * s + 2.0 * s * series)


@compiled
def _fill(out_V: FloatArray, low: np.uint32, high: np.uint32) -> None:
    for v in range(out_V.size):
        out_V[v] = gumbel_from_bits(token_bits(np.uint32(v), low, high))


@compiled
def _gather(out_C: FloatArray, ids_C: IntArray, low: np.uint32, high: np.uint32) -> None:
    for c in range(ids_C.size):
        out_C[c] = gumbel_from_bits(token_bits(np.uint32(ids_C[c]), low, high))


@compiled
def noisy_argmax(
    scaled_V: FloatArray,
    last: tuple[np.float32, int],
    start_id: int,
    key: tuple[np.uint32, np.uint32],
    work_V: FloatArray,
) -> int:
    """The token with the largest float32 score scaled logit + noise, the lowest id among equals.

    Every token is hashed, but the two logarithms are taken only where they can matter: a token whose bound on the score
    stays below the best score so far cannot win.

    Args:
        scaled_V: scaled logits, the largest is 0.
        last: scaled logit and id of the last token that survives truncation, in order of falling logit, then rising id.
        start_id: index of the largest scaled logit, which always survives.
        key: the row key of the noise.
        work_V: overwritten.
    """
    low, high = key
    last_logit, last_id = last
    _bound_scores(scaled_V, low, high, work_V)
    best_id = start_id
    best = np.float32(scaled_V[start_id] + gumbel_from_bits(token_bits(np.uint32(start_id), low, high)))
    for start in range(0, scaled_V.size, _BLOCK):
        scaled_J, bound_J = scaled_V[start : start + _BLOCK], work_V[start : start + _BLOCK]
        num_hits = 0
        for j in range(scaled_J.size):
            num_hits += (bound_J[j] >= best) & (scaled_J[j] >= last_logit)
        if num_hits == 0:
            continue
        for j in range(scaled_J.size):
            x, v = scaled_J[j], start + j
            if bound_J[j] < best or x < last_logit or (x == last_logit and v > last_id):
                continue
            score = np.float32(x + gumbel_from_bits(token_bits(np.uint32(v), low, high)))
            if score > best or (score == best and v < best_id):
                best, best_id = score, v
    return best_id


@compiled
def _bound_scores(scaled_V: FloatArray, low: np.uint32, high: np.uint32, bound_V: FloatArray) -> None:
    """Write an upper bound of every float32 score that needs no logarithm.

    With w = (bits + 0.5) 2^-32 the noise is at most -log w, and the bit pattern of a float, read as a fixed-point
    number, is at most its binary logarithm. Adding the logit rounds bound and score alike, so it keeps their order.
    """
    per_bit = np.float32(_LN2 / (1 << 23))
    offset = np.float32(_LN2 * (127 + 32) + _BOUND_SLACK)
    for v in range(scaled_V.size):
        bits = token_bits(np.uint32(v), low, high)
        w = np.float32(np.float32(bits) + np.float32(0.5)).view(np.int32)
        bound_V[v] = scaled_V[v] + np.float32(offset - np.float32(w) * per_bit)
