"""The target's hidden states of training texts: computed once and kept on disk, or computed again each time.

Shapes: B texts, L positions, F features of a position.
"""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import FeatureRunner
from cluster.errors import ConfigError
from cluster.training.dataset import Batch, LabelledText

_BYTES = 2
_VALUES, _KEPT = "features.bin", "features.kept"


class TargetReader:
    """Has the target read whole texts and hands out its hidden states.

    Args:
        runner: the target; its KV cache is overwritten.
        layers: as `RoundFeatures` counts them, in the order in which they are handed out; one may come twice.
    """

    def __init__(self, runner: FeatureRunner, layers: tuple[int, ...]) -> None:
        self._runner, self._layers = runner, layers
        self.num_features = len(layers) * runner.hidden_size
        runner.capture(tuple(sorted(set(layers))))

    def read(self, token_ids: npt.NDArray[np.int32]) -> Tensor:
        """Hidden states of a text, bfloat16 [L, F] on the CPU; read alone, so that no other text changes a bit."""
        length, block_size = len(token_ids), self._runner.block_size
        positions = np.arange(length, dtype=np.int32)
        self._runner.forward(
            ModelInput(
                token_ids=token_ids.astype(np.int32),
                positions=positions,
                slot_mapping=positions,
                row_sequences=np.zeros(length, np.int32),
                block_tables=np.arange(-(-length // block_size), dtype=np.int32)[None],
                logit_rows=np.array([length - 1], np.int32),
            )
        )
        return self._runner.features.of(self._layers).to("cpu", torch.bfloat16, copy=True)

    def close(self) -> None:
        """Release the target."""
        self._runner.capture(())
        self._runner.close()


class FeatureStore:
    """Hidden states of a list of texts, bfloat16.

    Those of the first texts are kept in two files; the others are computed each time. Files of an earlier run on the
    same texts are used again, whatever its budget was.

    Args:
        reader: computes them.
        texts: whose hidden states these are.
        folder: of the files; None keeps nothing.
        max_bytes: of what is kept.

    Raises:
        ConfigError: the files cannot be made.
    """

    def __init__(
        self, reader: TargetReader, texts: Sequence[LabelledText], folder: Path | None = None, max_bytes: int = 0
    ) -> None:
        self._reader, self._texts = reader, texts
        lengths = [len(text.token_ids) for text in texts]
        self._starts = [0, *accumulate(lengths)]
        max_rows = max_bytes // (_BYTES * reader.num_features) if folder is not None else 0
        self._num_kept = sum(end <= max_rows for end in self._starts[1:])
        num_rows = self._starts[self._num_kept]
        if folder is None or not num_rows:
            self._num_kept = 0
            return
        try:
            self._values = _map(folder / _VALUES, np.dtype(np.int16), (num_rows, reader.num_features))
            self._is_kept = _map(folder / _KEPT, np.dtype(np.bool_), (self._num_kept,))
        except OSError as error:
            allowed = f"room on disk for {num_rows * _BYTES * reader.num_features:,} bytes ({error})"
            raise ConfigError(field="--feature-cache-gb", value=max_bytes / 1e9, allowed=allowed) from error

    def of(self, batch: Batch) -> Tensor:
        """Hidden states of a batch of these texts, float32 [B, L, F] on its device, zero behind the end of a text."""
        states = [self._one(index) for index in batch.indices.tolist()]
        # The longest text of a batch has no padding, so that this is as long as the batch.
        return pad_sequence(states, batch_first=True).to(batch.token_ids.device, torch.float32)

    def _one(self, index: int) -> Tensor:
        if index >= self._num_kept:
            return self._reader.read(self._texts[index].token_ids)
        rows = slice(self._starts[index], self._starts[index + 1])
        if not self._is_kept[index]:
            self._values[rows] = self._reader.read(self._texts[index].token_ids).view(torch.int16).numpy()
            self._is_kept[index] = True  # after its values: a run that is killed in between computes them again
        return torch.from_numpy(np.array(self._values[rows])).view(torch.bfloat16)


def _map(path: Path, dtype: "np.dtype[np.generic]", shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    """A file as an array; a shorter one is made longer and keeps what it holds. It takes room as it fills."""
    size = dtype.itemsize * int(np.prod(shape))
    with path.open("ab") as file:
        if file.tell() < size:
            file.truncate(size)
    return np.memmap(path, dtype, "r+", shape=shape)
