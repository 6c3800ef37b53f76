"""Medusa and next-n heads in whole engines: the text is that of an engine that never drafts."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from cluster.engine.drafters.head import Head, HeadTarget
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.medusa import MedusaHead
from cluster.engine.drafters.medusa_source import MedusaWeights
from cluster.engine.drafters.mtp import build_mtp
from cluster.engine.drafters.target_parts import final_norm
from cluster.engine.engine import Engine
from cluster.engine.model_runner import FeatureRunner
from cluster.engine.model_source import ModelSource
from cluster.engine.transformers_runner import TransformersRunner
from cluster.types import Request, Role, StepStats
from tests.cluster.engine.drafters.mtp_reference import MAX_MODEL_LEN, Checkpoint, random_checkpoint
from tests.cluster.engine.engine_harness import (
    Result,
    drain,
    make_engine,
    random_prompt,
    request,
    run,
    tiny_llama,
    tiny_runner,
    without_drafts,
)
from tests.tiny import EOS_TOKEN_ID

NUM_BLOCKS = 6
CASES = ("medusa", "deepseek_v3", "glm4_moe")
every_head = pytest.mark.parametrize(
    "case", [case if case == "medusa" else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)


@cache
def checkpoint(family: str) -> Checkpoint:
    return random_checkpoint(family)


@cache
def runner_for(case: str) -> FeatureRunner:
    """The target; one with a module is loaded from a checkpoint that holds it."""
    if case == "medusa":
        return tiny_runner(NUM_BLOCKS)
    with TemporaryDirectory() as folder:
        source = ModelSource(folder=checkpoint(case).save(Path(folder)), model_id="tiny")
        return TransformersRunner.load(source, dtype=torch.float32, num_kv_blocks=NUM_BLOCKS, block_size=32)


def build_head(case: str, max_branches: int = 1) -> Head:
    if case != "medusa":
        return build_mtp(checkpoint(case).target(max_sequences=8, max_branches=max_branches))
    model, generator = tiny_llama(), torch.Generator().manual_seed(0)
    hidden = model.config.hidden_size
    target = HeadTarget(
        config=model.config,
        weight=model.state_dict().__getitem__,
        device="cpu",
        dtype=torch.bfloat16,
        max_model_len=MAX_MODEL_LEN,
        max_sequences=8,
        num_threads=1,
    )
    blocks = tuple(
        ((0.2 * torch.randn(hidden, hidden, generator=generator).bfloat16(), torch.zeros(hidden).bfloat16()),)
        for _ in range(3)
    )
    outputs = (model.state_dict()["lm_head.weight"].bfloat16(),)
    return MedusaHead(MedusaWeights(blocks=blocks, outputs=outputs, norm=final_norm(target)), target)


def engine_with(case: str, runner: FeatureRunner, **settings: Any) -> Engine:
    drafter = HeadDrafter(build_head(case), max_draft_tokens=4, eos_token_ids=frozenset({EOS_TOKEN_ID}))
    settings = {"draft_budget": "fixed", "num_speculative_tokens": 4, "max_num_batched_tokens": 64, **settings}
    return make_engine(runner=runner, drafter=drafter, prefill_chunk_tokens=32, **settings)


def items() -> list[Request]:
    """Greedy and sampled; few allowed ids, so that even random heads are right at times; a prefix of two blocks."""
    few: dict[str, Any] = {"allowed_token_ids": (40, 41, 42), "ignore_eos": True}
    prefix = random_prompt(1, 64)
    return [
        request("greedy", random_prompt(2, 25), max_tokens=20, ignore_eos=True),
        request("greedy few", random_prompt(3, 60), max_tokens=16, arrival_s=1e-3, **few),
        request("sampled few", [*prefix, 7], max_tokens=16, temperature=1.0, arrival_s=2e-3, **few),
        request("sampled", [*prefix, 8, 9], max_tokens=12, temperature=0.7, top_p=0.9, arrival_s=3e-3),
    ]


def seen(results: dict[str, Result]) -> dict[str, tuple[list[int], object]]:
    return {key: (result.token_ids, result.finish_reason) for key, result in results.items()}


def expected(runner: FeatureRunner, wanted: list[Request]) -> dict[str, tuple[list[int], object]]:
    found: dict[str, Result] = {}
    for item in wanted:
        plain = make_engine(runner=runner, num_speculative_tokens=0, enable_prefix_cache=False)
        found |= run(plain, [without_drafts(item)])
    return seen(found)


@every_head
def test_drafts_change_nothing_in_batches_with_preemption_and_prefix_hits(case: str) -> None:
    steps: list[StepStats] = []
    wanted = expected(runner_for(case), items())  # First, as an engine that reads no hidden states turns them off.
    engine = engine_with(case, runner_for(case))
    results = run(engine, items(), steps)
    assert seen(results) == wanted
    assert seen(run(engine, items(), steps)) == wanted
    stats = [result.speculation for result in results.values() if result.speculation is not None]
    assert 0 < sum(s.num_accepted_tokens for s in stats) < sum(s.num_draft_tokens for s in stats)
    assert sum(step.num_preempted for step in steps) > 0


@every_head
def test_role_flips_and_aborts_change_nothing(case: str) -> None:
    wanted, results = expected(runner_for(case), items()), dict[str, Result]()
    engine = engine_with(case, runner_for(case))
    for item in items():
        engine.add(item)
    for step in range(40):
        if step % 5 == 4:
            engine.set_role(Role.BATCH if step % 10 == 4 else Role.SPECULATIVE, max_num_seqs=4)
        if step == 7:
            engine.abort("greedy")
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
    found = seen(drain(engine, results))
    tokens, _ = found.pop("greedy")
    whole, _ = wanted.pop("greedy")
    assert tokens == whole[: len(tokens)]
    assert found == wanted
