"""Loads configuration, tokenizer and weights of a model that lies on this machine; never needs a network.

Safetensors only. What is refused, and why, stands in `model_checks`; where a model comes from, in `model_source`.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from cluster.engine.gguf_conversion import no_progress_bars
from cluster.engine.model_checks import GENERATION_CONFIG_FILE, check_metadata, read_json, weight_files
from cluster.engine.model_source import ModelSource, resolve_model
from cluster.errors import LoadError

__all__ = [
    "ModelSource",
    "eos_token_ids",
    "load_config",
    "load_reference_model",
    "load_tokenizer",
    "load_weights",
    "resolve_model",
]

_logger = logging.getLogger(__name__)


def load_config(source: ModelSource) -> PreTrainedConfig:
    """The model's configuration, after every check that needs no tensor.

    Raises:
        LoadError: the folder is refused (code, pickles, quantised, not a causal decoder) or incomplete.
    """
    check_metadata(source.folder)
    weight_files(source.folder)
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            source.folder, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # transformers raises many types on a bad configuration
        raise LoadError(f"{source.folder}: cannot read the configuration: {error}") from error
    if config.is_encoder_decoder:
        raise LoadError(f"{source.folder}: {config.model_type} is an encoder-decoder; only decoders can be served")
    return config


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """The model's tokenizer with its chat template.

    Raises:
        LoadError: the folder is refused, or has no tokenizer that loads.
    """
    check_metadata(source.folder)
    try:
        return AutoTokenizer.from_pretrained(source.folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # transformers raises many types on a bad tokenizer
        raise LoadError(f"{source.folder}: cannot load the tokenizer: {error}") from error


def load_weights(source: ModelSource, dtype: torch.dtype) -> dict[str, Tensor]:
    """All weights of the model under their names in the checkpoint, which must be those of its transformers class.

    Tied tensors are present under each of their names and share memory. Tensors that already have `dtype` are views of
    the mapped file: pages are read when they are first touched, and must not be written.

    Args:
        source: the model.
        dtype: type of floating-point tensors; others keep theirs.

    Raises:
        LoadError: the folder is refused, a file is damaged, a tensor is missing or has a shape that contradicts the
            configuration.
    """
    config = load_config(source)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    expected = {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}
    weights: dict[str, Tensor] = {}
    for path in weight_files(source.folder):
        weights |= _read_file(path, expected, dtype)
    _resolve_tied(weights, skeleton.all_tied_weights_keys)
    missing = sorted(expected.keys() - weights.keys())
    if missing:
        raise LoadError(f"{source.folder}: {len(missing)} tensors are missing from the checkpoint, first {missing[0]}")
    return weights


def _read_file(path: Path, expected: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (not a mapping: it has no __iter__)
                if name not in expected:
                    _logger.debug("%s: %s has no place in the model and is left out", path.name, name)
                    continue
                tensor = file.get_tensor(name)
                if tuple(tensor.shape) != expected[name]:
                    raise LoadError(
                        f"{path}: {name} has shape {tuple(tensor.shape)}, config.json implies {expected[name]}"
                    )
                tensors[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{path} is damaged: {error}") from error
    return tensors


def _resolve_tied(weights: dict[str, Tensor], tied: Mapping[str, str]) -> None:
    """Give tied tensors that the checkpoint stores once all of their names."""
    for name, other in tied.items():
        if name not in weights and other in weights:
            weights[name] = weights[other]
        elif other not in weights and name in weights:
            weights[other] = weights[name]


def load_reference_model(source: ModelSource, dtype: torch.dtype) -> PreTrainedModel:
    """The model in transformers' own code, in evaluation mode: what every faster path is compared with.

    Args:
        source: the model.
        dtype: type of weights and activations.

    Raises:
        LoadError: the folder is refused or does not load.
    """
    config = load_config(source)
    try:
        with no_progress_bars():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                source.folder,
                config=config,
                dtype=dtype,
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=True,
            )
    except Exception as error:  # transformers raises many types on a bad checkpoint
        raise LoadError(f"{source.folder}: cannot load the weights: {error}") from error
    model.eval()
    return model


def eos_token_ids(source: ModelSource, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a text, from generation_config.json, config.json and the tokenizer together.

    Chat models often name the end of a turn in one of them and the end of a document in another. Ids outside the
    vocabulary can never be generated and are left out.
    """
    generation = read_json(source.folder, GENERATION_CONFIG_FILE) or {}
    text_config = config.get_text_config()
    ids: set[int] = set()
    for value in (generation.get("eos_token_id"), text_config.eos_token_id, tokenizer.eos_token_id):
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(token_id for token_id in ids if 0 <= token_id < text_config.vocab_size)
