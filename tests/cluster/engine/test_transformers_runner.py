"""The general runner against transformers' own full forward and generate, on tiny random models in float32."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import PreTrainedModel

from cluster.engine.model_input import ModelInput
from cluster.engine.model_runner import ModelRunner
from cluster.engine.model_source import ModelSource
from cluster.engine.transformers_runner import TransformersRunner
from cluster.errors import ConfigError
from tests.cluster.engine.tiny_models import COMMON, CONFIGS, VOCAB_SIZE, random_model

BLOCK_SIZE = 4
NUM_BLOCKS = 40


@cache
def runner_for(name: str) -> TransformersRunner:
    """One runner per architecture: reusing it also shows that old KV does not leak into new sequences."""
    return TransformersRunner(random_model(CONFIGS[name]()), num_kv_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)


@cache
def plain_model(name: str) -> PreTrainedModel:
    """The same weights, untouched by us."""
    return random_model(CONFIGS[name]())


def plain_logits(model: PreTrainedModel, token_ids: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([list(token_ids)])).logits[0]  # type: ignore[no-any-return]


def random_ids(length: int, seed: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(3, VOCAB_SIZE, length).tolist()
    return ids


class Paged:
    """Hands out shuffled blocks and packs rows; knows nothing of models."""

    def __init__(self, runner: ModelRunner, *, seed: int = 0) -> None:
        self._runner = runner
        self._free = np.random.default_rng(seed).permutation(runner.num_kv_blocks).tolist()
        self._tables: dict[str, list[int]] = {}

    def _slot(self, name: str, position: int) -> int:
        table, size = self._tables.setdefault(name, []), self._runner.block_size
        while len(table) * size <= position:
            table.append(self._free.pop())
        return table[position // size] * size + position % size

    def forward(self, *parts: tuple[str, int, Sequence[int]], keep: Iterable[int] | None = None) -> torch.Tensor:
        """Run (sequence name, first position, token ids) parts in one batch; logits of all rows or of `keep`."""
        rows = [(name, start + i, token) for name, start, tokens in parts for i, token in enumerate(tokens)]
        slots = [self._slot(name, position) for name, position, _ in rows]
        order = [name for name, _, _ in parts]
        width = max(len(self._tables[name]) for name in order) + 2
        batch = ModelInput(
            token_ids=np.array([token for _, _, token in rows], np.int32),
            positions=np.array([position for _, position, _ in rows], np.int32),
            slot_mapping=np.array(slots, np.int32),
            row_sequences=np.array([order.index(name) for name, _, _ in rows], np.int32),
            block_tables=np.array([self._tables[n] + [0] * (width - len(self._tables[n])) for n in order], np.int32),
            logit_rows=np.array(list(range(len(rows)) if keep is None else keep), np.int32),
        )
        return self._runner.forward(batch).clone()


def assert_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


every_architecture = pytest.mark.parametrize("name", CONFIGS)


@every_architecture
def test_prefill_in_chunks_gives_the_logits_of_one_full_forward(name: str) -> None:
    ids = random_ids(41, seed=1)
    paged = Paged(runner_for(name))
    chunks = [paged.forward(("a", start, ids[start : start + size])) for start, size in [(0, 7), (7, 1), (8, 33)]]
    assert_same(torch.cat(chunks), plain_logits(plain_model(name), ids))


@every_architecture
def test_greedy_decoding_writes_what_generate_writes(name: str) -> None:
    model: Any = plain_model(name)
    prompt = random_ids(9, seed=2)
    wanted = model.generate(
        torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0].tolist()
    paged, ids = Paged(runner_for(name)), list(prompt)
    logits = paged.forward(("a", 0, prompt), keep=[len(prompt) - 1])
    while len(ids) < len(wanted):
        ids.append(int(logits[0].argmax()))
        logits = paged.forward(("a", len(ids) - 1, ids[-1:]))
    assert ids == wanted


@every_architecture
def test_verification_rows_equal_decoding_the_same_tokens_one_by_one(name: str) -> None:
    ids = random_ids(20, seed=3)
    paged = Paged(runner_for(name))
    paged.forward(("a", 0, ids[:11]))
    assert_same(paged.forward(("a", 11, ids[11:20])), plain_logits(plain_model(name), ids)[11:])


@every_architecture
def test_prefill_decode_and_verification_in_one_batch_do_not_see_each_other(name: str) -> None:
    sequences = {key: random_ids(length, seed=length) for key, length in zip("abcde", (15, 24, 30, 6, 33), strict=True)}
    cached = {"a": 14, "b": 16, "c": 5, "d": 0, "e": 32}
    paged = Paged(runner_for(name), seed=5)
    paged.forward(*[(key, 0, ids[: cached[key]]) for key, ids in sequences.items() if cached[key]])
    found = paged.forward(*[(key, cached[key], ids[cached[key] :]) for key, ids in sequences.items()])
    wanted = [plain_logits(plain_model(name), ids)[cached[key] :] for key, ids in sequences.items()]
    assert_same(found, torch.cat(wanted))


@every_architecture
def test_slots_of_rejected_drafts_are_overwritten(name: str) -> None:
    ids, wrong = random_ids(18, seed=6), random_ids(5, seed=7)
    paged = Paged(runner_for(name))
    paged.forward(("a", 0, ids[:10]))
    paged.forward(("a", 10, [ids[10], *wrong]))
    assert_same(paged.forward(("a", 11, ids[11:13])), plain_logits(plain_model(name), ids[:13])[11:])
    assert_same(paged.forward(("a", 13, ids[13:])), plain_logits(plain_model(name), ids)[13:])


def test_two_sequences_read_one_shared_prefix_block() -> None:
    prefix, tails = random_ids(BLOCK_SIZE, seed=8), [random_ids(3, seed=9), random_ids(5, seed=10)]
    batch = ModelInput(
        token_ids=np.array([*prefix, *tails[0], *tails[1]], np.int32),
        positions=np.array([*range(7), *range(4, 9)], np.int32),
        slot_mapping=np.array([*range(20, 24), *range(8, 11), *range(12, 16), 0], np.int32),
        row_sequences=np.array([0] * 7 + [1] * 5, np.int32),
        block_tables=np.array([[5, 2, 0], [5, 3, 0]], np.int32),
        logit_rows=np.arange(4, 12, dtype=np.int32),
    )
    wanted = [plain_logits(plain_model("llama"), prefix + tail)[BLOCK_SIZE:] for tail in tails]
    assert_same(runner_for("llama").forward(batch), torch.cat(wanted))


@pytest.mark.parametrize("keep", [[2, 5, 6], [6], []])
def test_only_the_asked_rows_have_logits(keep: list[int]) -> None:
    ids = random_ids(7, seed=11)
    found = Paged(runner_for("llama")).forward(("a", 0, ids), keep=keep)
    assert found.shape == (len(keep), VOCAB_SIZE)
    assert_same(found, plain_logits(plain_model("llama"), ids)[keep])


def test_logits_are_projected_for_the_asked_rows_only() -> None:
    model = random_model(CONFIGS["llama"]())
    runner = TransformersRunner(model, num_kv_blocks=8, block_size=BLOCK_SIZE)
    projected: list[int] = []
    head = model.get_output_embeddings()
    assert head is not None
    head.register_forward_hook(lambda _module, inputs, _output: projected.append(inputs[0].shape[1]))
    Paged(runner).forward(("a", 0, random_ids(9, seed=12)), keep=[8])
    assert projected == [1]


class ProjectsEveryRow(transformers.LlamaForCausalLM):
    """A model that cannot be told for which rows to compute logits."""

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        assert "logits_to_keep" not in kwargs
        return super().forward(input_ids=input_ids, **kwargs)


def test_rows_are_chosen_afterwards_when_the_model_cannot() -> None:
    torch.manual_seed(0)
    runner = TransformersRunner(ProjectsEveryRow(transformers.LlamaConfig(**COMMON)), num_kv_blocks=8, block_size=4)
    ids = random_ids(7, seed=15)
    every_row, two_rows = Paged(runner).forward(("a", 0, ids)), Paged(runner).forward(("a", 0, ids), keep=[1, 4])
    assert_same(two_rows, every_row[[1, 4]])


def test_bfloat16_stays_close_to_the_model_and_is_reported() -> None:
    calm = {**COMMON, "initializer_range": 0.1}
    model = random_model(transformers.LlamaConfig(**calm), dtype=torch.bfloat16)
    runner = TransformersRunner(model, num_kv_blocks=16, block_size=BLOCK_SIZE)
    ids = random_ids(20, seed=13)
    found = Paged(runner).forward(("a", 0, ids))
    assert (found.dtype, runner.dtype) == (torch.bfloat16, "bfloat16")
    wanted = plain_logits(random_model(transformers.LlamaConfig(**calm)), ids)
    assert (found.float() - wanted).abs().mean() < 0.05 * wanted.abs().mean()


def test_the_runner_says_what_it_is() -> None:
    runner: ModelRunner = runner_for("llama")
    assert (runner.vocab_size, runner.num_kv_blocks, runner.block_size) == (VOCAB_SIZE, NUM_BLOCKS, BLOCK_SIZE)
    assert (runner.max_model_len, runner.dtype, runner.numerics) == (128, "float32", "fast")


def test_cache_memory_is_known() -> None:
    assert runner_for("deepseek_v3").kv_cache_bytes == NUM_BLOCKS * BLOCK_SIZE * 3 * 4 * (12 + 6) * 4


def test_a_closed_runner_holds_no_weights() -> None:
    runner = TransformersRunner(random_model(CONFIGS["llama"]()), num_kv_blocks=8, block_size=BLOCK_SIZE)
    runner.close()
    assert not any(isinstance(value, torch.nn.Module) for value in vars(runner).values())
    with pytest.raises(AttributeError):
        Paged(runner)


def test_a_saved_checkpoint_runs_like_the_model_it_was_saved_from(tmp_path: Path) -> None:
    plain_model("qwen3").save_pretrained(tmp_path)
    source = ModelSource(folder=tmp_path, model_id="tiny", revision=None)
    runner = TransformersRunner.load(
        source, dtype=torch.float32, num_kv_blocks=8, block_size=BLOCK_SIZE, max_model_len=30
    )
    ids = random_ids(11, seed=14)
    assert_same(Paged(runner).forward(("a", 0, ids)), plain_logits(plain_model("qwen3"), ids))
    assert runner.max_model_len == 30


def test_a_length_beyond_the_model_is_refused_with_its_limit() -> None:
    model = random_model(CONFIGS["llama"]())
    with pytest.raises(ConfigError, match=r"max_model_len = 129 .*at most 128"):
        TransformersRunner(model, num_kv_blocks=8, block_size=BLOCK_SIZE, max_model_len=129)
