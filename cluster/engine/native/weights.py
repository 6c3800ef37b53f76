"""Turn a Llama-family checkpoint into the panels that kernels.c reads.

A panel holds 32 output columns of a linear layer, depth by depth. In bf16 two columns share a 32-bit word (column i
low, column 16 + i high), so widening to f32 is one shift or one mask. Gate and up projections share panels: 16 columns
of each.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaConfig, PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from cluster.engine.native.arena import Arena
from cluster.engine.native.structs import LayerStruct, ModelStruct
from cluster.errors import LoadError

# Shapes: N output columns, K depth, P panels.
PANEL = 32
LANES = 16
MAX_HEAD_DIM = 256
ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a supported model, in elements."""

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    window: int
    norm_eps: float

    @property
    def qkv_columns(self) -> int:
        """Columns of the fused query, key and value projection."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def num_weights(self) -> int:
        """Elements of all matrices as the kernels keep them: the embedding and the head apart, even when tied."""
        attention = self.hidden * (self.qkv_columns + self.num_heads * self.head_dim)
        return 2 * self.vocab * self.hidden + self.num_layers * (attention + 3 * self.hidden * self.intermediate)


def read_shape(config: PretrainedConfig) -> Shape:
    """Sizes from a transformers config."""
    heads = config.num_attention_heads
    layer_types = set(getattr(config, "layer_types", None) or ())
    slides = layer_types == {"sliding_attention"} or (not layer_types and getattr(config, "sliding_window", None))
    return Shape(
        num_layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        window=int(config.sliding_window) if slides else 0,
        norm_eps=config.rms_norm_eps,
    )


def unsupported_reason(config: PretrainedConfig) -> str | None:
    """Why the kernels cannot run this model, or None when they can."""
    architecture = (config.architectures or ["unknown"])[0]
    if architecture not in ARCHITECTURES:
        return f"architecture {architecture} is not of the Llama family"
    shape = read_shape(config)
    rope = getattr(config, "rope_parameters", None) or {}
    layer_types = set(getattr(config, "layer_types", None) or ())
    checks = (
        (config.hidden_act == "silu", "activation is not silu"),
        (shape.hidden % PANEL == 0, "hidden_size is not a multiple of 32"),
        (shape.intermediate % LANES == 0, "intermediate_size is not a multiple of 16"),
        (shape.head_dim % PANEL == 0 and shape.head_dim <= MAX_HEAD_DIM, "head_dim is not a multiple of 32 up to 256"),
        (rope.get("rope_type", "default") in ("default", "linear", "llama3", "yarn"), "rope type depends on length"),
        (float(rope.get("partial_rotary_factor", 1.0)) == 1.0, "rotary embedding is partial"),
        (not getattr(config, "mlp_bias", False), "MLP layers have a bias"),
        (len(layer_types) <= 1, "layers differ in their attention window"),
    )
    return next((reason for holds, reason in checks if not holds), None)


@dataclass(slots=True)
class NativeModel:
    """Packed weights, KV cache and the struct that points to them.

    Attributes:
        shape: sizes.
        struct: what the kernels read; valid as long as this object lives.
        arena: memory of weights and KV cache.
        kv_caches: keys and values of each layer, one row per block.
    """

    shape: Shape
    struct: ModelStruct
    arena: Arena = field(default_factory=Arena)
    kv_caches: list[Array] = field(default_factory=list)
    _keep: list[Any] = field(default_factory=list)

    def hold(self, array: Array) -> int:
        """Copy `array` into the arena; returns its address there."""
        return self._keep_alive(self.arena.copy(array))

    def hold_kv_cache(self, num_blocks: int, block_elements: int, dtype: npt.DTypeLike) -> int:
        """Add a zeroed key or value cache of one layer; returns its address."""
        cache = self.arena.zeros((num_blocks, block_elements), dtype)
        self.kv_caches.append(cache)
        return self._keep_alive(cache)

    def _keep_alive(self, array: Array) -> int:
        self._keep.append(array)
        return int(array.ctypes.data)


def pack_panels(weight_NK: torch.Tensor) -> Array:
    """Pack a row-major weight into panels, zero-padded to a multiple of 32 columns.

    Args:
        weight_NK: bf16 or f32, [N, K].

    Returns:
        uint32 [P, K, 16] for bf16, f32 [P, K, 32] for f32.
    """
    columns, depth = weight_NK.shape
    padded = torch.zeros(-(-columns // PANEL) * PANEL, depth, dtype=weight_NK.dtype)
    padded[:columns] = weight_NK
    if weight_NK.dtype == torch.bfloat16:
        pairs = padded.view(torch.int16).view(-1, 2, LANES, depth).permute(0, 3, 2, 1)
        return np.ascontiguousarray(pairs.numpy()).view(np.uint32)[..., 0]
    return np.ascontiguousarray(padded.view(-1, PANEL, depth).permute(0, 2, 1).numpy())


def _interleave_gate_up(gate_NK: torch.Tensor, up_NK: torch.Tensor) -> torch.Tensor:
    depth = gate_NK.shape[1]
    return torch.stack((gate_NK.view(-1, LANES, depth), up_NK.view(-1, LANES, depth)), dim=1).reshape(-1, depth)


def _f32(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.detach().to(torch.float32).contiguous().numpy())


def rope_tables(config: PretrainedConfig, max_model_len: int) -> tuple[Array, Array]:
    """Cosine and sine by position, f32 [max_model_len, head_dim / 2] each, scaled as the config says."""
    rotary = LlamaRotaryEmbedding(cast(LlamaConfig, config))  # reads fields that the whole family shares
    positions = torch.arange(max_model_len)[None]
    with torch.inference_mode():
        cosine, sine = rotary(torch.zeros(1, dtype=torch.float32), positions)
    half = cosine.shape[-1] // 2
    return _f32(cosine[0, :, :half]), _f32(sine[0, :, :half])


def _build_layer(
    model: NativeModel, weights: Mapping[str, torch.Tensor], index: int, kv: tuple[int, int]
) -> LayerStruct:
    prefix = f"model.layers.{index}."
    attention = f"{prefix}self_attn."

    def optional(name: str) -> int | None:
        return model.hold(_f32(weights[name])) if name in weights else None

    if f"{attention}o_proj.bias" in weights:
        raise LoadError(f"{attention}o_proj.bias: the CPU kernels know no output bias")
    parts = [weights[f"{attention}{name}_proj.weight"] for name in "qkv"]
    bias = None
    if f"{attention}q_proj.bias" in weights:
        flat = torch.cat([weights[f"{attention}{name}_proj.bias"].float() for name in "qkv"])
        padded = torch.zeros(-(-len(flat) // PANEL) * PANEL)
        padded[: len(flat)] = flat
        bias = model.hold(_f32(padded))
    gate_up = _interleave_gate_up(weights[f"{prefix}mlp.gate_proj.weight"], weights[f"{prefix}mlp.up_proj.weight"])
    return LayerStruct(
        input_norm=model.hold(_f32(weights[f"{prefix}input_layernorm.weight"])),
        post_norm=model.hold(_f32(weights[f"{prefix}post_attention_layernorm.weight"])),
        q_norm=optional(f"{attention}q_norm.weight"),
        k_norm=optional(f"{attention}k_norm.weight"),
        qkv_bias=bias,
        qkv=model.hold(pack_panels(torch.cat(parts))),
        o=model.hold(pack_panels(weights[f"{attention}o_proj.weight"])),
        gate_up=model.hold(pack_panels(gate_up)),
        down=model.hold(pack_panels(weights[f"{prefix}mlp.down_proj.weight"])),
        k_cache=kv[0],
        v_cache=kv[1],
    )


def build_native_model(
    config: PretrainedConfig,
    weights: Mapping[str, torch.Tensor],
    *,
    num_kv_blocks: int,
    block_size: int,
    max_model_len: int,
    kv_dtype: torch.dtype,
) -> NativeModel:
    """Pack `weights` (bf16 or f32, all of one type) and allocate the KV cache.

    The head may have fewer rows than the embedding: the logits then have that many columns.

    Raises:
        LoadError: a weight is missing or the model is not supported.
    """
    if reason := unsupported_reason(config):
        raise LoadError(f"the CPU kernels cannot run this model: {reason}")
    shape = read_shape(config)
    model = NativeModel(shape=shape, struct=ModelStruct())
    embedding = weights["model.embed_tokens.weight"]
    is_bf16 = embedding.dtype == torch.bfloat16
    cosine, sine = rope_tables(config, max_model_len)
    kv_type = np.uint16 if kv_dtype == torch.bfloat16 else np.float32
    block_elements = block_size * shape.num_kv_heads * shape.head_dim
    layers = (LayerStruct * shape.num_layers)()
    try:
        for index in range(shape.num_layers):
            keys = model.hold_kv_cache(num_kv_blocks, block_elements, kv_type)
            kv = (keys, model.hold_kv_cache(num_kv_blocks, block_elements, kv_type))
            layers[index] = _build_layer(model, weights, index, kv)
        final_norm, lm_head = weights["model.norm.weight"], weights["lm_head.weight"]
    except KeyError as error:
        raise LoadError(f"the checkpoint has no tensor {error.args[0]}") from None
    model.shape = replace(shape, vocab=len(lm_head))
    raw = embedding.contiguous().view(torch.int16).numpy() if is_bf16 else _f32(embedding)
    model.struct = ModelStruct(
        **{name: getattr(shape, name) for name in ("num_layers", "hidden", "num_heads", "num_kv_heads", "head_dim")},
        intermediate=shape.intermediate,
        vocab=len(lm_head),
        weight_is_bf16=is_bf16,
        kv_is_bf16=kv_type is np.uint16,
        block_size=block_size,
        window=shape.window,
        qkv_stride=-(-shape.qkv_columns // PANEL) * PANEL,
        norm_eps=shape.norm_eps,
        attention_scale=shape.head_dim**-0.5,
        embedding=model.hold(raw),
        final_norm=model.hold(_f32(final_norm)),
        lm_head=model.hold(pack_panels(lm_head)),
        rope_cos=model.hold(cosine),
        rope_sin=model.hold(sine),
        layers=ctypes.addressof(layers),
    )
    model._keep.append(layers)
    return model
