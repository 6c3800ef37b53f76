"""The training loop that everything that learns from the target's text shares: schedule, checkpoints, resuming."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from cluster.errors import LoadError
from cluster.training.dataset import Batch, LabelledText, epoch_batches
from cluster.training.reporter import Reporter

_WARM_UP_STEPS = 20
CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """How something learns.

    Attributes:
        num_tokens: tokens to learn from, repetitions counted.
        tokens_per_batch: padded tokens of one step.
        learning_rate: at its highest; falls to 0 as a half cosine.
        seed: order of the texts.
        checkpoint_interval_s: time between two checkpoints.
    """

    num_tokens: int
    tokens_per_batch: int = 1024
    learning_rate: float = 1e-3
    seed: int = 0
    checkpoint_interval_s: float = 120.0


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


class StepReporter:
    """Tells a reporter of steps.

    Args:
        reporter: hears of tokens and loss.
        start: where the run goes on from.
    """

    def __init__(self, reporter: Reporter, start: Progress) -> None:
        self._reporter, self._num_tokens = reporter, start.num_tokens

    def __call__(self, progress: Progress, loss: float) -> None:
        """A step was taken."""
        self._reporter.advance(progress.num_tokens - self._num_tokens, f"loss {loss:.2f}")
        self._num_tokens = progress.num_tokens


class TrainedModule(nn.Module):
    """A module of which some tensors are trained."""

    def trained(self) -> dict[str, Tensor]:
        """Trained tensors by their name in this module and in the checkpoint."""
        return {name: weight.detach() for name, weight in self.named_parameters() if weight.requires_grad}


class TrainingLoop(ABC):
    """Trains a module on texts.

    Args:
        module: starts as it is.
        config: how.
        folder: where the checkpoint lies; a run that finds one goes on from it, with the same texts to the same end.

    Raises:
        LoadError: the checkpoint is damaged, or one of another module.
    """

    def __init__(self, module: TrainedModule, config: LoopConfig, folder: Path) -> None:
        self._module, self._config, self._folder = module, config, folder
        self._device = next(module.parameters()).device
        self.progress = Progress()
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(
            trained, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        )
        self._saved_s = time.monotonic()
        if (folder / CHECKPOINT).exists():
            self._load()

    @property
    def is_done(self) -> bool:
        """True when the module has seen as many tokens as it shall."""
        return self.progress.num_tokens >= self._config.num_tokens

    @abstractmethod
    def _loss(self, batch: Batch) -> Tensor:
        """What a step makes smaller; the batch is on the module's device."""

    def run(self, texts: Sequence[LabelledText], on_step: Callable[[Progress, float], object]) -> None:
        """Train until `is_done`; `on_step` hears of each step and its loss. The last checkpoint is of the end."""
        if self.is_done:
            return
        while not self.is_done:
            batches = epoch_batches(texts, self._config.tokens_per_batch, self._config.seed + self.progress.epoch)
            for index, batch in enumerate(batches):
                if index < self.progress.batch:
                    continue
                loss = self._step(batch)
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

    def _step(self, padded: Batch) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.learning_rate * self._schedule()
        loss = self._loss(padded.to(self._device))
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._module.parameters(), 1.0)
        self._optimizer.step()
        self.progress.num_steps += 1
        self.progress.num_tokens += padded.token_ids.numel()
        return float(loss.detach())

    def _schedule(self) -> float:
        warm_up = min(1.0, (self.progress.num_steps + 1) / _WARM_UP_STEPS)
        done = min(1.0, self.progress.num_tokens / self._config.num_tokens)
        return warm_up * 0.5 * (1.0 + math.cos(math.pi * done))

    @torch.no_grad()
    def round_weights(self) -> None:
        """Round what is trained to bfloat16, as it will be written; training ends here."""
        for weight in self._module.trained().values():
            weight.copy_(weight.to(torch.bfloat16))

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        progress = self.progress
        state = {
            "model": self._module.trained(),
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
            if state["model"].keys() != self._module.trained().keys():
                raise ValueError("it holds other tensors")
            self._module.load_state_dict(state["model"], strict=False)
            self._optimizer.load_state_dict(state["optimizer"])
            self.progress = Progress(*state["progress"])
        except Exception as error:  # torch and pickle raise many types on a bad file
            raise LoadError(f"{path} is damaged or of another run ({error}); delete it to train anew") from error
