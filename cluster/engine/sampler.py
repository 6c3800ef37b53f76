"""Draws the target's tokens: x_t = argmax_v (processed logit_t[v] + g(seed, t, v)), DESIGN section 5.

One row after another, each in a few passes over a float32 copy that stays in the processor's cache. So a row's token,
entropy and log-probabilities cannot depend on the other rows, and 64 rows need no more memory than one.

Legend: N rows, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cluster.engine import sampler_kernels as kernels
from cluster.engine import sampling_reference
from cluster.engine.logits_processors import (
    GREEDY_TEMPERATURE,
    Cut,
    LogitsProcessors,
    SamplingRow,
    Truncation,
)
from cluster.engine.logprobs import RowStats, row_stats, token_logprobs
from cluster.engine.noise import FloatArray, noisy_argmax, row_key
from cluster.errors import OutriderError
from cluster.grammar.matcher import GrammarStateError
from cluster.types import SamplingParams, TokenLogprobs

__all__ = ["NO_TOKEN", "NonFiniteLogitsError", "Sampler", "SamplerOutput", "SamplingRow", "processed_logits"]

NO_TOKEN = -1
"""Token id of a row that has none. Never a model input: indexing an embedding with it fails."""


class NonFiniteLogitsError(OutriderError):
    """A row of logits holds NaN or +inf, or nothing finite: it defines no distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOutput:
    """What was drawn, one entry per row.

    Attributes:
        token_ids: the drawn tokens; `NO_TOKEN` in rows that are invalid or were skipped.
        entropy_bits: entropy of the raw model distribution (no setting applied, temperature 1); 0 where no token is.
        logprobs: under the raw model distribution; None where not asked for or no token is.
        invalid: rows whose logits hold NaN or +inf, or come to hold it through bias or penalties, or hold nothing
            finite; and rows whose grammar cannot be followed any further. Their sequences must end with an error; the
            other rows are not touched by it.
    """

    token_ids: list[int]
    entropy_bits: list[float]
    logprobs: list[TokenLogprobs | None]
    invalid: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Processed:
    """A row after everything but temperature and truncation.

    Attributes:
        logits_V: valid until the next row.
        top: the largest of them.
        top_id: the lowest id that has it.
        is_settled: the token is `top_id`, without a draw.
        stats: of the raw logits.
    """

    logits_V: FloatArray  # noqa: N815  (it ends in its shape)
    top: float
    top_id: int
    is_settled: bool
    stats: RowStats


class Sampler:
    """Draws tokens for rows of logits. Not thread safe: it holds working memory for one row.

    Construction compiles the kernels, or loads them from numba's cache.

    Args:
        vocab_size: V; further columns of the logits (padding) are ignored.
        eos_token_ids: masked before `min_tokens` unless a choice ignores EOS.
        seed_of: seed of the noise that a choice's tokens are drawn with, by the choice's own; that itself by default.
    """

    def __init__(
        self, vocab_size: int, eos_token_ids: frozenset[int], seed_of: Callable[[int], int] | None = None
    ) -> None:
        self._vocab_size, self._seed_of = vocab_size, seed_of or (lambda seed: seed)
        self._processors = LogitsProcessors(vocab_size, eos_token_ids)
        self._truncation = Truncation(vocab_size)
        self._raw_V = np.empty(vocab_size, np.float32)
        self._processed_V = np.empty(vocab_size, np.float32)
        self._scaled_V = np.empty(vocab_size, np.float32)
        self._work_V = np.empty(vocab_size, np.float32)
        self._probability_V = np.empty(vocab_size, np.float64)
        self._warm_up()

    def sample(self, logits_NV: Tensor, rows: Sequence[SamplingRow]) -> SamplerOutput:
        """Draw one token per row.

        Args:
            logits_NV: raw logits in any float dtype, V or more columns; not changed.
            rows: N settings.
        """
        token_ids: list[int] = []
        entropies: list[float] = []
        logprobs: list[TokenLogprobs | None] = []
        invalid: list[int] = []
        for i, (source_V, row) in enumerate(zip(self._sources(logits_NV), rows, strict=True)):
            token_id, entropy_bits, entry = NO_TOKEN, 0.0, None
            if _is_due(row, token_ids):
                drawn = self._sample_row(source_V, row)
                if drawn is None:
                    invalid.append(i)
                else:
                    token_id, stats = drawn
                    entropy_bits = stats.entropy_bits
                    if row.params.logprobs is not None:
                        entry = token_logprobs(self._raw_V, stats, token_id, row.params.logprobs)
            token_ids.append(token_id)
            entropies.append(entropy_bits)
            logprobs.append(entry)
        return SamplerOutput(token_ids=token_ids, entropy_bits=entropies, logprobs=logprobs, invalid=tuple(invalid))

    def distribution(self, logits_1V: Tensor, row: SamplingRow) -> npt.NDArray[np.float64] | None:
        """The distribution that a row's token is drawn from, after every setting.

        Args:
            logits_1V: raw logits of one row, as for `sample`.
            row: the settings; whether the row is due is not asked.

        Returns:
            float64 [V], sums to 1; valid until the next call. None where the row is invalid.
        """
        processed = self._process(self._sources(logits_1V)[0], row)
        if processed is None:
            return None
        if processed.is_settled:
            self._probability_V.fill(0.0)
            self._probability_V[processed.top_id] = 1.0
            return self._probability_V
        self._scale(processed, row)
        cut = self._truncation.find_cut(self._scaled_V, row.params)
        kernels.probabilities(self._scaled_V, np.float32(cut.logit), cut.token_id, self._probability_V)
        return self._probability_V

    def draw_weighted(self, weights_V: npt.NDArray[np.float64], row: SamplingRow) -> int:
        """Draw a token of a row by given weights instead of its logits.

        Args:
            weights_V: not negative, not all 0; need not sum to 1.
            row: whose noise is used.
        """
        top_id = int(weights_V.argmax())
        with np.errstate(divide="ignore"):
            self._scaled_V[:] = np.log(weights_V / weights_V[top_id])
        return self._noisy_argmax(Cut(), top_id, row)

    def describe(self, logits_NV: Tensor, token_ids: Sequence[int], rows: Sequence[SamplingRow]) -> SamplerOutput:
        """What `sample` would say of tokens that were drawn elsewhere, one for each row."""
        entropies: list[float] = []
        logprobs: list[TokenLogprobs | None] = []
        for source_V, token_id, row in zip(self._sources(logits_NV), token_ids, rows, strict=True):
            stats = self._load(source_V)
            assert stats is not None, "nothing is drawn from a row without a distribution"
            entropies.append(stats.entropy_bits)
            num_top = row.params.logprobs
            logprobs.append(None if num_top is None else token_logprobs(self._raw_V, stats, token_id, num_top))
        return SamplerOutput(token_ids=list(token_ids), entropy_bits=entropies, logprobs=logprobs)

    def prompt_logprobs(self, logits_NV: Tensor, token_ids: Sequence[int], num_top: int) -> list[TokenLogprobs]:
        """Log-probabilities of given tokens, under the raw distribution.

        Args:
            logits_NV: raw logits of the positions before the tokens.
            token_ids: N tokens; row i predicts `token_ids[i]`.
            num_top: entries of each top list.

        Raises:
            NonFiniteLogitsError: a row defines no distribution.
        """
        entries = []
        for i, (source_V, token_id) in enumerate(zip(self._sources(logits_NV), token_ids, strict=True)):
            stats = self._load(source_V)
            if stats is None:
                raise NonFiniteLogitsError(f"row {i} of the logits holds NaN or +inf, or nothing finite")
            entries.append(token_logprobs(self._raw_V, stats, token_id, num_top))
        return entries

    def _sources(self, logits_NV: Tensor) -> npt.NDArray[Any]:
        """The rows as numpy arrays without a copy: bfloat16 as bit patterns, float32 as it is."""
        logits_NV = logits_NV.detach()[:, : self._vocab_size].cpu()
        if logits_NV.dtype == torch.bfloat16:
            return logits_NV.view(torch.uint16).numpy()
        return logits_NV.float().numpy()

    def _load(self, source_V: npt.NDArray[Any]) -> RowStats | None:
        if source_V.dtype == np.uint16:
            kernels.widen(source_V, self._raw_V)
        else:
            np.add(source_V, np.float32(0.0), out=self._raw_V)  # -0.0 becomes 0.0
        return row_stats(self._raw_V, self._work_V)

    def _sample_row(self, source_V: npt.NDArray[Any], row: SamplingRow) -> tuple[int, RowStats] | None:
        processed = self._process(source_V, row)
        if processed is None:
            return None
        if processed.is_settled:
            return processed.top_id, processed.stats
        self._scale(processed, row)
        cut = self._truncation.find_cut(self._scaled_V, row.params)
        return self._noisy_argmax(cut, processed.top_id, row), processed.stats

    def _process(self, source_V: npt.NDArray[Any], row: SamplingRow) -> "_Processed | None":
        """Everything before temperature; None where the row is invalid."""
        stats = self._load(source_V)
        if stats is None:
            return None
        is_greedy = row.params.temperature < GREEDY_TEMPERATURE
        if not self._processors.applies_to(row):
            return _Processed(self._raw_V, stats.top, stats.top_id, is_greedy, stats)
        processed_V = self._processed_V
        np.copyto(processed_V, self._raw_V)
        try:
            mask_W = None if row.allowed is None else row.allowed()
        except GrammarStateError:
            return None
        self._processors.apply(processed_V, row, mask_W)
        top, top_id, valid = kernels.scan(processed_V)
        if not valid:
            return None
        if top == -np.inf:
            return _Processed(processed_V, 0.0, self._processors.fallback(self._raw_V, row, mask_W), True, stats)
        return _Processed(processed_V, float(top), top_id, is_greedy, stats)

    def _scale(self, processed: "_Processed", row: SamplingRow) -> None:
        """Write the scaled logits."""
        temperature = np.float32(row.params.temperature)
        kernels.shift_and_scale(processed.logits_V, np.float32(processed.top), temperature, self._scaled_V)

    def _noisy_argmax(self, cut: Cut, top_id: int, row: SamplingRow) -> int:
        """Draw from the scaled logits; `top_id` has the largest."""
        key = row_key(self._seed_of(row.params.seed), row.output_index)
        return noisy_argmax(self._scaled_V, (np.float32(cut.logit), cut.token_id), top_id, key, self._work_V)

    def _warm_up(self) -> None:
        params = SamplingParams(max_tokens=1, seed=0, temperature=0.5, top_k=1, min_p=0.1, logprobs=1)
        row = SamplingRow(params=params, output_index=0, prompt_token_ids=(), output_token_ids=())
        for dtype in (torch.bfloat16, torch.float32):
            self.sample(torch.zeros(1, self._vocab_size, dtype=dtype), [row])
        self.distribution(torch.zeros(1, self._vocab_size), row)


def _is_due(row: SamplingRow, drawn: Sequence[int]) -> bool:
    """True where the rows before have drawn what this one assumes."""
    if row.assumed_token_id is None:
        return True
    before = drawn[-1:] if row.assumed_row is None else drawn[row.assumed_row : row.assumed_row + 1]
    return row.assumed_token_id in before


def processed_logits(logits_V: Tensor, row: SamplingRow, eos_token_ids: frozenset[int] = frozenset()) -> Tensor:
    """The reference: logits of one row after every setting, written plainly; the sampler must agree with it exactly.

    The drawn token is the lowest id among the largest of `processed_logits(...) + noise.gumbel(...)` in float32,
    without noise for a greedy row.

    Args:
        logits_V: raw logits in any float dtype.
        row: the settings.
        eos_token_ids: as given to `Sampler`.

    Returns:
        float32 [V], -inf for what cannot be drawn. Greedy rows keep their scale and are not truncated, which changes no
        argmax; others are shifted so that the largest is 0. If everything is masked, only the largest raw logit among
        the allowed ids (all ids without such a list) is left, at 0; with a grammar, among those of them that it
        allows, and where it allows none of them, among all that it allows.
    """
    return torch.from_numpy(sampling_reference.process(logits_V.detach().cpu().float().numpy(), row, eos_token_ids))
