"""The CPU kernels against transformers in float32, and the bit-equality that `invariant` numerics promises."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from cluster.engine.model_input import ModelInput
from cluster.engine.native.runner import NativeRunner
from cluster.engine.native.weights import build_native_model, unsupported_reason

BLOCK_SIZE, NUM_BLOCKS, MAX_LEN = 32, 24, 256
_SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 96,
    "intermediate_size": 208,
    "num_hidden_layers": 3,
    "max_position_embeddings": MAX_LEN,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**_SIZES, num_attention_heads=3, num_key_value_heads=1, head_dim=32),
    "llama_rope_scaled": LlamaConfig(
        **_SIZES,
        num_attention_heads=6,
        num_key_value_heads=1,
        head_dim=64,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "mistral_sliding": MistralConfig(
        **_SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=32, sliding_window=40
    ),
    "qwen2_bias": Qwen2Config(**_SIZES, num_attention_heads=3, num_key_value_heads=3),
    "qwen3_head_norm": Qwen3Config(**_SIZES, num_attention_heads=8, num_key_value_heads=2, head_dim=128),
}


@dataclass
class Pair:
    """The same weights in transformers and in the kernels."""

    reference: PreTrainedModel
    native: NativeRunner


def make_reference(config: PretrainedConfig, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    torch.manual_seed(1)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(weight, 1.0 if "norm" in name else 0.0, 0.3)
        else:
            torch.nn.init.normal_(weight, 0.0, 0.15)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(dtype).float())
    return model


def make_native(model: PreTrainedModel, *, dtype: torch.dtype, kv_dtype: torch.dtype, num_threads: int) -> NativeRunner:
    weights = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    model.config.architectures = [type(model).__name__]
    native = build_native_model(
        model.config, weights, num_kv_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_model_len=MAX_LEN, kv_dtype=kv_dtype
    )
    return NativeRunner(native, num_kv_blocks=NUM_BLOCKS, max_model_len=MAX_LEN, num_threads=num_threads)


@pytest.fixture(scope="module", params=CONFIGS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    reference = make_reference(CONFIGS[request.param], torch.bfloat16)
    native = make_native(reference, dtype=torch.bfloat16, kv_dtype=torch.float32, num_threads=2)
    yield Pair(reference, native)
    native.close()


def batch_of(chunks: list[tuple[list[int], list[int], int, int]]) -> ModelInput:
    """Rows start..end of (token ids, block table) per sequence, all with logits."""
    rows = [
        (tokens[p], p, table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE, index)
        for index, (tokens, table, start, end) in enumerate(chunks)
        for p in range(start, end)
    ]
    token_ids, positions, slots, sequences = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    width = max(len(table) for _, table, _, _ in chunks)
    tables = np.array([table + [0] * (width - len(table)) for _, table, _, _ in chunks], np.int32)
    return ModelInput(
        token_ids=token_ids,
        positions=positions,
        slot_mapping=slots,
        row_sequences=sequences,
        block_tables=tables,
        logit_rows=np.arange(len(rows), dtype=np.int32),
    )


def random_tokens(seed: int, count: int) -> list[int]:
    return torch.randint(0, 320, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(runner: NativeRunner, tokens: list[int], table: list[int], cuts: list[int]) -> torch.Tensor:
    """Logits of all positions when computed in the given pieces."""
    return torch.cat([runner.forward(batch_of([(tokens, table, a, b)])).clone() for a, b in pairwise(cuts)])


TABLE = [5, 2, 9, 1]


def test_logits_equal_transformers_in_float32(pair: Pair) -> None:
    tokens = random_tokens(0, 100)
    with torch.inference_mode():
        expected = pair.reference(torch.tensor([tokens])).logits[0]
    actual = run(pair.native, tokens, TABLE, [0, 37, 38, 64, 100])
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-4)


def test_float32_weights_equal_transformers() -> None:
    reference = make_reference(CONFIGS["llama"])
    runner = make_native(reference, dtype=torch.float32, kv_dtype=torch.float32, num_threads=1)
    tokens = random_tokens(3, 50)
    with torch.inference_mode():
        expected = reference(torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(run(runner, tokens, TABLE, [0, 50]), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("cuts", [[0, 100], [0, 1, 2, 3, 5, 13, 25, 50, 51, 59, 100], [0, 64, *range(65, 101)]])
def test_a_row_has_the_same_bits_however_it_is_cut(pair: Pair, cuts: list[int]) -> None:
    tokens = random_tokens(0, 100)
    expected = run(pair.native, tokens, TABLE, list(range(101)))
    assert torch.equal(run(pair.native, tokens, TABLE, cuts), expected)


def test_a_row_has_the_same_bits_beside_other_sequences(pair: Pair) -> None:
    tokens, other = random_tokens(0, 70), random_tokens(4, 40)
    expected = run(pair.native, tokens, TABLE, [0, 70])
    moved = [3, 7, 4]
    pair.native.forward(batch_of([(other, [8, 6], 0, 17), (tokens, moved, 0, 62)]))
    mixed = pair.native.forward(batch_of([(other, [8, 6], 17, 40), (tokens, moved, 62, 70)]))
    assert torch.equal(mixed[23:], expected[62:])


def test_rejected_rows_leave_no_trace(pair: Pair) -> None:
    tokens = random_tokens(0, 60)
    expected = run(pair.native, tokens, TABLE, [0, 60])
    run(pair.native, tokens, TABLE, [0, 40])
    wrong = tokens[:41] + random_tokens(9, 7)
    pair.native.forward(batch_of([(wrong, TABLE, 40, 48)]))
    assert torch.equal(run(pair.native, tokens, TABLE, [0, 40, 41, 60])[41:], expected[41:])


def test_thread_count_does_not_change_bits() -> None:
    reference = make_reference(CONFIGS["llama"], torch.bfloat16)
    tokens = random_tokens(5, 90)
    results = []
    for num_threads in (1, 2, 3):
        runner = make_native(reference, dtype=torch.bfloat16, kv_dtype=torch.bfloat16, num_threads=num_threads)
        results.append(run(runner, tokens, TABLE, [0, 33, 90]))
        runner.close()
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_bf16_kv_cache_stays_close_to_float32() -> None:
    reference = make_reference(CONFIGS["qwen3_head_norm"], torch.bfloat16)
    tokens = random_tokens(6, 80)
    with torch.inference_mode():
        expected = reference(torch.tensor([tokens])).logits[0].log_softmax(-1)
    runner = make_native(reference, dtype=torch.bfloat16, kv_dtype=torch.bfloat16, num_threads=1)
    actual = run(runner, tokens, TABLE, [0, 80]).log_softmax(-1)
    assert (actual - expected).abs().max() < 0.2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architectures": ["FalconForCausalLM"]}, "architecture"),
        ({"hidden_act": "gelu"}, "activation"),
        ({"head_dim": 24}, "head_dim"),
        ({"hidden_size": 90}, "hidden_size"),
    ],
)
def test_models_outside_the_family_are_named(change: dict[str, Any], reason: str) -> None:
    config = LlamaConfig(
        **{**_SIZES, "num_attention_heads": 3, "head_dim": 32, "architectures": ["LlamaForCausalLM"], **change}
    )
    assert reason in str(unsupported_reason(config))


def test_runners_of_one_thread_share_their_workers_which_end_with_the_thread() -> None:
    reference = make_reference(CONFIGS["llama"], torch.bfloat16)
    tokens = random_tokens(5, 40)
    seen: list[list[threading.Thread]] = []

    def workers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("forward-")]

    def compute() -> None:
        for _ in range(2):
            runner = make_native(reference, dtype=torch.bfloat16, kv_dtype=torch.bfloat16, num_threads=3)
            run(runner, tokens, TABLE, [0, 40])
            seen.append([thread for thread in workers() if thread not in before])

    before = workers()
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert len(seen[0]) == 2
    assert seen[1] == seen[0]
    for worker in seen[0]:
        worker.join(10)
    assert not any(worker.is_alive() for worker in seen[0])
