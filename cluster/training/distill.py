"""Distil a draft model from the labelled text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cluster.training.dataset import Batch, LabelledText, epoch_batches
from cluster.training.held_out import HeldOut, HeldOutTally, column_of, lumped_divergence
from cluster.training.loop import LoopConfig, Progress, TrainingLoop
from cluster.training.student import Student


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillConfig(LoopConfig):
    """How the student learns.

    Attributes:
        max_kept_bytes: memory for what the shared layers made of the texts.
    """

    max_kept_bytes: int = 4 << 30


class SharedStates:
    """Keeps what the student's shared layers made of each text, so that they read it once and not in every epoch.

    Args:
        student: whose shared layers read.
        max_bytes: of what is kept; texts beyond it are read again each time.
    """

    def __init__(self, student: Student, max_bytes: int) -> None:
        self._student, self._num_free_bytes = student, max_bytes
        self._kept: dict[int, Tensor] = {}

    def of(self, batch: Batch) -> Tensor:
        """What the shared layers make of a batch, f32 [B, L, H]."""
        texts = zip(batch.indices.tolist(), batch.token_ids, batch.lengths.tolist(), strict=True)
        states = [self._one(index, token_ids_L[:length]) for index, token_ids_L, length in texts]
        # The longest text of a batch has no padding, so that this is as long as the batch.
        return pad_sequence(states, batch_first=True).to(batch.token_ids.device, torch.float32)

    def _one(self, index: int, token_ids_L: Tensor) -> Tensor:
        """Of one text, bfloat16 [L, H]; read alone, so that its neighbours in a batch change no bit."""
        kept_LH = self._kept.get(index)
        if kept_LH is not None:
            return kept_LH
        hidden_LH = self._student.shared(token_ids_L[None])[0].to("cpu", torch.bfloat16)
        num_bytes = hidden_LH.numel() * hidden_LH.element_size()
        if num_bytes <= self._num_free_bytes:
            self._num_free_bytes -= num_bytes
            self._kept[index] = hidden_LH
        return hidden_LH


class Distiller(TrainingLoop):
    """Trains a student on texts.

    Args:
        student: starts as it is.
        target_ids: token ids of the head's columns, int64 [V].
        vocab_size: of the target.
        config: how.
        folder: where the checkpoint lies; a run that finds one goes on from it, with the same texts to the same end.

    Raises:
        LoadError: the checkpoint is damaged, or one of another student.
    """

    def __init__(
        self, student: Student, target_ids: Tensor, vocab_size: int, config: DistillConfig, folder: Path
    ) -> None:
        super().__init__(student, config, folder)
        self.student, self._max_kept_bytes = student, config.max_kept_bytes
        self.target_ids = target_ids.to(self._device)
        self._column_of = column_of(self.target_ids, vocab_size)
        self._states: SharedStates | None = None

    def run(self, texts: Sequence[LabelledText], on_step: Callable[[Progress, float], object]) -> None:
        """Train until `is_done`; `on_step` hears of each step and its loss. The last checkpoint is of the end."""
        self._states = SharedStates(self.student, self._max_kept_bytes)
        super().run(texts, on_step)
        self._states = None

    def _loss(self, batch: Batch) -> Tensor:
        assert self._states is not None, "only within a run"
        # float32: without matrix units bf16 products are slower on a CPU.
        logits_RV = self.student.own(self._states.of(batch), batch.rows)
        return lumped_divergence(logits_RV, batch.label_ids, batch.label_probs, self._column_of)

    @torch.inference_mode()
    def evaluate(self, texts: Sequence[LabelledText]) -> HeldOut:
        """Compare student and target on texts, at least one."""
        self.student.eval()
        tally = HeldOutTally(self.target_ids, self._column_of)
        for padded in epoch_batches(texts, self._config.tokens_per_batch, 0):
            batch = padded.to(self._device)
            tally.add(self.student(batch.token_ids, batch.rows), batch.label_ids, batch.label_probs)
        self.student.train()
        return tally.mean()
