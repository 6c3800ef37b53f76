"""Distil a draft model from the labelled text: the loop, its schedule, its checkpoints."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cluster.errors import LoadError
from cluster.training.dataset import Batch, LabelledText, epoch_batches
from cluster.training.student import Student, lumped_divergence

_WARM_UP_STEPS = 20
CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillConfig:
    """How the student learns.

    Attributes:
        num_tokens: tokens to learn from, repetitions counted.
        tokens_per_batch: padded tokens of one step.
        learning_rate: at its highest; falls to 0 as a half cosine.
        seed: order of the texts.
        checkpoint_interval_s: time between two checkpoints.
        max_kept_bytes: memory for what the shared layers made of the texts.
    """

    num_tokens: int
    tokens_per_batch: int = 1024
    learning_rate: float = 1e-3
    seed: int = 0
    checkpoint_interval_s: float = 120.0
    max_kept_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """How near the student is to the target on text that it did not learn from.

    Attributes:
        loss: lumped cross-entropy in nats.
        same_top_ratio: share of positions where both find the same token likeliest: acceptance of one token at T = 0.
        overlap_ratio: mean of sum_x min(p, q) over the target's likeliest tokens: the ratio rule's acceptance at T = 1.
    """

    loss: float
    same_top_ratio: float
    overlap_ratio: float


@dataclass(slots=True)
class Progress:
    """Where a run is; goes into the checkpoint.

    Attributes:
        num_steps: steps taken.
        num_tokens: tokens seen.
        epoch: repetition of the texts.
        batch: batches of this repetition that are done.
    """

    num_steps: int = 0
    num_tokens: int = 0
    epoch: int = 0
    batch: int = 0


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


class Distiller:
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
        self.student, self._config, self._folder = student, config, folder
        self._device = next(student.parameters()).device
        self.target_ids = target_ids.to(self._device)
        self._column_of = torch.full((vocab_size,), -1, dtype=torch.long, device=self._device)
        self._column_of[self.target_ids] = torch.arange(len(target_ids), device=self._device)
        self.progress = Progress()
        trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(trained, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self._saved_s = time.monotonic()
        if (folder / CHECKPOINT).exists():
            self._load()

    @property
    def is_done(self) -> bool:
        """True when the student has seen as many tokens as it shall."""
        return self.progress.num_tokens >= self._config.num_tokens

    def run(self, texts: Sequence[LabelledText], on_step: Callable[[Progress, float], object]) -> None:
        """Train until `is_done`; `on_step` hears of each step and its loss. The last checkpoint is of the end."""
        states = SharedStates(self.student, self._config.max_kept_bytes)
        while not self.is_done:
            batches = epoch_batches(texts, self._config.tokens_per_batch, self._config.seed + self.progress.epoch)
            for index, batch in enumerate(batches):
                if index < self.progress.batch:
                    continue
                loss = self._step(batch, states)
                self.progress.batch = index + 1
                on_step(self.progress, loss)
                if time.monotonic() - self._saved_s > self._config.checkpoint_interval_s:
                    self.save()
                if self.is_done:
                    break
            else:
                self.progress.epoch += 1
                self.progress.batch = 0
        self.save()

    def _step(self, padded: Batch, states: SharedStates) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.learning_rate * self._schedule()
        batch = padded.to(self._device)
        # float32: without matrix units bf16 products are slower on a CPU.
        logits_RV = self.student.own(states.of(batch), batch.rows)
        loss = lumped_divergence(logits_RV, batch.label_ids, batch.label_probs, self._column_of)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self._optimizer.step()
        self.progress.num_steps += 1
        self.progress.num_tokens += batch.token_ids.numel()
        return float(loss.detach())

    def _schedule(self) -> float:
        warm_up = min(1.0, (self.progress.num_steps + 1) / _WARM_UP_STEPS)
        done = min(1.0, self.progress.num_tokens / self._config.num_tokens)
        return warm_up * 0.5 * (1.0 + math.cos(math.pi * done))

    @torch.inference_mode()
    def evaluate(self, texts: Sequence[LabelledText]) -> HeldOut:
        """Compare student and target on texts, at least one."""
        self.student.eval()
        num_rows, loss, same_top, overlap = 0, 0.0, 0, 0.0
        for padded in epoch_batches(texts, self._config.tokens_per_batch, 0):
            batch = padded.to(self._device)
            logits_RV = self.student(batch.token_ids, batch.rows)
            rows = len(batch.rows)
            columns_RC = self._column_of[batch.label_ids]
            own_RC = logits_RV.softmax(-1).gather(1, columns_RC.clamp(min=0)) * (columns_RC >= 0)
            loss += rows * float(lumped_divergence(logits_RV, batch.label_ids, batch.label_probs, self._column_of))
            same_top += int((self.target_ids[logits_RV.argmax(-1)] == batch.label_ids[:, 0]).sum())
            overlap += float(torch.minimum(own_RC, batch.label_probs).sum())
            num_rows += rows
        self.student.train()
        return HeldOut(loss=loss / num_rows, same_top_ratio=same_top / num_rows, overlap_ratio=overlap / num_rows)

    @torch.no_grad()
    def round_weights(self) -> None:
        """Round the student to bfloat16, as it will be written; training ends here."""
        for weight in self.student.trained().values():
            weight.copy_(weight.to(torch.bfloat16))

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        progress = self.progress
        state = {
            "model": self.student.trained(),
            "optimizer": self._optimizer.state_dict(),
            "progress": [progress.num_steps, progress.num_tokens, progress.epoch, progress.batch],
        }
        part = self._folder / f"{CHECKPOINT}.part"
        torch.save(state, part)
        part.rename(self._folder / CHECKPOINT)
        self._saved_s = time.monotonic()

    def _load(self) -> None:
        path = self._folder / CHECKPOINT
        try:
            state = torch.load(path, weights_only=True, map_location=self._device)
            if state["model"].keys() != self.student.trained().keys():
                raise ValueError("it holds other tensors")
            self.student.load_state_dict(state["model"], strict=False)
            self._optimizer.load_state_dict(state["optimizer"])
            self.progress = Progress(*state["progress"])
        except Exception as error:  # torch and pickle raise many types on a bad file
            raise LoadError(f"{path} is damaged or of another run ({error}); delete it to train anew") from error
