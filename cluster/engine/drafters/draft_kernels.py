"""Scores of a draft model's rows and the best columns of each, compiled: the inner loops of `draft_sampling`.

Self-contained, because numba's cache notices a change only in the file of the kernel itself. The arithmetic is that of
the target's sampler, operation by operation: equal logits give equal tokens.

Legend: N rows, C columns of the head, M noise vectors, F candidates, J columns of one block.
"""

import numpy as np

from cluster.engine.jit import compiled
from cluster.engine.noise import FloatArray, IntArray

NO_COLUMN = -1
_BLOCK = 256
_LOWEST = np.float32(-80.0)
_LOG2_E = np.float32(1.4426950408889634)


@compiled
def rank_rows(  # noqa: PLR0917  (numba kernels take no keywords)
    logits_NC: FloatArray,
    temperatures_N: FloatArray,
    noise: tuple[FloatArray, IntArray],
    excluded_N: IntArray,
    counts_N: IntArray,
    work_C: FloatArray,
    columns_NF: IntArray,
    shares: tuple[FloatArray, FloatArray],
) -> None:
    """Write the best columns of each row, best first, the lowest first among equals; the rest stays as it is.

    Where shares are wanted, a column's is exp(sharpness * score) over the sum of that over all columns. Rows of
    sharpness 0 have none.

    Args:
        logits_NC: rows of logits.
        temperatures_N: 0 for a greedy row, whose noise is not read.
        noise: vectors [M, C], and the vector of each row.
        excluded_N: a column that is left out, or a negative number.
        counts_N: columns wanted.
        work_C: overwritten.
        columns_NF: written.
        shares: sharpness of each row [N], and shares of the best columns [N, F], written; [0, 0] where none are wanted.
    """
    vectors_MC, slots_N = noise
    sharpness_N, shares_NF = shares
    scores_F = np.empty(columns_NF.shape[1], np.float32)
    for n in range(logits_NC.shape[0]):
        logits_C, temperature = logits_NC[n], temperatures_N[n]
        if temperature > 0:
            top, noise_C = _largest(logits_C), vectors_MC[slots_N[n]]
            for c in range(logits_C.size):
                work_C[c] = np.float32(np.float32(logits_C[c] - top) / temperature) + noise_C[c]
        else:
            for c in range(logits_C.size):
                work_C[c] = logits_C[c]
        if excluded_N[n] >= 0:
            work_C[excluded_N[n]] = -np.inf
        num_found = _select(work_C, counts_N[n], scores_F, columns_NF[n])
        if shares_NF.size and sharpness_N[n] > 0 and num_found:
            _share(work_C, sharpness_N[n], scores_F[:num_found], shares_NF[n])


@compiled
def _share(work_C: FloatArray, sharpness: np.float32, scores_F: FloatArray, shares_F: FloatArray) -> None:
    """Write the softmax of the best scores over all columns."""
    best, sums_J = scores_F[0], np.zeros(_BLOCK, np.float32)
    for start in range(0, work_C.size, _BLOCK):
        block_J = work_C[start : start + _BLOCK]
        for j in range(block_J.size):
            sums_J[j] += _power(np.float32(block_J[j] - best) * sharpness)
    total = sums_J.sum()
    for f in range(scores_F.size):
        shares_F[f] = _power(np.float32(scores_F[f] - best) * sharpness) / total


@compiled
def _power(x: np.float32) -> np.float32:
    """Exp of a number up to 0, to about 1e-4 of its value, in operations that LLVM vectorises."""
    x = np.float32(max(x, _LOWEST) * _LOG2_E)
    whole = np.floor(x)
    rest = np.float32(x - whole)
    # 2**rest as 1 + rest * (a + rest * (b + rest * c)): least squares of the relative error, exact at both ends.
    curve = np.float32(0.695502) + rest * (np.float32(0.22627) + rest * np.float32(0.078228))
    bits = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23))
    return np.float32((np.float32(1.0) + rest * curve) * bits.view(np.float32))


@compiled
def _largest(row_C: FloatArray) -> np.float32:
    """The largest value of a row without NaN, through integers that rise with the floats: LLVM vectorises those."""
    best = np.int32(-0x80000000)
    for c in range(row_C.size):
        bits = np.float32(row_C[c]).view(np.int32)
        best = max(best, np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))))
    return np.int32(best ^ ((best >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)


@compiled
def _select(work_C: FloatArray, count: int, scores_F: FloatArray, columns_F: IntArray) -> int:
    """Insert into a short sorted list whatever beats its end; blocks without such a value cost one vectorised pass.

    Returns:
        How many were found.
    """
    num_found, bar = 0, np.float32(-np.inf)
    for start in range(0, work_C.size, _BLOCK):
        block_J = work_C[start : start + _BLOCK]
        num_hits = 0
        for j in range(block_J.size):
            num_hits += block_J[j] > bar
        if num_hits == 0:
            continue
        for j in range(block_J.size):
            score = block_J[j]
            if not score > bar:
                continue
            place = min(num_found, count - 1)
            while place > 0 and scores_F[place - 1] < score:
                scores_F[place], columns_F[place] = scores_F[place - 1], columns_F[place - 1]
                place -= 1
            scores_F[place], columns_F[place] = score, start + j
            num_found = min(num_found + 1, count)
            if num_found == count:
                bar = scores_F[count - 1]
    return num_found
