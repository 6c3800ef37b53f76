"""Next-n modules written out in plain torch from the published layout, without cache; and random checkpoints of them.

Legend: n rows, H hidden size, D width of a head, h heads.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, PretrainedConfig

from cluster.engine.drafters.head import HeadTarget
from cluster.errors import LoadError
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE, build_tokenizer

NUM_LAYERS, MAX_MODEL_LEN = 2, 256

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": NUM_LAYERS + 1,  # the last one becomes the module
    "num_attention_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 1,
    "max_position_embeddings": MAX_MODEL_LEN,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": EOS_TOKEN_ID,
    "pad_token_id": 0,
}
CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **_COMMON,
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=6,
    ),
    "glm4_moe": lambda: transformers.Glm4MoeConfig(
        **{**_COMMON, "head_dim": 16}, num_key_value_heads=2, use_qk_norm=True, attention_bias=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A target of `NUM_LAYERS` layers and the module behind them, as published."""

    config: PretrainedConfig
    tensors: dict[str, Tensor]

    @property
    def prefix(self) -> str:
        return f"model.layers.{NUM_LAYERS}."

    def target(self, **changes: Any) -> HeadTarget:
        settings: dict[str, Any] = {
            "config": self.config,
            "weight": self.weight,
            "device": "cpu",
            "dtype": torch.float32,
            "max_model_len": MAX_MODEL_LEN,
            "max_sequences": 4,
            "num_threads": 1,
        }
        return HeadTarget(**{**settings, **changes})

    def weight(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise LoadError(f"no tensor {name}")
        return self.tensors[name]

    def save(self, folder: Path) -> Path:
        self.config.save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)
        tensors = {name: tensor.contiguous().clone() for name, tensor in self.tensors.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder


def random_checkpoint(name: str, *, repeats_target: bool = True, seed: int = 0) -> Checkpoint:
    """Random weights; the module's embedding and head are stored with it or left to the target."""
    config = CONFIGS[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        tensors = _published(model.state_dict())
        prefix, hidden = f"model.layers.{NUM_LAYERS}.", config.hidden_size
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            tensors[f"{prefix}{norm}.weight"] = 1 + 0.3 * torch.randn(hidden)
        tensors["model.norm.weight"] = 1 + 0.3 * torch.randn(hidden)
        tensors[f"{prefix}eh_proj.weight"] = 0.3 * torch.randn(hidden, 2 * hidden)
        for layer in range(1, NUM_LAYERS + 1):
            tensors[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"] = 0.1 * torch.randn(8)
    if repeats_target:
        tensors[f"{prefix}embed_tokens.weight"] = tensors["model.embed_tokens.weight"]
        tensors[f"{prefix}shared_head.head.weight"] = tensors["lm_head.weight"]
    config.num_hidden_layers = NUM_LAYERS
    config.architectures = [type(model).__name__]
    return Checkpoint(config=config, tensors=tensors)


def _published(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Experts one by one, as checkpoints have them."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(tensor):
                for part, weight in zip(("gate", "up"), both.chunk(2), strict=True):
                    tensors[name.replace("gate_up_proj", f"{expert}.{part}_proj.weight")] = weight
        elif name.endswith("experts.down_proj"):
            for expert, weight in enumerate(tensor):
                tensors[name.replace("down_proj", f"{expert}.down_proj.weight")] = weight
        else:
            tensors[name] = tensor
    return tensors


class Reference:
    """Rows of one sequence; everything is worked out anew for each question."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._config, self._tensors, self._prefix = checkpoint.config, checkpoint.tensors, checkpoint.prefix

    def draft(
        self, features_nH: Tensor, token_ids: Sequence[int], drafts: Sequence[int], positions: Sequence[int]
    ) -> list[Tensor]:
        """Logits of the first draft token, and of the one after each of `drafts`; positions are those of the rows."""
        hidden = list(self._norm("model.norm.weight", features_nH, from_target=True))
        tokens, places = list(token_ids), list(positions)
        logits = []
        for draft in (*drafts, None):
            output_nH = self._module(torch.stack(hidden), tokens, places)
            logits.append(output_nH[-1] @ self._head().T)
            hidden.append(output_nH[-1])
            tokens.append(draft or 0)
            places.append(places[-1] + 1)
        return logits

    def _module(self, hidden_nH: Tensor, tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
        embedded_nH = self._tensors["model.embed_tokens.weight"][list(tokens)]
        both = torch.cat([self._norm("enorm.weight", embedded_nH), self._norm("hnorm.weight", hidden_nH)], dim=1)
        x_nH = both @ self._weight("eh_proj.weight").T
        attention = self._latent_attention if self._config.model_type == "deepseek_v3" else self._grouped_attention
        x_nH = x_nH + attention(self._norm("input_layernorm.weight", x_nH), torch.tensor(positions))
        x_nH = x_nH + self._experts(self._norm("post_attention_layernorm.weight", x_nH))
        return self._norm("shared_head.norm.weight", x_nH)

    def _latent_attention(self, x_nH: Tensor, positions: Tensor) -> Tensor:
        config, heads = self._config, self._config.num_attention_heads
        nope, rope = config.qk_nope_head_dim, config.qk_rope_head_dim
        low_q = self._norm("self_attn.q_a_layernorm.weight", self._linear("self_attn.q_a_proj", x_nH), eps=1e-6)
        q_nhD = self._linear("self_attn.q_b_proj", low_q).reshape(len(x_nH), heads, nope + rope)
        low, k_rope = self._linear("self_attn.kv_a_proj_with_mqa", x_nH).split([config.kv_lora_rank, rope], dim=1)
        low = self._norm("self_attn.kv_a_layernorm.weight", low, eps=1e-6)
        kv_nhD = self._linear("self_attn.kv_b_proj", low).reshape(len(x_nH), heads, nope + config.v_head_dim)
        k_rope = _rotate_pairs(k_rope[:, None], positions, self._theta).expand(-1, heads, -1)
        q_nhD = torch.cat([q_nhD[..., :nope], _rotate_pairs(q_nhD[..., nope:], positions, self._theta)], dim=2)
        k_nhD = torch.cat([kv_nhD[..., :nope], k_rope], dim=2)
        return self._linear("self_attn.o_proj", _attend(q_nhD, k_nhD, kv_nhD[..., nope:]).flatten(1))

    def _grouped_attention(self, x_nH: Tensor, positions: Tensor) -> Tensor:
        width = self._config.head_dim
        groups = self._config.num_attention_heads // self._config.num_key_value_heads
        q, k, v = (self._linear(f"self_attn.{part}_proj", x_nH).reshape(len(x_nH), -1, width) for part in "qkv")
        q, k = self._norm("self_attn.q_norm.weight", q), self._norm("self_attn.k_norm.weight", k)
        q, k = (_rotate_halves(part, positions, self._theta, width // 2) for part in (q, k))
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        return self._linear("self_attn.o_proj", _attend(q, k, v).flatten(1))

    def _experts(self, x_nH: Tensor) -> Tensor:
        return torch.stack([self._route(x_H) for x_H in x_nH]) + self._mlp("mlp.shared_experts.", x_nH)

    def _route(self, x_H: Tensor) -> Tensor:
        """One row through its experts, by the text of the DeepSeek-V3 report (section 2.1.2)."""
        config = self._config
        scores = torch.sigmoid(x_H @ self._weight("mlp.gate.weight").T)
        choice = scores + self._weight("mlp.gate.e_score_correction_bias")
        size = config.n_routed_experts // config.n_group
        groups = sorted(range(config.n_group), key=lambda g: -choice[g * size : (g + 1) * size].topk(2).values.sum())
        allowed = [group * size + i for group in groups[: config.topk_group] for i in range(size)]
        chosen = sorted(allowed, key=lambda expert: -float(choice[expert]))[: config.num_experts_per_tok]
        total = sum(float(scores[expert]) for expert in chosen)
        parts = [self._mlp(f"mlp.experts.{e}.", x_H) * scores[e] / total for e in chosen]
        return torch.stack(parts).sum(0) * float(config.routed_scaling_factor)

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        gate, up = (x @ self._weight(f"{name}{part}_proj.weight").T for part in ("gate", "up"))
        return (functional.silu(gate) * up) @ self._weight(f"{name}down_proj.weight").T

    def _linear(self, name: str, x: Tensor) -> Tensor:
        bias = self._tensors.get(f"{self._prefix}{name}.bias")
        product = x @ self._weight(f"{name}.weight").T
        return product if bias is None else product + bias

    def _norm(self, name: str, x: Tensor, *, from_target: bool = False, eps: float | None = None) -> Tensor:
        weight = self._tensors[name] if from_target else self._weight(name)
        eps = self._config.rms_norm_eps if eps is None else eps
        normed: Tensor = weight * x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)
        return normed

    def _head(self) -> Tensor:
        return self._tensors.get(f"{self._prefix}shared_head.head.weight", self._tensors["lm_head.weight"])

    def _weight(self, name: str) -> Tensor:
        return self._tensors[self._prefix + name]

    @property
    def _theta(self) -> float:
        return float(self._config.rope_parameters["rope_theta"])


def _angles(positions: Tensor, theta: float, width: int) -> Tensor:
    return positions[:, None, None] * theta ** (-torch.arange(0, width, 2) / width)


def _rotate_pairs(x_nhD: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Neighbours are the two parts of a number in the plane."""
    plane = torch.view_as_complex(x_nhD.reshape(*x_nhD.shape[:-1], -1, 2).contiguous())
    turned = plane * torch.exp(1j * _angles(positions, theta, x_nhD.shape[-1]))
    return torch.view_as_real(turned).flatten(-2).float()


def _rotate_halves(x_nhD: Tensor, positions: Tensor, theta: float, width: int) -> Tensor:
    """The first `width` numbers of a head turn, the first half of them with the second."""
    angles = _angles(positions, theta, width)
    first, second, rest = x_nhD.split([width // 2, width // 2, x_nhD.shape[-1] - width], dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def _attend(q_nhD: Tensor, k_nhD: Tensor, v_nhD: Tensor) -> Tensor:
    scores = torch.einsum("nhd,mhd->hnm", q_nhD, k_nhD) / math.sqrt(q_nhD.shape[-1])
    future = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    return torch.einsum("hnm,mhd->nhd", scores.masked_fill(future, -torch.inf).softmax(-1), v_nhD)
