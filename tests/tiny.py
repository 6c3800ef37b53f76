"""A complete model in a few hundred kilobytes: random Llama weights, a byte-level BPE tokenizer, always the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from cluster.engine.drafters.draft_source import DRAFT_FILE
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.native.runner import NativeRunner
from cluster.engine.native.weights import build_native_model

VOCAB_SIZE = 512
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN = "<|im_end|>"
EOS_TOKEN_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CORPUS = (
    "An outrider rides ahead of the carriage to clear the way; the drafter rides ahead of the target to guess words.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    'The answer is {"name": "value", "items": [1, 2, 3], "nested": {"true": false, "null": null}}.',
    "Whatever the batch, the replica, the pool or the length of the draft, the text that is written stays the same.",
    "When the verifier accepts a guess, several words appear together; when it refuses one, only speed has been lost.",
    "for index, item in enumerate(values):\n    print(index, item)\n    total = total + item * weights[index]\n",
    "Users asked for answers that arrive quickly, read smoothly, and never change because other people use it too.",
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """512 tokens: three special ones, the 256 bytes, and merges learnt from a few sentences."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS_TOKEN, pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_config(*, tie_word_embeddings: bool = False) -> LlamaConfig:
    """Four layers, hidden 64, four heads over two KV heads."""
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        initializer_range=0.15,  # wide enough that logits differ clearly between tokens
        tie_word_embeddings=tie_word_embeddings,
        bos_token_id=None,
        eos_token_id=EOS_TOKEN_ID,
        pad_token_id=0,
    )


def random_llama(config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """A Llama with random weights; the same seed gives the same ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        model.eval()
        return model


def bf16_weights(model: LlamaForCausalLM) -> dict[str, torch.Tensor]:
    """The model's weights by checkpoint name, in bf16."""
    return {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}


def native_runner(
    config: LlamaConfig,
    weights: Mapping[str, torch.Tensor],
    *,
    num_blocks: int,
    block_size: int,
    max_model_len: int,
) -> NativeRunner:
    """The CPU kernels on one thread, with bf16 KV."""
    native = build_native_model(
        config,
        weights,
        num_kv_blocks=num_blocks,
        block_size=block_size,
        max_model_len=max_model_len,
        kv_dtype=torch.bfloat16,
    )
    return NativeRunner(native, num_kv_blocks=num_blocks, max_model_len=max_model_len, num_threads=1)


def save_tiny_model(
    folder: Path, *, tie_word_embeddings: bool = False, max_shard_size: str = "1GB", seed: int = 0
) -> Path:
    """Write a model folder in float32 and return it; the same seed gives the same bytes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(build_config(tie_word_embeddings=tie_word_embeddings))
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    build_tokenizer().save_pretrained(folder)
    return folder


def save_tiny_draft(folder: Path, target: Path, *, num_layers: int = 4, seed: int | None = None) -> Path:
    """Write a draft model for the tiny model in `target` and return its folder; embedding and head are the target's.

    Args:
        folder: to be written.
        target: from `save_tiny_model`.
        num_layers: the target's first layers; with all four it drafts what the target says.
        seed: of random layers instead; those draft nonsense.
    """
    config = build_config()
    config.num_hidden_layers = num_layers
    config.architectures = ["LlamaForCausalLM"]
    tensors = load_file(target / "model.safetensors")
    if seed is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            tensors = dict(LlamaForCausalLM(config).state_dict())
    kept = tuple(f"model.layers.{index}." for index in range(num_layers))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {n: tensor.contiguous() for n, tensor in tensors.items() if n.startswith(kept) or n == "model.norm.weight"},
        folder / "model.safetensors",
    )
    config.save_pretrained(folder)
    about = {"format": 1, "target": target.name, "tokenizer_hash": vocabulary_hash(build_tokenizer())}
    (folder / DRAFT_FILE).write_text(json.dumps(about | {"embeddings": "target", "head": "target"}))
    return folder


def write_tiny_gguf(path: Path) -> Path:
    """Write a Llama of one layer as GGUF, weights in Q8_0 where they are matrices, with its tokenizer."""
    config = build_config(tie_word_embeddings=True)
    config.num_hidden_layers = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(VOCAB_SIZE)
    _add_tokenizer(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        values = (
            _interleave_rotary_halves(tensor) if name.endswith(("q_proj.weight", "k_proj.weight")) else tensor.numpy()
        )
        kind = gguf.GGMLQuantizationType.Q8_0 if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        target = names.get_name(name, try_suffixes=(".weight",))
        assert target is not None
        writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _interleave_rotary_halves(weight: torch.Tensor) -> np.ndarray[Any, Any]:
    """GGUF keeps the two halves of a rotated head (of 16 rows) interleaved."""
    return weight.view(-1, 2, 8, weight.shape[1]).transpose(1, 2).reshape(weight.shape).numpy()


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = build_tokenizer()
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = set(SPECIAL_TOKENS)
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token, _ in vocab]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types(kinds)
    writer.add_token_merges(_merges(tokenizer))
    writer.add_eos_token_id(EOS_TOKEN_ID)
    writer.add_bos_token_id(1)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(EOS_TOKEN_ID)
    writer.add_chat_template(CHAT_TEMPLATE)


def _merges(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    return [" ".join(pair) for pair in json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]]
