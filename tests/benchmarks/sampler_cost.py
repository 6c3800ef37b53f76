"""What does drawing one token cost, by sampling setting, against transformers' own logits processors?"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from cluster.engine.engine import Engine
from cluster.engine.model_input import ModelInput
from cluster.engine.sampler import Sampler, SamplingRow
from cluster.types import SamplingParams
from tests.benchmarks.measure import interleave, torch_threads
from tests.benchmarks.report import Answer, Row
from tests.benchmarks.workloads import PROMPTS, chat_ids, engine_config

NUM_ROWS = 8
SETTINGS: Mapping[str, Callable[[int], SamplingParams]] = {
    "greedy": lambda seed: SamplingParams(max_tokens=1, seed=seed, temperature=0.0),
    "T = 1": lambda seed: SamplingParams(max_tokens=1, seed=seed),
    "T = 1, top-p 0.9": lambda seed: SamplingParams(max_tokens=1, seed=seed, top_p=0.9),
    "T = 1, top-k 50": lambda seed: SamplingParams(max_tokens=1, seed=seed, top_k=50),
    "T = 1, min-p 0.05": lambda seed: SamplingParams(max_tokens=1, seed=seed, min_p=0.05),
    "T = 0.7, top-k 50, top-p 0.9": lambda seed: SamplingParams(
        max_tokens=1, seed=seed, temperature=0.7, top_k=50, top_p=0.9
    ),
    "T = 1, 5 logprobs": lambda seed: SamplingParams(max_tokens=1, seed=seed, logprobs=5),
}
WITHOUT_BASELINE = ("T = 1, 5 logprobs",)


def measure(*, quick: bool) -> Answer:
    """Interleave our sampler with transformers' on the same real logits, each on one thread."""
    num_rounds, num_times = (1, 1) if quick else (25, 5)
    engine = Engine.from_config(engine_config())
    logits_NV = _real_logits(engine)
    sampler = Sampler(engine.vocab_size, engine.eos_token_ids)

    def draw(name: str) -> Mapping[str, Sequence[float]]:
        params = [SETTINGS[name](seed) for seed in range(NUM_ROWS)]
        rows = [SamplingRow(params=each, output_index=3, prompt_token_ids=(), output_token_ids=()) for each in params]
        return {name: _times_s(lambda: sampler.sample(logits_NV, rows), num_times)}

    def draw_baseline(name: str) -> Mapping[str, Sequence[float]]:
        params = SETTINGS[name](0)
        return {_baseline(name): _times_s(lambda: _transformers_draw(logits_NV, params), num_times)}

    compared = [name for name in SETTINGS if name not in WITHOUT_BASELINE]
    variants = [partial(draw, name) for name in SETTINGS] + [partial(draw_baseline, name) for name in compared]
    with torch_threads(1):
        rounds = interleave(variants, num_rounds=num_rounds, settle_s=0.0)
    names = [each for name in SETTINGS for each in (name, _baseline(name)) if name in compared or each == name]
    return Answer(
        question=f"Time per row to draw from {engine.vocab_size} logits, {NUM_ROWS} rows at a time, one thread?",
        model=engine.model_id,
        rows=tuple(Row.of(name, rounds) for name in names),
        counts={"rounds": num_rounds, "times_per_round": num_times, "rows": NUM_ROWS, "threads": 1},
        notes=("ours also measures each row's entropy; transformers draws from one generator for all rows",),
    )


def _baseline(name: str) -> str:
    return f"{name}: transformers"


def _real_logits(engine: Engine) -> Tensor:
    """Logits of the last rows of a real prompt, float32 [N, V]."""
    prompt = np.array(chat_ids(engine.tokenizer, PROMPTS["chat"]), np.int32)
    num_blocks = -(-len(prompt) // engine._runner.block_size)
    batch = ModelInput(
        token_ids=prompt,
        positions=np.arange(len(prompt), dtype=np.int32),
        slot_mapping=np.arange(len(prompt), dtype=np.int32),
        row_sequences=np.zeros(len(prompt), np.int32),
        block_tables=np.arange(num_blocks, dtype=np.int32)[None],
        logit_rows=np.arange(len(prompt) - NUM_ROWS, len(prompt), dtype=np.int32),
    )
    return engine._runner.forward(batch).float().clone()


def _times_s(draw: Callable[[], object], num_times: int) -> list[float]:
    """Seconds per row of so many draws, after one that is not kept."""
    times = []
    for _ in range(num_times + 1):
        started_s = time.perf_counter()
        draw()
        times.append((time.perf_counter() - started_s) / NUM_ROWS)
    return times[1:]


def _transformers_draw(logits_NV: Tensor, params: SamplingParams) -> list[int]:
    if params.temperature == 0.0:
        return [int(token_id) for token_id in logits_NV.argmax(dim=-1)]
    processors = LogitsProcessorList()
    if params.temperature != 1.0:
        processors.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        processors.append(MinPLogitsWarper(params.min_p))
    no_ids = torch.zeros(len(logits_NV), 0, dtype=torch.int64)
    scores_NV = processors(no_ids, logits_NV)  # type: ignore[arg-type]  # its annotations name subclasses of Tensor
    return [int(token_id) for token_id in torch.multinomial(scores_NV.softmax(dim=-1), num_samples=1)]
