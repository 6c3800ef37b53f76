"""What is learnt, and how near it has come: the target's labels against logits over a part of its vocabulary."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Shapes: R rows, C labels of a row, V columns of the head.


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """How near a draft model is to the target on text that it did not learn from.

    Attributes:
        loss: lumped cross-entropy in nats.
        same_top_ratio: share of positions where both find the same token likeliest: acceptance of one token at T = 0.
        overlap_ratio: mean of sum_x min(p, q) over the target's likeliest tokens: the ratio rule's acceptance at T = 1.
    """

    loss: float
    same_top_ratio: float
    overlap_ratio: float


class HeldOutTally:
    """Adds up rows for a `HeldOut`.

    Args:
        target_ids: token ids of the head's columns, int64 [V].
        columns: from `column_of`.
    """

    def __init__(self, target_ids: Tensor, columns: Tensor) -> None:
        self._target_ids, self._column_of = target_ids, columns
        self._num_rows, self._loss, self._same_top, self._overlap = 0, 0.0, 0, 0.0

    def add(self, logits_RV: Tensor, label_ids_RC: Tensor, label_probs_RC: Tensor) -> None:
        """Count rows, at least one."""
        columns_RC = self._column_of[label_ids_RC]
        own_RC = logits_RV.softmax(-1).gather(1, columns_RC.clamp(min=0)) * (columns_RC >= 0)
        loss = lumped_divergence(logits_RV, label_ids_RC, label_probs_RC, self._column_of)
        self._loss += len(logits_RV) * float(loss)
        self._same_top += int((self._target_ids[logits_RV.argmax(-1)] == label_ids_RC[:, 0]).sum())
        self._overlap += float(torch.minimum(own_RC, label_probs_RC).sum())
        self._num_rows += len(logits_RV)

    def mean(self) -> HeldOut:
        """Over all rows; zeros without any."""
        count = max(1, self._num_rows)
        return HeldOut(
            loss=self._loss / count, same_top_ratio=self._same_top / count, overlap_ratio=self._overlap / count
        )


def column_of(target_ids: Tensor, vocab_size: int) -> Tensor:
    """Column of each token id, -1 outside the head, int64 [vocab_size].

    Args:
        target_ids: token ids of the head's columns, int64 [V].
        vocab_size: of the target.
    """
    columns = torch.full((vocab_size,), -1, dtype=torch.long, device=target_ids.device)
    columns[target_ids] = torch.arange(len(target_ids), device=target_ids.device)
    return columns


def lumped_divergence(logits_RV: Tensor, label_ids_RC: Tensor, label_probs_RC: Tensor, columns: Tensor) -> Tensor:
    """Cross-entropy of the target's likeliest tokens, one by one, and of all others taken together; mean over rows.

    Tokens outside the head count as "others", where the draft model can put no more than the rest of its own mass.

    Args:
        logits_RV: the draft model's, over the head's columns.
        label_ids_RC: the target's likeliest tokens.
        label_probs_RC: their probabilities.
        columns: column of a token id, -1 outside the head, int64 [vocabulary].
    """
    columns_RC = columns[label_ids_RC]
    inside_RC = columns_RC >= 0
    probs_RC = label_probs_RC * inside_RC
    logs_RC = logits_RV.log_softmax(-1).gather(1, columns_RC.clamp(min=0))
    own_R = (logs_RC.exp() * inside_RC).sum(1)
    rest_R = 1.0 - probs_RC.sum(1)
    loss_R = -(probs_RC * logs_RC).sum(1) - rest_R.clamp(min=0.0) * (1.0 - own_R).clamp(min=1e-4).log()
    return loss_R.mean()
