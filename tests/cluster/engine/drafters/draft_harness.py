"""A tiny draft model, and the same drafting written plainly: every path computed from its first token."""

from collections.abc import Sequence as Seq
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from cluster.engine import sampling_reference
from cluster.engine.drafters.draft_ahead import DraftJob, DraftModel
from cluster.engine.logits_processors import GREEDY_TEMPERATURE, SamplingRow
from cluster.engine.model_input import ModelInput
from cluster.engine.native.runner import NativeRunner
from cluster.engine.noise import gumbel
from cluster.types import SamplingParams
from tests.tiny import bf16_weights, native_runner, random_llama

VOCAB, HIDDEN, BLOCK_SIZE, MAX_LEN = 160, 64, 32, 192
EOS = frozenset({3})
# A head over a part of the vocabulary, with gaps of several sizes.
TARGET_IDS = np.array([i for i in range(VOCAB) if i % 5 not in (1, 4)], np.int32)

Entries = tuple[tuple[int, tuple[int, ...]], ...]


@cache
def tiny_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_LEN,
        initializer_range=0.25,
        architectures=["LlamaForCausalLM"],
    )
    return random_llama(config, seed=5)


def make_runner(*, num_blocks: int = 64, max_len: int = MAX_LEN, part: bool = False) -> NativeRunner:
    weights = bf16_weights(tiny_model())
    if part:
        weights["lm_head.weight"] = weights["lm_head.weight"][torch.from_numpy(TARGET_IDS).long()]
    return native_runner(
        tiny_model().config, weights, num_blocks=num_blocks, block_size=BLOCK_SIZE, max_model_len=max_len
    )


def make_draft_model(
    *,
    num_blocks: int = 64,
    max_len: int = MAX_LEN,
    part: bool = False,
    eos_token_ids: frozenset[int] = frozenset(),
    **settings: Any,
) -> DraftModel:
    return DraftModel(
        make_runner(num_blocks=num_blocks, max_len=max_len, part=part),
        target_ids=TARGET_IDS if part else None,
        vocab_size=VOCAB,
        eos_token_ids=eos_token_ids,
        **settings,
    )


def sampling(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 1000, "seed": 7, "temperature": 0.0, **fields})


def run(model: DraftModel, *jobs: DraftJob, max_steps: int = 100) -> None:
    """Step until all jobs are done."""
    for _ in range(max_steps):
        if all(job.is_done for job in jobs):
            return
        model.step(jobs)
        model.check_integrity()
    raise AssertionError("the jobs do not end")


def entries(job: DraftJob) -> Entries:
    return tuple((entry.num_accepted, entry.token_ids) for entry in job.entries)


class Reference:
    """Drafts one token after the other, without KV from before, in the token ids of the target."""

    def __init__(self, *, part: bool = False, eos_token_ids: frozenset[int] = frozenset()) -> None:
        self._runner = make_runner(num_blocks=MAX_LEN // BLOCK_SIZE, part=part)
        self._ids = TARGET_IDS if part else np.arange(VOCAB)
        self._eos_token_ids = eos_token_ids

    def entries(
        self,
        token_ids: Seq[int],
        num_prompt_tokens: int,
        params: SamplingParams,
        *,
        draft: Seq[int],
        num_tokens: int,
        fan_out: Seq[int],
    ) -> Entries:
        """What a job must answer when neither length nor memory limits it."""
        outcomes = []
        for num_accepted, wanted in enumerate(fan_out[: len(draft) + 1]):
            path = [*token_ids, *draft[:num_accepted]]
            excluded = draft[num_accepted] if num_accepted < len(draft) else None
            ranked = self.ranked(path, num_prompt_tokens, params)
            best = [token_id for token_id in ranked if token_id != excluded][:wanted]
            outcomes += [(index / wanted, -wanted, num_accepted, token_id) for index, token_id in enumerate(best)]
        answers = []
        for _, _, num_accepted, token_id in sorted(outcomes, key=lambda outcome: outcome[:3]):
            path = [*token_ids, *draft[:num_accepted], token_id]
            start = len(path) - 1
            while len(path) - start < 1 + num_tokens and not self._ends(path[-1], params):
                path.append(self.ranked(path, num_prompt_tokens, params)[0])
            answers.append((num_accepted, tuple(path[start:])))
        return tuple(answers)

    def ranked(self, path: Seq[int], num_prompt_tokens: int, params: SamplingParams) -> list[int]:
        """All tokens that may follow, by falling score, then rising id."""
        output_index = len(path) - num_prompt_tokens
        row = SamplingRow(
            params=params,
            output_index=output_index,
            prompt_token_ids=tuple(path[:num_prompt_tokens]),
            output_token_ids=path[num_prompt_tokens:],
        )
        scores = sampling_reference.process(self.logits(path), row, self._eos_token_ids)
        if params.temperature >= GREEDY_TEMPERATURE:
            scores = scores + gumbel(params.seed, output_index, VOCAB).numpy()
        order = np.lexsort((np.arange(VOCAB), -scores))
        return [int(token_id) for token_id in order if scores[token_id] > -np.inf]

    def logits(self, path: Seq[int]) -> npt.NDArray[np.float32]:
        """Raw logits behind a path, over all ids of the target; -inf where the head knows none."""
        length = len(path)
        rows = np.arange(length, dtype=np.int32)
        batch = ModelInput(
            token_ids=np.array(path, np.int32),
            positions=rows,
            slot_mapping=rows,
            row_sequences=np.zeros(length, np.int32),
            block_tables=np.arange(-(-length // BLOCK_SIZE), dtype=np.int32)[None],
            logit_rows=rows[-1:],
        )
        full = np.full(VOCAB, -np.inf, np.float32)
        full[self._ids] = self._runner.forward(batch).numpy()[0]
        return full

    def _ends(self, token_id: int, params: SamplingParams) -> bool:
        return token_id in params.stop_token_ids or (token_id in self._eos_token_ids and not params.ignore_eos)
