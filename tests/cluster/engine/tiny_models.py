"""Tiny random models of many architectures, for tests."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

VOCAB_SIZE = 97

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Large enough for logits that a wrong mask or position visibly changes.
    "initializer_range": 0.3,
}
SLIDING: dict[str, Any] = {
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: transformers.LlamaConfig(**COMMON, head_dim=12),
    "mistral": lambda: transformers.MistralConfig(**COMMON, sliding_window=6),
    "qwen2": lambda: transformers.Qwen2Config(**COMMON),
    "qwen3": lambda: transformers.Qwen3Config(**COMMON, head_dim=8),
    "gemma2": lambda: transformers.Gemma2Config(**COMMON, **SLIDING, head_dim=8, attn_logit_softcapping=2.0),
    "gemma3": lambda: transformers.Gemma3TextConfig(**COMMON, **SLIDING, head_dim=8),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**COMMON),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCAB_SIZE, n_embd=32, n_layer=3, n_head=4, n_positions=128, initializer_range=0.3
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **COMMON, **SLIDING, head_dim=8, num_local_experts=4, num_experts_per_tok=2
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **{**COMMON, "num_key_value_heads": 4},
        q_lora_rank=16,
        kv_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=6,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=16,
    ),
    "glm4_moe": lambda: transformers.Glm4MoeConfig(
        **COMMON,
        use_qk_norm=True,
        attention_bias=True,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
    ),
}


def random_model(config: PretrainedConfig, *, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    return model
