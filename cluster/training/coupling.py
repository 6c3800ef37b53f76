"""Coupled acceptance of one token against the ratio rule's expectation, on the same pairs of full distributions.

Both rules accept a guess of one token from distributions p (target) and q (draft model). The ratio rule (Leviathan et
al., arXiv 2211.17192) accepts with chance sum_x min(p_x, q_x) = 1 - TV, which no rule surpasses. The coupled rule
accepts where both draw the same token with the same Gumbel noise (DESIGN section 5): counted over many seeds here.

Legend: N positions, V vocabulary, C columns of the draft model's head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.noise import gumbel
from cluster.training.acceptance import WrittenText

Int64 = npt.NDArray[np.int64]

_MAX_TEXT_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Coupling:
    """The two rules side by side, at temperature 1.

    Attributes:
        num_pairs: pairs of distributions.
        num_draws: draws of both with the same noise.
        coupled_rate: share of draws that agree.
        ratio_rate: mean of sum_x min(p_x, q_x).
    """

    num_pairs: int
    num_draws: int
    coupled_rate: float
    ratio_rate: float

    @property
    def share(self) -> float:
        """Coupled acceptance in shares of the best possible."""
        return self.coupled_rate / self.ratio_rate if self.ratio_rate else 0.0


def compare_rules(
    target: ModelRunner,
    draft: ModelRunner,
    target_ids: Sequence[int] | None,
    texts: Sequence[WrittenText],
    *,
    num_positions: int,
    num_seeds: int,
    on_text: Callable[[], object],
) -> Coupling:
    """Compare both rules at the output positions of texts. Overwrites the KV of both models.

    Args:
        target: the target.
        draft: the draft model; its logits have a column for each entry of `target_ids`.
        target_ids: token ids of the columns; None when column i is token i.
        texts: longer ones than either model takes are left out.
        num_positions: most positions of a text, at equal distances.
        num_seeds: draws at each position.
        on_text: told of each text.
    """
    num_pairs, num_equal, overlap = 0, 0, 0.0
    limit = min(target.max_model_len, draft.max_model_len, _MAX_TEXT_TOKENS)
    ids = torch.arange(draft.vocab_size) if target_ids is None else torch.as_tensor(target_ids).long()
    for index, text in enumerate(texts):
        rows = _positions(text, num_positions)
        if rows.size and len(text.token_ids) <= limit:
            p_logits_NV = log_probs(target, text.token_ids, rows)
            q_logits_NC = log_probs(draft, text.token_ids, rows)[:, : len(ids)].log_softmax(-1)
            overlap += float(overlaps(p_logits_NV, q_logits_NC, ids).sum())
            num_pairs += len(rows)
            for seed in range(num_seeds):
                num_equal += count_equal_draws(p_logits_NV, q_logits_NC, ids, index * num_seeds + seed)
        on_text()
    num_draws = num_pairs * num_seeds
    return Coupling(
        num_pairs=num_pairs,
        num_draws=num_draws,
        coupled_rate=num_equal / max(1, num_draws),
        ratio_rate=overlap / max(1, num_pairs),
    )


def log_probs(runner: ModelRunner, token_ids: Sequence[int], rows: Int64) -> Tensor:
    """Log-probabilities of what follows the given positions of a text, f32 [N, columns] on the CPU."""
    length = len(token_ids)
    positions = np.arange(length, dtype=np.int32)
    batch = ModelInput(
        token_ids=np.array(token_ids, np.int32),
        positions=positions,
        slot_mapping=positions,
        row_sequences=np.zeros(length, np.int32),
        block_tables=np.arange(-(-length // runner.block_size), dtype=np.int32)[None],
        logit_rows=rows.astype(np.int32),
    )
    return runner.forward(batch).to("cpu", torch.float32).log_softmax(-1)


def overlaps(p_logits_NV: Tensor, q_logits_NC: Tensor, ids_C: Tensor) -> Tensor:
    """What the ratio rule accepts: sum_x min(p_x, q_x), [N]. Tokens outside the draft model's head add nothing."""
    return torch.minimum(p_logits_NV[:, ids_C], q_logits_NC).exp().sum(-1)


def count_equal_draws(p_logits_NV: Tensor, q_logits_NC: Tensor, ids_C: Tensor, seed: int) -> int:
    """At how many positions both draw the same token; position n is the output index of the noise."""
    num_equal = 0
    for n in range(len(p_logits_NV)):
        noise_V = gumbel(seed, n, p_logits_NV.shape[1])
        target_draw = int((p_logits_NV[n] + noise_V).argmax())
        draft_draw = int(ids_C[int((q_logits_NC[n] + noise_V[ids_C]).argmax())])
        num_equal += target_draw == draft_draw
    return num_equal


def _positions(text: WrittenText, count: int) -> Int64:
    """Positions whose next token the target wrote, rising, at most `count`."""
    first, last = text.num_prompt_tokens - 1, len(text.token_ids) - 2
    if last < first:
        return np.empty(0, np.int64)
    return np.unique(np.linspace(first, last, min(count, last - first + 1)).round().astype(np.int64))
