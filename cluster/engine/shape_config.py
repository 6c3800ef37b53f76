"""Reads the shape of a model from its `config.json`, and from nothing else: no weights, no network, no torch."""

import json
from pathlib import Path
from typing import Any

from cluster.engine.shapes import Attention, Experts, GroupedAttention, LatentAttention, ModelShape
from cluster.errors import LoadError

FILE = "config.json"
FAMILIES = ("deepseek_v3", "glm4_moe", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")
"""Values of `model_type` that are understood."""

_HEADS = ("draft_vocab_size", "medusa_num_heads", "speculators_model_type")
_MOST = 1 << 32


def read_shape(path: Path) -> ModelShape:
    """The shape of a model in a folder.

    Args:
        path: the folder, or its `config.json`.

    Raises:
        LoadError: there is no such file, or it describes no model of a known family.
    """
    file = path / FILE if path.is_dir() else path
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{file} is not readable JSON: {error}") from error
    if not isinstance(config, dict):
        raise LoadError(f"{file} holds a JSON {type(config).__name__}, expected an object")
    return shape_of(config, name=file.resolve().parent.name, source=str(file))


def shape_of(config: dict[str, Any], *, name: str, source: str) -> ModelShape:
    """The shape that a configuration in the format of transformers describes.

    Args:
        config: the fields of a `config.json`.
        name: how reports call the model.
        source: for errors.

    Raises:
        LoadError: the family is not known, or a field is missing or no number.
    """
    family = config.get("model_type")
    if heads := [field for field in _HEADS if field in config]:
        raise LoadError(f"{source}: {heads[0]} says that this is a draft head, and not a model of its own")
    if family not in FAMILIES:
        raise LoadError(f"{source}: model_type = {family!r} is not one of {', '.join(FAMILIES)}")
    fields = _Fields(config, source)
    return ModelShape(
        name=name,
        hidden=fields.count("hidden_size"),
        num_layers=fields.count("num_hidden_layers"),
        intermediate=fields.count("intermediate_size"),
        vocab=fields.count("vocab_size"),
        max_model_len=fields.count("max_position_embeddings"),
        attention=_attention(fields, family),
        experts=_experts(fields, family),
        is_tied=fields.flag("tie_word_embeddings"),
        has_mlp_bias=fields.flag("mlp_bias"),
        num_mtp_layers=fields.count("num_nextn_predict_layers", 0),
    )


class _Fields:
    """Typed access to a configuration."""

    def __init__(self, config: dict[str, Any], source: str) -> None:
        self._config, self._source = config, source

    def count(self, name: str, default: int | None = None) -> int:
        """A number of something; `default` stands for a field that is missing or null."""
        value = self._config.get(name)
        if value is None and default is not None:
            return default
        least = 1 if default is None else 0
        if type(value) is not int or not least <= value <= _MOST:
            raise LoadError(f"{self._source}: {name} = {value!r} is no number from {least} to {_MOST}")
        return value

    def flag(self, name: str) -> bool:
        """Whether a field is set."""
        return bool(self._config.get(name))

    def numbers(self, name: str) -> set[int]:
        """A list of numbers; empty where it is missing."""
        value = self._config.get(name) or []
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise LoadError(f"{self._source}: {name} = {value!r} is no list of numbers")
        return set(value)


def _attention(fields: _Fields, family: str) -> Attention:
    num_heads = fields.count("num_attention_heads")
    if family == "deepseek_v3":
        return LatentAttention(
            num_heads=num_heads,
            query_rank=fields.count("q_lora_rank", 0),
            kv_rank=fields.count("kv_lora_rank"),
            nope_dim=fields.count("qk_nope_head_dim"),
            rope_dim=fields.count("qk_rope_head_dim"),
            value_dim=fields.count("v_head_dim"),
        )
    has_bias = fields.flag("attention_bias")
    return GroupedAttention(
        num_heads=num_heads,
        num_kv_heads=fields.count("num_key_value_heads", 0) or num_heads,
        head_dim=fields.count("head_dim", 0) or fields.count("hidden_size") // num_heads,
        has_input_bias=family == "qwen2" or has_bias,
        has_output_bias=has_bias and family in ("llama", "qwen3", "qwen3_moe"),
        has_head_norm=family in ("qwen3", "qwen3_moe") or fields.flag("use_qk_norm"),
    )


def _experts(fields: _Fields, family: str) -> Experts | None:
    if family == "mixtral":
        return Experts(
            num_experts=fields.count("num_local_experts"),
            num_active=fields.count("num_experts_per_tok"),
            intermediate=fields.count("intermediate_size"),
        )
    if family == "qwen3_moe":
        return Experts(
            num_experts=fields.count("num_experts"),
            num_active=fields.count("num_experts_per_tok"),
            intermediate=fields.count("moe_intermediate_size"),
            num_dense_layers=_num_dense_layers(fields),
        )
    if family not in ("deepseek_v3", "glm4_moe"):
        return None
    intermediate = fields.count("moe_intermediate_size")
    return Experts(
        num_experts=fields.count("n_routed_experts"),
        num_active=fields.count("num_experts_per_tok"),
        intermediate=intermediate,
        shared_intermediate=intermediate * fields.count("n_shared_experts", 0),
        num_dense_layers=min(fields.count("first_k_dense_replace", 0), fields.count("num_hidden_layers")),
        has_router_bias=True,
    )


def _num_dense_layers(fields: _Fields) -> int:
    """Of Qwen3-MoE: layers that are named, and all but every n-th."""
    dense, step = fields.numbers("mlp_only_layers"), fields.count("decoder_sparse_step", 1) or 1
    return sum(layer in dense or (layer + 1) % step != 0 for layer in range(fields.count("num_hidden_layers")))
