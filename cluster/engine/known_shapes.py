"""Shapes of well-known models, from their public `config.json`, so that plans work without a network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.config import BUNDLED
from cluster.engine.shape_config import FILE, read_shape, shape_of
from cluster.engine.shapes import ModelShape
from cluster.errors import ConfigError

_LLAMA_3 = {
    "model_type": "llama",
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
}
_QWEN_3 = {
    "model_type": "qwen3",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
}


def _sizes(hidden: int, intermediate: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }


_TIED = {"tie_word_embeddings": True}
_DEEPSEEK_V3 = _sizes(7168, 18_432, 61, 128) | {
    "model_type": "deepseek_v3",
    "vocab_size": 129_280,
    "max_position_embeddings": 163_840,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
}
_SMOLLM2 = (
    _sizes(576, 1536, 30, 9)
    | _TIED
    | {
        "model_type": "llama",
        "num_key_value_heads": 3,
        "vocab_size": 49_152,
        "max_position_embeddings": 8192,
    }
)

KNOWN_CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-3.3-70B": _LLAMA_3 | _sizes(8192, 28_672, 80, 64),
    "Llama-3.1-8B": _LLAMA_3 | _sizes(4096, 14_336, 32, 32),
    "Llama-3.2-3B": _LLAMA_3 | _sizes(3072, 8192, 28, 24) | _TIED,
    "Llama-3.2-1B": _LLAMA_3 | _sizes(2048, 8192, 16, 32) | _TIED,
    "Qwen3-32B": _QWEN_3 | _sizes(5120, 25_600, 64, 64),
    "Qwen3-14B": _QWEN_3 | _sizes(5120, 17_408, 40, 40),
    "Qwen3-8B": _QWEN_3 | _sizes(4096, 12_288, 36, 32),
    "Qwen3-0.6B": _QWEN_3 | _sizes(1024, 3072, 28, 16) | _TIED,
    "DeepSeek-V3": _DEEPSEEK_V3,
    "SmolLM2-135M": _SMOLLM2,
}
"""Fields of `config.json` by the name of the model; all else keeps its default there."""

_ALIASES: Mapping[str, str] = {
    BUNDLED: "SmolLM2-135M",
    "meta-llama-3.1-8b": "Llama-3.1-8B",
    "llama-3.1-70b": "Llama-3.3-70B",
    "deepseek-v3-0324": "DeepSeek-V3",
    "deepseek-r1": "DeepSeek-V3",
}
"""Names of other models of the same shape, in lower case."""


def known_shape(name: str) -> ModelShape:
    """The shape of one of `KNOWN_CONFIGS`, by its exact name."""
    return shape_of(KNOWN_CONFIGS[name], name=name, source=name)


def find_shape(name: str, *, field: str) -> ModelShape:
    """The shape of a model that a user names.

    Args:
        name: a folder with a `config.json`, that file, or a well-known model with or without owner and "-Instruct".
        field: of the setting, for errors.

    Raises:
        ConfigError: it is neither.
        LoadError: the file describes no model of a known family.
    """
    path = Path(name).expanduser()
    if path.is_dir() or path.name == FILE:
        return read_shape(path)
    plain = name.rpartition("/")[2].lower().removesuffix("-instruct")
    by_name = {known.lower(): known for known in KNOWN_CONFIGS}
    found = by_name.get(plain) or _ALIASES.get(plain)
    if found is None:
        known = ", ".join(KNOWN_CONFIGS)
        raise ConfigError(field=field, value=name, allowed=f"a folder with a {FILE}, or one of {known}")
    return known_shape(found)
