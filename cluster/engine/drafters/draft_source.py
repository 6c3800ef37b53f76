"""Loads a draft model for a target: a folder made by `outrider train draft-model`, or a plain small model.

| folder | what it holds |
| --- | --- |
| with `outrider_draft.json` | a Llama; embedding, first layers and head may be the target's, and are then not shipped |
| without | a complete model with its own tokenizer, which must be the target's, id by id |

`outrider_draft.json` holds `format` (1), `target` (the model's id), `tokenizer_hash` (`vocabulary_hash` of its
tokenizer), `embeddings` and `head` ("target" or "own" each), and `shared_layers` (0 unless given): so many first
layers are the target's first. A head over a part of the vocabulary comes with a tensor `target_ids`, int32: the token
id of each of its rows, rising.

Shapes: V vocabulary, C columns of the head.
"""

import logging
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from cluster.config import BUNDLED, BUNDLED_DRAFT_FOLDER
from cluster.engine.drafters.draft_sampling import Int32
from cluster.engine.drafters.vocab_check import check_vocabulary, vocabulary_hash
from cluster.engine.memory_plan import DraftMemory
from cluster.engine.model_checks import read_json, weight_files
from cluster.engine.model_loader import load_config, load_tokenizer, load_weights
from cluster.engine.model_source import ModelSource
from cluster.engine.native.weights import read_shape, unsupported_reason
from cluster.errors import LoadError

DRAFT_FILE = "outrider_draft.json"
FORMAT = 1

_EMBEDDING, _HEAD, _TARGET_IDS = "model.embed_tokens.weight", "lm_head.weight", "target_ids"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWeights:
    """A loaded draft model.

    Attributes:
        config: of the draft model; `vocab_size` is the rows of its embedding.
        weights: by checkpoint name, embedding and head included, of one floating-point type.
        target_ids: token id of each row of the head, int32 [C], rising; further rows are padding. None when row i is
            token i, for all rows.
        folder: where it came from.
    """

    config: PretrainedConfig
    weights: dict[str, Tensor]
    target_ids: Int32 | None
    folder: Path


def draft_folder(name: str | Path) -> Path:
    """The folder of a draft model: "bundled" is the one that is shipped.

    Raises:
        LoadError: there is no such folder.
    """
    folder = BUNDLED_DRAFT_FOLDER if name == BUNDLED else Path(name).expanduser()
    if not folder.is_dir():
        raise LoadError(f"draft model {str(name)!r}: {folder} is not a folder")
    return folder


def load_draft_model(
    folder: str | Path,
    target: ModelSource,
    *,
    dtype: torch.dtype = torch.bfloat16,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> DraftWeights:
    """Load a draft model and check that it fits its target.

    Args:
        folder: the model's, or "bundled".
        target: the target; its checkpoint must be there when the draft model shares weights with it.
        dtype: of all weights.
        target_tokenizer: saves loading it again.

    Raises:
        LoadError: the folder is refused or incomplete, or its vocabulary is not the target's.
    """
    path = draft_folder(folder)
    tokenizer = target_tokenizer or load_tokenizer(target)
    about = read_json(path, DRAFT_FILE)
    if about is None:
        return _load_plain(path, target, tokenizer, dtype)
    _check_about(path, about, target, tokenizer)
    return _load_sharing(path, about, target, dtype)


def draft_memory_bytes(
    folder: str | Path, *, kv_cache_tokens: int, max_rows: int = 256, dtype: torch.dtype = torch.bfloat16
) -> DraftMemory | None:
    """Memory of a draft model on the CPU kernels, known without loading it.

    What it shares with the target counts too: the kernels keep a copy of their own.

    Args:
        folder: the model's, or "bundled".
        kv_cache_tokens: capacity of its KV cache.
        max_rows: most rows of one pass.
        dtype: of weights and KV.

    Returns:
        None for a model that the CPU kernels cannot run.

    Raises:
        LoadError: the folder is refused or incomplete.
    """
    path = draft_folder(folder)
    config = load_config(ModelSource(folder=path, model_id=path.name))
    if unsupported_reason(config) is not None:
        return None
    shape = read_shape(config)
    num_columns = _num_target_ids(path) or shape.vocab
    num_elements = shape.num_weights + (num_columns - shape.vocab) * shape.hidden
    row_elements = 2 * shape.hidden + shape.qkv_columns + shape.num_heads * shape.head_dim + shape.intermediate
    return DraftMemory(
        weights_bytes=num_elements * dtype.itemsize,
        kv_token_bytes=2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * dtype.itemsize,
        kv_cache_tokens=kv_cache_tokens,
        # Buffers grow to twice what a pass needs; logits and activations are float32.
        workspace_bytes=2 * 4 * max_rows * (row_elements + num_columns),
    )


def _load_plain(
    path: Path, target: ModelSource, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype
) -> DraftWeights:
    source = ModelSource(folder=path, model_id=path.name)
    config = load_config(source)
    target_vocab_size = load_config(target).get_text_config().vocab_size
    num_ids = check_vocabulary(tokenizer, load_tokenizer(source), target_vocab_size, config.vocab_size)
    target_ids = None if num_ids == config.vocab_size else np.arange(num_ids, dtype=np.int32)
    return DraftWeights(config=config, weights=load_weights(source, dtype), target_ids=target_ids, folder=path)


def _check_about(path: Path, about: dict[str, Any], target: ModelSource, tokenizer: PreTrainedTokenizerBase) -> None:
    file = path / DRAFT_FILE
    if about.get("format") != FORMAT:
        raise LoadError(f"{file}: format {about.get('format')!r} is unknown; this version reads {FORMAT}")
    for field in ("embeddings", "head"):
        if about.get(field) not in ("target", "own"):
            raise LoadError(f"{file}: {field} = {about.get(field)!r} is neither 'target' nor 'own'")
    expected, actual = about.get("tokenizer_hash"), vocabulary_hash(tokenizer)
    if expected != actual:
        raise LoadError(
            f"{path} was made for the tokenizer {expected} (of {about.get('target')}); {target.model_id} has {actual}"
        )
    if about.get("target") != target.model_id:
        _logger.warning("%s was trained for %s and drafts for %s", path.name, about.get("target"), target.model_id)


def _load_sharing(path: Path, about: Mapping[str, Any], target: ModelSource, dtype: torch.dtype) -> DraftWeights:
    config = load_config(ModelSource(folder=path, model_id=path.name))
    own = read_tensors(path, dtype)
    ids = own.pop(_TARGET_IDS, None)
    target_ids = None if ids is None else _check_target_ids(path, ids, config.vocab_size)
    layers = _shared_layers(path, about, config.num_hidden_layers)
    borrows = layers or "target" in (about["embeddings"], about["head"])
    lent = read_tensors(target.folder, dtype, (_EMBEDDING, _HEAD, *layers)) if borrows else {}
    num_columns = config.vocab_size if target_ids is None else len(target_ids)
    owner = lent if about["embeddings"] == "target" else own
    embedding = _matrix(owner, (_EMBEDDING,), config, {config.vocab_size}, path)
    owner = lent if about["head"] == "target" else own
    # Tied weights are stored under the embedding's name only, and a whole head is cut to the columns here.
    head = _matrix(owner, (_HEAD, _EMBEDDING), config, {config.vocab_size, num_columns}, path)
    if target_ids is not None and len(head) != num_columns:
        head = head[torch.from_numpy(target_ids).long()]
    shared = {name: tensor for name, tensor in lent.items() if name.startswith(layers)}
    weights = {**own, **shared, _EMBEDDING: embedding, _HEAD: head}
    return DraftWeights(config=config, weights=weights, target_ids=target_ids, folder=path)


def _shared_layers(path: Path, about: Mapping[str, Any], num_layers: int) -> tuple[str, ...]:
    """How the names of the tensors begin that are the target's."""
    count = about.get("shared_layers", 0)
    if type(count) is not int or not 0 <= count <= num_layers:
        raise LoadError(f"{path / DRAFT_FILE}: shared_layers = {count!r} is no number from 0 to {num_layers}")
    return tuple(f"model.layers.{layer}." for layer in range(count))


def _matrix(
    tensors: Mapping[str, Tensor], names: Seq[str], config: PretrainedConfig, num_rows: Collection[int], path: Path
) -> Tensor:
    """The first tensor of these names, of one of these heights and the draft model's width."""
    tensor = next((tensors[name] for name in names if name in tensors), None)
    if tensor is None:
        raise LoadError(f"{path}: {names[0]} is missing where {DRAFT_FILE} says it is")
    if tensor.ndim != 2 or tensor.shape[0] not in num_rows or tensor.shape[1] != config.hidden_size:
        expected = " or ".join(f"{count} x {config.hidden_size}" for count in sorted(num_rows))
        raise LoadError(f"{path}: {names[0]} has shape {tuple(tensor.shape)}, expected {expected}")
    return tensor


def _check_target_ids(path: Path, ids: Tensor, vocab_size: int) -> Int32:
    target_ids = np.asarray(ids.numpy())
    if target_ids.dtype != np.int32 or target_ids.ndim != 1 or not target_ids.size:
        raise LoadError(f"{path}: {_TARGET_IDS} is no list of int32")
    if (np.diff(target_ids) <= 0).any() or target_ids[0] < 0 or target_ids[-1] >= vocab_size:
        raise LoadError(f"{path}: {_TARGET_IDS} must rise, from 0 to at most {vocab_size - 1}")
    return target_ids


def read_tensors(folder: Path, dtype: torch.dtype, beginnings: tuple[str, ...] = ("",)) -> dict[str, Tensor]:
    """Tensors of a checkpoint whose names begin so, the floating-point ones in `dtype`."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  (not a mapping: it has no __iter__)
                    if name.startswith(beginnings):
                        tensor = file.get_tensor(name)
                        tensors[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        except (SafetensorError, OSError) as error:
            raise LoadError(f"{path} is damaged: {error}") from error
    return tensors


def _num_target_ids(folder: Path) -> int:
    """Rows of a head over a part of the vocabulary, from the file's header; 0 without one."""
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                if _TARGET_IDS in file.keys():  # noqa: SIM118  (not a mapping)
                    return int(file.get_slice(_TARGET_IDS).get_shape()[0])
        except (SafetensorError, OSError) as error:
            raise LoadError(f"{path} is damaged: {error}") from error
    return 0
