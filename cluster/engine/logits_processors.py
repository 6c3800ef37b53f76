"""What turns raw logits into the logits that are drawn from, one row at a time.

The order is vLLM's: allowed ids, bad words, minimum length, logit bias; then penalties (repetition over prompt and
output, frequency and presence over output); then the grammar; then temperature; then min-p, top-k and top-p, in this
order, each over what the ones before it left. Everything is float32.

Truncation keeps a prefix of the tokens in order of falling logit, then rising id: exactly k tokens for top-k, also when
logits are equal. So it is described by the last kept token, a `Cut`.

Legend: V vocabulary, B buckets, M members of one bucket, U distinct tokens.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from cluster.engine import sampler_kernels as kernels
from cluster.engine.noise import FloatArray, IntArray
from cluster.grammar.matcher import Mask
from cluster.types import SamplingParams

GREEDY_TEMPERATURE = 1e-5
"""Temperatures below this are greedy, as in vLLM."""

_LOWEST = float(np.finfo(np.float32).min)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRow:
    """What one row of logits is drawn with.

    Attributes:
        params: sampling parameters of the choice.
        output_index: index of the token to draw, counted from the first generated token of the request.
        prompt_token_ids: the prompt. A tuple is best: its distinct ids are then remembered from round to round.
        output_token_ids: output before this row, with the draft tokens assumed accepted, so that penalties are exact
            for every draft position.
        assumed_token_id: the draft token that this row's logits assume at the row before it. When that row draws
            another token (or was skipped itself), the row cannot matter and is skipped. None: always drawn.
        assumed_row: in a tree, the index of the row at which `assumed_token_id` is assumed; None for the one before.
        allowed: asked once the row is drawn for the tokens that its grammar allows, as `GrammarMatcher.allowed` gives
            them; None for no grammar.
    """

    params: SamplingParams
    output_index: int
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    assumed_token_id: int | None = None
    assumed_row: int | None = None
    allowed: Callable[[], Mask] | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The last token that survives truncation: its scaled logit and its id."""

    logit: float = _LOWEST
    token_id: int = 1 << 31


class IdentityCache(Generic[K, V]):
    """Remembers what was computed from an immutable object, found by identity: hashing a long prompt costs too much.

    Args:
        compute: called once per object while it is remembered.
        max_entries: the entry used longest ago goes first.
    """

    def __init__(self, compute: Callable[[K], V], max_entries: int = 256) -> None:
        self._compute, self._max_entries = compute, max_entries
        # The object is stored too: while it lives here, its id cannot pass to another object.
        self._entries: OrderedDict[int, tuple[K, V]] = OrderedDict()

    def get(self, key: K) -> V:
        """The value computed from this very object."""
        entry = self._entries.get(id(key))
        if entry is None:
            entry = self._entries[id(key)] = (key, self._compute(key))
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(id(key))
        return entry[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Masks:
    """The parts of `SamplingParams` that name token ids, as arrays without ids outside the vocabulary."""

    allowed_ids: IntArray | None
    bad_words: tuple[tuple[int, ...], ...]
    stop_ids: IntArray
    eos_ids: IntArray
    bias_ids: IntArray
    biases: FloatArray


class LogitsProcessors:
    """Everything before temperature.

    Args:
        vocab_size: V.
        eos_token_ids: ids that end a choice unless it ignores EOS.
    """

    def __init__(self, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        self._vocab_size, self._eos_token_ids = vocab_size, eos_token_ids
        self._masks = IdentityCache(self._resolve)
        self._prompts: IdentityCache[tuple[int, ...], IntArray] = IdentityCache(self._distinct)

    def applies_to(self, row: SamplingRow) -> bool:
        """False when the row's logits stay as they are."""
        params = row.params
        return bool(
            row.allowed is not None
            or params.logit_bias
            or params.allowed_token_ids
            or params.bad_words
            or params.repetition_penalty != 1.0
            or params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
            or row.output_index < params.min_tokens
        )

    def apply(self, logits_V: FloatArray, row: SamplingRow, mask_W: Mask | None = None) -> None:
        """Change the logits of one row in place.

        Args:
            logits_V: changed.
            row: the settings.
            mask_W: what the row's grammar allows; None for no grammar.
        """
        masks = self._masks.get(row.params)
        if masks.allowed_ids is not None:
            kept_U = logits_V[masks.allowed_ids]
            logits_V.fill(-np.inf)
            logits_V[masks.allowed_ids] = kept_U
        for *prefix, last in masks.bad_words:
            if not prefix or list(row.output_token_ids[-len(prefix) :]) == prefix:
                logits_V[last] = -np.inf
        if row.output_index < row.params.min_tokens:
            logits_V[masks.stop_ids] = -np.inf
        if masks.bias_ids.size:
            np.add.at(logits_V, masks.bias_ids, masks.biases)
        self._penalise(logits_V, row)
        if mask_W is not None:
            kernels.keep_allowed(logits_V, mask_W)
            if row.params.ignore_eos:  # To be ignored, it would have to be text that the grammar goes on from.
                logits_V[masks.eos_ids] = -np.inf

    def fallback(self, raw_V: FloatArray, row: SamplingRow, mask_W: Mask | None = None) -> int:
        """The token when everything is masked: the largest raw logit among the allowed ids, the lowest id among equals.

        So a request whose settings contradict each other (its only allowed word is a bad word) keeps what it allows. A
        grammar wins over all of them: where it allows none of the allowed ids, these do not count.
        """
        ids_U = self._masks.get(row.params).allowed_ids
        if mask_W is not None:
            grammar_ids_U = ids_of(mask_W, self._vocab_size)
            both_U = grammar_ids_U if ids_U is None else np.intersect1d(grammar_ids_U, ids_U)
            ids_U = both_U if both_U.size else grammar_ids_U
        if ids_U is None or not ids_U.size:
            return int(np.argmax(raw_V))
        return int(ids_U[np.argmax(raw_V[ids_U])])

    def _resolve(self, params: SamplingParams) -> _Masks:
        stop_ids = set(params.stop_token_ids)
        if not params.ignore_eos:
            stop_ids |= self._eos_token_ids
        biases = [(token_id, bias) for token_id, bias in params.logit_bias if 0 <= token_id < self._vocab_size]
        return _Masks(
            allowed_ids=self._distinct(params.allowed_token_ids) if params.allowed_token_ids else None,
            bad_words=tuple(word for word in params.bad_words if word and 0 <= word[-1] < self._vocab_size),
            stop_ids=self._distinct(tuple(stop_ids)),
            eos_ids=self._distinct(tuple(self._eos_token_ids)),
            bias_ids=np.array([token_id for token_id, _ in biases], dtype=np.int64),
            biases=np.array([bias for _, bias in biases], dtype=np.float32),
        )

    def _distinct(self, token_ids: Sequence[int]) -> IntArray:
        ids_U = np.unique(np.asarray(token_ids, dtype=np.int64))
        return ids_U[(ids_U >= 0) & (ids_U < self._vocab_size)]

    def _penalise(self, logits_V: FloatArray, row: SamplingRow) -> None:
        params = row.params
        if params.repetition_penalty != 1.0:
            prompt = row.prompt_token_ids
            prompt_ids_U = self._prompts.get(prompt) if isinstance(prompt, tuple) else self._distinct(prompt)
            ids_U = np.union1d(prompt_ids_U, self._distinct(row.output_token_ids))
            penalty = np.float32(params.repetition_penalty)
            seen_U = logits_V[ids_U]
            logits_V[ids_U] = np.where(seen_U > 0, seen_U / penalty, seen_U * penalty)
        if (params.presence_penalty or params.frequency_penalty) and len(row.output_token_ids):
            ids_U, counts_U = np.unique(np.asarray(row.output_token_ids, dtype=np.int64), return_counts=True)
            known_U = (ids_U >= 0) & (ids_U < self._vocab_size)
            ids_U, counts_U = ids_U[known_U], counts_U[known_U]
            logits_V[ids_U] -= np.float32(params.frequency_penalty) * counts_U.astype(np.float32)
            logits_V[ids_U] -= np.float32(params.presence_penalty)


class Truncation:
    """min-p, top-k and top-p without sorting the vocabulary: a histogram first, then the one bucket with the cut in it.

    Holds working memory for one row, so one thread at a time.

    Args:
        vocab_size: V.
    """

    def __init__(self, vocab_size: int) -> None:
        self._mass_V = np.empty(vocab_size, np.int64)
        self._bucket_V = np.empty(vocab_size, np.int32)
        self._totals_2B = np.empty((2, kernels.NUM_BUCKETS + 1), np.int64)

    def find_cut(self, scaled_V: FloatArray, params: SamplingParams) -> Cut:
        """Where the prefix of kept tokens ends.

        Args:
            scaled_V: scaled logits, the largest is 0.
            params: min_p, top_k and top_p are read.
        """
        floor = min_p_floor(params.min_p)
        if params.top_k <= 0 and params.top_p >= 1.0:
            return Cut(logit=floor)
        kernels.histogram(scaled_V, np.float32(floor), self._mass_V, self._bucket_V, self._totals_2B)
        counts_B, masses_B = np.cumsum(self._totals_2B[:, :-1], axis=1)
        cut, total = Cut(logit=floor), int(masses_B[-1])
        if 0 < params.top_k < counts_B[-1]:
            bucket = int(np.searchsorted(counts_B, params.top_k))
            members_M = self._members(scaled_V, bucket)
            num_kept = params.top_k - int(counts_B[bucket] - self._totals_2B[0, bucket])
            total = self._mass_before(masses_B, bucket) + int(self._mass_V[members_M[:num_kept]].sum())
            cut = _cut_at(scaled_V, int(members_M[num_kept - 1]))
        if params.top_p < 1.0:
            target = top_p_target(params.top_p, total)
            bucket = int(np.searchsorted(masses_B, target))
            members_M = self._members(scaled_V, bucket)
            running_M = self._mass_before(masses_B, bucket) + np.cumsum(self._mass_V[members_M])
            cut = _cut_at(scaled_V, int(members_M[np.searchsorted(running_M, target)]))
        return cut

    def _mass_before(self, masses_B: IntArray, bucket: int) -> int:
        return int(masses_B[bucket] - self._totals_2B[1, bucket])

    def _members(self, scaled_V: FloatArray, bucket: int) -> IntArray:
        members_M = np.flatnonzero(self._bucket_V == bucket)
        return members_M[np.argsort(-scaled_V[members_M], kind="stable")]


def ids_of(mask_W: Mask, vocab_size: int) -> IntArray:
    """The token ids that a mask allows, rising."""
    return np.flatnonzero(np.unpackbits(mask_W.view(np.uint8), count=vocab_size, bitorder="little"))


def min_p_floor(min_p: float) -> float:
    """Lowest scaled logit (the largest is 0) that min-p keeps: its float32 logarithm."""
    return float(np.float32(math.log(min_p))) if min_p > 0.0 else _LOWEST


def top_p_target(top_p: float, total: int) -> int:
    """Mass at which the nucleus is complete: it ends with the first token that brings the running sum to this."""
    return max(1, min(math.ceil(top_p * total), total))


def _cut_at(scaled_V: FloatArray, token_id: int) -> Cut:
    return Cut(logit=float(scaled_V[token_id]), token_id=token_id)
