"""Training text in shards, read back as batches of padded texts with the target's labels."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import Tensor

from cluster.errors import LoadError

# Shapes: B texts, L positions, R labelled rows, C labels of a row.
IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledText:
    """One text.

    Attributes:
        token_ids: prompt and what the target wrote, int32 [L].
        label_start: first token that the target wrote, >= 1.
        label_ids: the target's likeliest tokens at each position that it wrote, int32 [R, C].
        label_probs: their probabilities at temperature 1, f32 [R, C]; a row sums to at most 1.
    """

    token_ids: IntArray
    label_start: int
    label_ids: IntArray
    label_probs: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Texts side by side, padded on the right.

    Attributes:
        indices: which texts these are, int64 [B].
        lengths: of the texts, int64 [B].
        token_ids: int64 [B, L].
        rows: flat index b * L + l of each position whose next token is labelled, int64 [R].
        label_ids: int64 [R, C].
        label_probs: f32 [R, C].
    """

    indices: Tensor
    lengths: Tensor
    token_ids: Tensor
    rows: Tensor
    label_ids: Tensor
    label_probs: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        return Batch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def read_texts(paths: Sequence[Path], max_length: int) -> list[LabelledText]:
    """All texts of the shards; longer ones lose the front of their prompt.

    Raises:
        LoadError: a shard is damaged.
    """
    texts = []
    for path in paths:
        try:
            shard = load_file(path)
        except (SafetensorError, OSError) as error:
            raise LoadError(f"{path} is damaged: {error}") from error
        starts = shard["text_starts"].tolist()
        for start, end, label in zip(
            starts, [*starts[1:], len(shard["token_ids"])], shard["label_starts"].tolist(), strict=True
        ):
            first = max(start, end - max_length)
            if label <= first:
                continue
            texts.append(
                LabelledText(
                    token_ids=shard["token_ids"][first:end],
                    label_start=label - first,
                    label_ids=shard["label_ids"][label:end],
                    label_probs=np.exp(shard["label_logprobs"][label:end].astype(np.float32)),
                )
            )
    return texts


def head_vocabulary(texts: Sequence[LabelledText], size: int, vocab_size: int) -> IntArray:
    """The `size` tokens (or all, if there are fewer) that the target finds likeliest over all texts, ascending."""
    mass_V = np.zeros(vocab_size)
    for text in texts:
        np.add.at(mass_V, text.label_ids.ravel(), text.label_probs.ravel())
    return np.sort(np.argsort(-mass_V, kind="stable")[:size]).astype(np.int32)


def make_batch(all_texts: Sequence[LabelledText], indices: Sequence[int]) -> Batch:
    """Pad the texts at `indices` to the longest of them."""
    texts = [all_texts[index] for index in indices]
    length = max(len(text.token_ids) for text in texts)
    token_ids = np.zeros((len(texts), length), np.int64)
    rows = []
    for index, text in enumerate(texts):
        token_ids[index, : len(text.token_ids)] = text.token_ids
        rows.append(index * length + np.arange(text.label_start - 1, len(text.token_ids) - 1))
    return Batch(
        indices=torch.tensor(indices),
        lengths=torch.tensor([len(text.token_ids) for text in texts]),
        token_ids=torch.from_numpy(token_ids),
        rows=torch.from_numpy(np.concatenate(rows)),
        label_ids=torch.from_numpy(np.concatenate([text.label_ids for text in texts]).astype(np.int64)),
        label_probs=torch.from_numpy(np.concatenate([text.label_probs for text in texts])),
    )


def epoch_batches(texts: Sequence[LabelledText], tokens_per_batch: int, seed: int) -> Iterator[Batch]:
    """All texts once, those of similar length together, in an order drawn from `seed`."""
    rng = random.Random(seed)
    order = sorted(range(len(texts)), key=lambda index: (len(texts[index].token_ids), rng.random()))
    groups: list[list[int]] = [[]]
    for index in order:
        # Sorted by length, so the newest text is the longest of its group.
        if groups[-1] and (len(groups[-1]) + 1) * len(texts[index].token_ids) > tokens_per_batch:
            groups.append([])
        groups[-1].append(index)
    rng.shuffle(groups)
    for group in groups:
        yield make_batch(texts, group)
