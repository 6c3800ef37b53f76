"""Single passes over one row of logits, compiled: the inner loops of the sampler.

A row's result depends on the row alone, bit for bit, on any machine: sums run over integers (`MASS_ONE` units), whose
order cannot matter, and the exponential is a polynomial in plain float32 arithmetic. The reference in
`sampling_reference` repeats the arithmetic with whole-array numpy operations.

Loops run over whole arrays or slices of them, from 0: numba then knows that no index is negative, and LLVM vectorises.

Legend: V vocabulary, W words of 32 tokens, B buckets, T entries of a top list, J tokens of one block.
"""

import numpy as np
import numpy.typing as npt

from cluster.engine.jit import compiled
from cluster.engine.noise import FloatArray, IntArray

MASS_ONE = float(1 << 40)
"""Integer units of mass of a token whose probability equals the largest one; 2^18 tokens of it still fit in 58 bits."""

NUM_BUCKETS = 4096
"""Buckets of the distance to the largest logit, 128 per octave from 2^-12 to 2^20; one more holds excluded tokens."""

_FIRST_BUCKET = (127 - 12) << 7
_BLOCK = 256
_INFINITE = 0x7F800000


@compiled
def widen(bits_V: npt.NDArray[np.uint16], out_V: FloatArray) -> None:
    """Turn bfloat16 bit patterns into float32; -0.0 becomes 0.0, so that equal values have equal bits."""
    for v in range(bits_V.size):
        out_V[v] = np.uint32(np.uint32(bits_V[v]) << np.uint32(16)).view(np.float32) + np.float32(0.0)


@compiled
def keep_allowed(row_V: FloatArray, mask_W: npt.NDArray[np.uint32]) -> None:
    """Set to -inf what a grammar's mask does not allow: bit v % 32 of word v // 32 stands for token v."""
    for w in range((row_V.size + 31) // 32):
        row_J, word = row_V[32 * w : 32 * w + 32], mask_W[w]
        if word == np.uint32(0xFFFFFFFF):
            continue
        for j in range(row_J.size):
            if (word >> np.uint32(j)) & np.uint32(1) == np.uint32(0):
                row_J[j] = -np.inf


@compiled
def scan(row_V: FloatArray) -> tuple[np.float32, int, bool]:
    """Largest value, the lowest index that holds it, and whether the row can be sampled.

    A row cannot be sampled when it holds NaN or +inf. A row of nothing but -inf gives (-inf, 0, True).
    """
    best = np.int32(-0x80000000)
    num_nan = np.int32(0)
    for v in range(row_V.size):
        bits = np.float32(row_V[v]).view(np.int32)
        # For finite floats of either sign this integer rises with the value.
        order = np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        best = max(best, order)
        num_nan += np.int32((bits & np.int32(0x7FFFFFFF)) > np.int32(_INFINITE))
    if num_nan > 0 or best >= _INFINITE:
        return np.float32(0.0), 0, False
    top = np.int32(best ^ ((best >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)
    return top, _first_equal(row_V, top), True


@compiled
def _first_equal(row_V: FloatArray, value: np.float32) -> int:
    for start in range(0, row_V.size, _BLOCK):
        row_J = row_V[start : start + _BLOCK]
        found = 0
        for j in range(row_J.size):
            found += row_J[j] == value
        if found == 0:
            continue
        for j in range(row_J.size):
            if row_J[j] == value:
                return start + j
    return 0


@compiled
def exponential(t: np.float32) -> np.float32:
    """exp(t) for t <= 0 in float32 within 2e-7 relative; 0 below -80, where no mass is left."""
    t = np.float32(max(t, np.float32(-80.0)))
    n = np.float32(np.floor(t * np.float32(1.4426950408889634) + np.float32(0.5)))
    r = np.float32(
        t - n * np.float32(0.693359375)
    )  # Cody and Waite: the first constant has few bits, n times it is exact
    r = np.float32(r + n * np.float32(2.12194440e-4))
    p = np.float32(1.0 / 5040.0)
    p = np.float32(p * r + np.float32(1.0 / 720.0))
    p = np.float32(p * r + np.float32(1.0 / 120.0))
    p = np.float32(p * r + np.float32(1.0 / 24.0))
    p = np.float32(p * r + np.float32(1.0 / 6.0))
    p = np.float32(p * r + np.float32(0.5))
    p = np.float32(p * r + np.float32(1.0))
    p = np.float32(p * r + np.float32(1.0))
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled
def sums(row_V: FloatArray, top: np.float32, work_V: FloatArray) -> tuple[np.int64, np.int64]:
    """Sum of exp(x - top) and of -(x - top) exp(x - top), in `MASS_ONE` units: all that entropy and log-softmax need.

    `work_V` is overwritten. Three plain loops: one loop with everything in it takes half as long again.
    """
    for v in range(row_V.size):
        work_V[v] = exponential(np.float32(row_V[v] - top)) * np.float32(MASS_ONE)
    mass = np.int64(0)
    for v in range(row_V.size):
        mass += np.int64(work_V[v])
    moment = np.int64(0)
    for v in range(row_V.size):
        moment -= np.int64(work_V[v] * max(np.float32(row_V[v] - top), np.float32(-80.0)))
    return mass, moment


@compiled
def shift_and_scale(row_V: FloatArray, top: np.float32, temperature: np.float32, out_V: FloatArray) -> None:
    """Write (x - top) / temperature: the same distribution as x / temperature, but without overflow."""
    for v in range(row_V.size):
        out_V[v] = np.float32(row_V[v] - top) / temperature


@compiled
def probabilities(scaled_V: FloatArray, last_logit: np.float32, last_id: int, out_V: npt.NDArray[np.float64]) -> None:
    """Write the softmax over the tokens up to (`last_logit`, `last_id`) in order of falling logit, then rising id.

    The sum runs over integers as everywhere here: at most 2^22 tokens of `MASS_ONE`.
    """
    for v in range(scaled_V.size):
        x = scaled_V[v]
        is_kept = (x > last_logit) | ((x == last_logit) & (v <= last_id))
        out_V[v] = np.float64(exponential(x)) * np.float64(is_kept)
    mass = np.int64(0)
    for v in range(scaled_V.size):
        mass += np.int64(out_V[v] * MASS_ONE)
    total = np.float64(mass) / MASS_ONE
    for v in range(scaled_V.size):
        out_V[v] /= total


@compiled
def histogram(
    scaled_V: FloatArray, floor: np.float32, mass_V: IntArray, bucket_V: npt.NDArray[np.int32], totals_2B: IntArray
) -> None:
    """Sort tokens coarsely by their distance below the largest logit.

    Args:
        scaled_V: scaled logits, the largest is 0.
        floor: tokens below it go to the last bucket, which holds the excluded ones; finite, so -inf goes there too.
        mass_V: written: mass of each token.
        bucket_V: written: bucket of each token; it never falls as the logit falls.
        totals_2B: written: tokens per bucket and mass per bucket, `NUM_BUCKETS` + 1 entries each.
    """
    for v in range(scaled_V.size):
        mass_V[v] = np.int64(exponential(scaled_V[v]) * np.float32(MASS_ONE))
    for v in range(scaled_V.size):
        t = np.float32(scaled_V[v])
        bucket = np.int32(np.float32(-t).view(np.int32) >> np.int32(16)) - np.int32(_FIRST_BUCKET)
        bucket = min(max(np.int32(bucket), np.int32(0)), np.int32(NUM_BUCKETS - 1))
        bucket_V[v] = bucket if t >= floor else np.int32(NUM_BUCKETS)
    totals_2B[:] = 0
    for v in range(scaled_V.size):
        totals_2B[0, bucket_V[v]] += 1
        totals_2B[1, bucket_V[v]] += mass_V[v]


@compiled
def count_before(row_V: FloatArray, token_id: int) -> int:
    """Tokens before a token in order of falling logit, then rising id."""
    x = row_V[token_id]
    num_before = 0
    for v in range(row_V.size):
        num_before += row_V[v] > x
    for v in range(token_id):
        num_before += row_V[v] == x
    return num_before


@compiled
def top_ids(row_V: FloatArray, ids_T: IntArray) -> None:
    """Write the ids of the largest values, best first, the lowest id first among equals. T <= V; no NaN."""
    num_blocks = (row_V.size + _BLOCK - 1) // _BLOCK
    best_in = np.empty(num_blocks, np.int64)
    for block in range(num_blocks):
        best_in[block] = _next_in_block(row_V, block, np.float32(np.inf), -1)
    for place in range(ids_T.size):
        winner = -1
        for block in range(num_blocks):
            v = best_in[block]
            if v >= 0 and (winner < 0 or row_V[v] > row_V[best_in[winner]]):
                winner = block
        ids_T[place] = best_in[winner]
        best_in[winner] = _next_in_block(row_V, winner, row_V[ids_T[place]], ids_T[place])


@compiled
def _next_in_block(row_V: FloatArray, block: int, value: np.float32, token_id: int) -> int:
    """The token of a block that follows (value, token_id) in order of falling logit, then rising id; -1 for none."""
    best_id = -1
    for v in range(block * _BLOCK, min((block + 1) * _BLOCK, row_V.size)):
        x = row_V[v]
        follows = x < value or (x == value and v > token_id)
        if follows and (best_id < 0 or x > row_V[best_id]):
            best_id = v
    return best_id
