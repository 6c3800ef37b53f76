"""What the kinds of heads have in common while they learn.

Step k of a head guesses, from the target's hidden state at position t and the tokens up to t + 1 + k, the token at
t + 2 + k: what the draft's token k is when t + 1 is the last committed token. Tokens and hidden states are the text's
own (arXiv 2503.01840, section 3.2: training-time test).

Shapes: B texts, L positions, R labelled rows of all texts, F features, H hidden size, V columns of the head.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cluster.training.dataset import Batch
from cluster.training.loop import TrainedModule


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadBatch:
    """Texts with the target's hidden states.

    Attributes:
        token_ids: int64 [B, L].
        features: float32 [B, L, F].
        rows: flat index b * L + t of each position from which drafts start, int64 [R]; those of a text are consecutive.
        texts: text b of each row, rising, int64 [R].
    """

    token_ids: Tensor
    features: Tensor
    rows: Tensor
    texts: Tensor

    @property
    def positions(self) -> Tensor:
        """Position in its text of each row, int64 [R]."""
        return self.rows % self.token_ids.shape[1]

    def tokens_behind(self, distance: int) -> Tensor:
        """The token so many places behind each row, int64 [R]; behind the end of all texts, the last one."""
        flat = self.token_ids.flatten()
        return flat[(self.rows + distance).clamp(max=len(flat) - 1)]

    def labelled(self, step: int) -> Tensor:
        """Rows whose draft token `step` has a label, int64 [<= R]; row r's label is that of row r + 1 + step."""
        distance = 1 + step
        return (self.texts[distance:] == self.texts[:-distance]).nonzero().flatten()


def head_batch(batch: Batch, features_BLF: Tensor) -> HeadBatch:
    """A batch for heads: drafts start wherever the next token is labelled."""
    texts = batch.rows // batch.token_ids.shape[1]
    return HeadBatch(token_ids=batch.token_ids, features=features_BLF, rows=batch.rows, texts=texts)


class DraftNet(TrainedModule):
    """A head in training.

    Attributes:
        num_steps: tokens of a draft that it learns.
        feature_layers: whose hidden states it reads, as `RoundFeatures` counts them.
    """

    num_steps: int
    feature_layers: tuple[int, ...]

    def hidden_steps(self, batch: HeadBatch) -> Iterator[Tensor]:
        """What the output matrix reads at each row, f32 [R, H], step by step."""
        raise NotImplementedError

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Logits over the head's columns, f32 [R, V]."""
        raise NotImplementedError


def step_weights(num_steps: int) -> list[float]:
    """How much each step counts: later ones matter only where all before them were right. Sums to 1."""
    weights = torch.tensor(0.8).pow(torch.arange(num_steps))
    return [float(weight) for weight in weights / weights.sum()]
