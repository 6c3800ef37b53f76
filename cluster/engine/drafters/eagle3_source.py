"""Loads EAGLE-3 heads as they are published, in either of two layouts; safetensors only.

| | SafeAILab, SpecForge | `speculators` |
| --- | --- | --- |
| marked by | `architectures`: `LlamaForCausalLMEagle3` | `speculators_model_type`: `eagle3` |
| layer's sizes | in `config.json` itself | in its `transformer_layer_config` |
| layer's tensors | `midlayer.*` | `layers.0.*` |
| target's layers | `eagle_config.eagle_aux_hidden_state_layer_ids`: after these | at top level: before these |

Both hold `fc.weight`, `norm.weight`, `lm_head.weight`, `d2t` (token id of column i, less i), `t2d` (not needed), and
perhaps `embed_tokens.weight`; what of embedding and output matrix is missing is the target's. Without layers in
`config.json` they are those before which vLLM and SGLang look: 2, n // 2 and n - 3.

Legend: C columns of the head, V vocabulary of the target, H hidden size of the head, F features of a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig

from cluster.engine.drafters.draft_source import read_tensors
from cluster.engine.drafters.head import HeadTarget, Int32
from cluster.engine.model_checks import CONFIG_FILE, read_json
from cluster.engine.native.weights import read_shape
from cluster.errors import LoadError

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
SPECULATORS_FIELD, SPECULATORS_TYPE = "speculators_model_type", "eagle3"
LAYER_IDS_FIELD = "eagle_aux_hidden_state_layer_ids"
LAYER = "model.layers.0."
EMBEDDING, OUTPUT, NORM, FC = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "fc.weight"

_SIZES = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"),
    *("max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters"),
    *("hidden_act", "attention_bias"),
)
_LAYER_PREFIXES = ("midlayer.", "layers.0.")
# Variants whose arithmetic is another one.
_UNKNOWN_FIELDS = ("norm_before_fc", "norm_output", "fc_norm", "mlp_bias", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Weights:
    """A loaded head.

    Attributes:
        config: of its layer; `vocab_size` is the rows of the embedding.
        tensors: under the names of a Llama of one layer, `fc.weight` and the layer's `hidden_norm` besides; all of one
            floating-point type, on the host.
        target_ids: token id of each column, strictly rising, int32 [C]; None when column i is token i.
        feature_layers: of the target, as `RoundFeatures` counts them.
        normed_residual: the residual path starts behind the norm of the hidden state.
    """

    config: LlamaConfig
    tensors: dict[str, Tensor]
    target_ids: Int32 | None
    feature_layers: tuple[int, ...]
    normed_residual: bool


def default_layers(num_layers: int) -> tuple[int, ...]:
    """The target's layers that are read where a checkpoint names none; a small target has no others to offer."""
    return tuple(min(max(layer, 0), num_layers) for layer in (2, num_layers // 2, num_layers - 3))


def is_eagle3(about: Mapping[str, Any]) -> bool:
    """True for the `config.json` of such a head."""
    architectures = about.get("architectures") or [None]
    return about.get(SPECULATORS_FIELD) == SPECULATORS_TYPE or architectures[0] in ARCHITECTURES


def load_eagle3(folder: Path, target: HeadTarget) -> Eagle3Weights:
    """Load and check the head in a folder.

    Raises:
        LoadError: the folder is refused or incomplete, or does not fit the target.
    """
    about = read_json(folder, CONFIG_FILE)
    if about is None or not is_eagle3(about):
        raise LoadError(f"{folder / CONFIG_FILE} is not that of an EAGLE-3 head")
    is_speculators = SPECULATORS_FIELD in about
    sizes = about.get("transformer_layer_config") if is_speculators else about
    if not isinstance(sizes, dict):
        raise LoadError(f"{folder / CONFIG_FILE}: transformer_layer_config is missing")
    _refuse_variants(folder, about, sizes)
    config = LlamaConfig(**{name: sizes[name] for name in _SIZES if sizes.get(name) is not None})
    config.num_hidden_layers, config.architectures = 1, ["LlamaForCausalLM"]
    text_config = target.config.get_text_config()
    layers = _feature_layers(folder, about, text_config.num_hidden_layers)
    raw = {_llama_name(name): tensor for name, tensor in read_tensors(folder, target.dtype).items()}
    raw.pop("t2d", None)
    offsets = raw.pop("d2t", None)
    target_ids = None if offsets is None else _target_ids(folder, offsets, text_config.vocab_size)
    tensors = _completed(folder, raw, config, target, target_ids)
    _check_shapes(folder, tensors, config, len(layers) * text_config.hidden_size)
    _check_vocabulary(folder, tensors, target_ids, text_config.vocab_size)
    tensors, target_ids = _in_order(tensors, target_ids)
    config.vocab_size = len(tensors[EMBEDDING])
    return Eagle3Weights(
        config=config,
        tensors=tensors,
        target_ids=target_ids,
        feature_layers=layers,
        normed_residual=bool(about.get("norm_before_residual", False)),
    )


def _refuse_variants(folder: Path, about: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
    path = folder / CONFIG_FILE
    for name in _UNKNOWN_FIELDS:
        if about.get(name) or sizes.get(name):
            raise LoadError(f"{path}: {name} is set: this variant of EAGLE-3 is not supported")
    if sizes.get("num_hidden_layers", 1) != 1:
        raise LoadError(f"{path}: num_hidden_layers = {sizes['num_hidden_layers']!r}; heads of one layer are supported")
    if sizes.get("hidden_act", "silu") != "silu":
        raise LoadError(f"{path}: hidden_act = {sizes['hidden_act']!r}; only silu is supported")
    if (about.get("eagle_config") or {}).get("use_aux_hidden_state") is False:
        raise LoadError(f"{path}: use_aux_hidden_state is off: this variant of EAGLE-3 is not supported")


def _feature_layers(folder: Path, about: Mapping[str, Any], num_layers: int) -> tuple[int, ...]:
    """Numbered by what enters a layer."""
    entering, leaving = about.get(LAYER_IDS_FIELD), (about.get("eagle_config") or {}).get(LAYER_IDS_FIELD)
    if not entering and not leaving:
        return default_layers(num_layers)
    layers = tuple(entering or (layer + 1 for layer in leaving or ()))
    if not all(type(layer) is int and 0 <= layer <= num_layers for layer in layers):
        raise LoadError(f"{folder / CONFIG_FILE}: {LAYER_IDS_FIELD} names layers that a target of {num_layers} lacks")
    return layers


def _llama_name(name: str) -> str:
    """The name that a tensor has in a Llama of one layer."""
    for prefix in _LAYER_PREFIXES:
        if name.startswith(prefix):
            return LAYER + name.removeprefix(prefix)
    return {"norm.weight": NORM, "embed_tokens.weight": EMBEDDING}.get(name, name)


def _target_ids(folder: Path, offsets: Tensor, vocab_size: int) -> Int32:
    """From offsets to token ids, each once; not sorted yet."""
    if offsets.ndim != 1 or offsets.is_floating_point():
        raise LoadError(f"{folder}: d2t is no list of integers")
    ids = np.arange(len(offsets)) + offsets.numpy().astype(np.int64)
    if not ids.size or ids.min() < 0 or ids.max() >= vocab_size or len(np.unique(ids)) != len(ids):
        raise LoadError(f"{folder}: d2t names a token twice, or one that is not among the target's {vocab_size}")
    return ids.astype(np.int32)


def _completed(
    folder: Path, raw: dict[str, Tensor], config: LlamaConfig, target: HeadTarget, target_ids: Int32 | None
) -> dict[str, Tensor]:
    """The tensors with the target's embedding and output matrix where the head brings none of its own."""
    tensors = dict(raw)
    text_config = target.config.get_text_config()
    if not {EMBEDDING, OUTPUT} <= tensors.keys() and config.hidden_size != text_config.hidden_size:
        raise LoadError(
            f"{folder}: hidden_size = {config.hidden_size}, the target's is {text_config.hidden_size}: the head needs "
            "an embedding and an output matrix of its own"
        )
    if EMBEDDING not in tensors:
        tensors[EMBEDDING] = target.weight(EMBEDDING).to(target.dtype)
    if OUTPUT not in tensors:
        output = target.weight(EMBEDDING if text_config.tie_word_embeddings else OUTPUT).to(target.dtype)
        tensors[OUTPUT] = output if target_ids is None else output[torch.from_numpy(target_ids).long()]
    return tensors


def _check_vocabulary(folder: Path, tensors: Mapping[str, Tensor], target_ids: Int32 | None, vocab_size: int) -> None:
    if len(tensors[EMBEDDING]) < vocab_size:
        raise LoadError(f"{folder}: the embedding has {len(tensors[EMBEDDING])} rows, the target {vocab_size} tokens")
    num_columns = vocab_size if target_ids is None else len(target_ids)
    if len(tensors[OUTPUT]) != num_columns:
        raise LoadError(f"{folder}: {OUTPUT} has {len(tensors[OUTPUT])} rows, expected {num_columns}")


def _in_order(tensors: dict[str, Tensor], target_ids: Int32 | None) -> tuple[dict[str, Tensor], Int32 | None]:
    """Columns in rising order of their token ids: among equal logits the lowest id wins."""
    if target_ids is None or (np.diff(target_ids) > 0).all():
        return tensors, target_ids
    order = np.argsort(target_ids)
    return {**tensors, OUTPUT: tensors[OUTPUT][torch.from_numpy(order)]}, target_ids[order]


def _check_shapes(folder: Path, tensors: Mapping[str, Tensor], config: LlamaConfig, num_features: int) -> None:
    required, optional = _shapes(config, num_features)
    if missing := sorted(required.keys() - tensors.keys()):
        raise LoadError(f"{folder}: {missing[0]} is missing from the checkpoint")
    known = {**required, **optional}
    for name, tensor in tensors.items():
        if name not in known:
            raise LoadError(f"{folder}: {name} has no place in an EAGLE-3 head of one layer")
        expected = tuple(size or len(tensor) for size in known[name])
        if tuple(tensor.shape) != expected:
            raise LoadError(f"{folder}: {name} has shape {tuple(tensor.shape)}, {CONFIG_FILE} implies {expected}")


def _shapes(config: LlamaConfig, num_features: int) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Shapes of the tensors that must be there, and of those that may be; 0 is any size."""
    shape = read_shape(config)
    hidden, inner, head_dim = shape.hidden, shape.intermediate, shape.head_dim
    query, key = shape.num_heads * head_dim, shape.num_kv_heads * head_dim
    attention, projections = f"{LAYER}self_attn.", {"q_proj": query, "k_proj": key, "v_proj": key}
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    required: dict[str, tuple[int, ...]] = {
        FC: (hidden, num_features),
        NORM: (hidden,),
        EMBEDDING: (0, hidden),
        OUTPUT: (0, hidden),
        **{f"{LAYER}{name}.weight": (hidden,) for name in norms},
        **{f"{attention}{name}.weight": (size, 2 * hidden) for name, size in projections.items()},
        f"{attention}o_proj.weight": (hidden, query),
        f"{LAYER}mlp.gate_proj.weight": (inner, hidden),
        f"{LAYER}mlp.up_proj.weight": (inner, hidden),
        f"{LAYER}mlp.down_proj.weight": (hidden, inner),
    }
    optional: dict[str, tuple[int, ...]] = {
        **{f"{attention}{name}.bias": (size,) for name, size in projections.items()},
        **{f"{attention}{name}.weight": (head_dim,) for name in ("q_norm", "k_norm")},
    }
    return required, optional
