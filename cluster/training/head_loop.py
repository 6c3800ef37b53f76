"""Trains a head on the target's distributions, all steps of a draft at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path

import torch
from torch import Tensor

from cluster.training.dataset import Batch, LabelledText, epoch_batches
from cluster.training.draft_net import DraftNet, head_batch, step_weights
from cluster.training.features import FeatureStore
from cluster.training.held_out import HeldOut, HeldOutTally, column_of, lumped_divergence
from cluster.training.loop import LoopConfig, TrainingLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutSteps:
    """How near a head is to the target at each step of a draft whose earlier tokens were all right.

    Attributes:
        steps: one after the other.
    """

    steps: tuple[HeldOut, ...]

    @property
    def greedy_length(self) -> float:
        """Mean acceptance length that follows from the steps at temperature 0."""
        return _length([step.same_top_ratio for step in self.steps])

    @property
    def sampled_length(self) -> float:
        """The same at temperature 1 under the ratio rule."""
        return _length([step.overlap_ratio for step in self.steps])


def _length(rates: Sequence[float]) -> float:
    """Tokens of a round whose drafts are accepted with these chances, each where all before it were."""
    reached: list[float] = list(accumulate(rates, mul))
    return 1.0 + sum(reached)


class HeadLoop(TrainingLoop):
    """Trains a head.

    Args:
        net: starts as it is.
        target_ids: token ids of its columns, int64 [V].
        vocab_size: of the target.
        config: how.
        folder: where the checkpoint lies; a run that finds one goes on from it, with the same texts to the same end.
        features: hidden states of the texts that it learns from.

    Raises:
        LoadError: the checkpoint is damaged, or one of another head.
    """

    def __init__(
        self,
        net: DraftNet,
        *,
        target_ids: Tensor,
        vocab_size: int,
        config: LoopConfig,
        folder: Path,
        features: FeatureStore,
    ) -> None:
        super().__init__(net, config, folder)
        self.net, self._features = net, features
        self.target_ids = target_ids.to(self._device)
        self._column_of = column_of(self.target_ids, vocab_size)
        self._weights = step_weights(net.num_steps)

    def _loss(self, batch: Batch) -> Tensor:
        """Lumped cross-entropy of all steps, weighted; f32 scalar."""
        heads = head_batch(batch, self._features.of(batch))
        loss = torch.zeros((), device=self._device)
        for step, hidden_RH in enumerate(self.net.hidden_steps(heads)):
            rows = heads.labelled(step)
            # Without rows too it must depend on the weights, so that a step can be taken.
            logits_RV = self.net.logits(hidden_RH[rows])
            if not len(rows):
                loss = loss + 0.0 * logits_RV.sum()
                continue
            labels = rows + 1 + step
            divergence = lumped_divergence(
                logits_RV, batch.label_ids[labels], batch.label_probs[labels], self._column_of
            )
            loss = loss + self._weights[step] * divergence
        return loss

    @torch.inference_mode()
    def evaluate(self, texts: Sequence[LabelledText], features: FeatureStore) -> HeldOutSteps:
        """Compare head and target on texts, at least one, step by step.

        Args:
            texts: labelled.
            features: their hidden states.
        """
        tallies = [HeldOutTally(self.target_ids, self._column_of) for _ in range(self.net.num_steps)]
        for padded in epoch_batches(texts, self._config.tokens_per_batch, 0):
            batch = padded.to(self._device)
            heads = head_batch(batch, features.of(batch))
            for step, hidden_RH in enumerate(self.net.hidden_steps(heads)):
                rows = heads.labelled(step)
                labels = rows + 1 + step
                if len(rows):
                    tallies[step].add(
                        self.net.logits(hidden_RH[rows]), batch.label_ids[labels], batch.label_probs[labels]
                    )
        return HeldOutSteps(steps=tuple(tally.mean() for tally in tallies))
