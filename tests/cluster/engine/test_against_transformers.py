"""The bundled model in float32, greedy, against transformers' own generate."""

from collections.abc import Iterator

import pytest
import torch
from transformers import PreTrainedModel

from cluster.config import EngineConfig
from cluster.engine.engine import Engine
from cluster.engine.model_loader import load_reference_model
from cluster.engine.model_source import ModelSource
from cluster.types import SpeculationParams
from tests.cluster.engine.engine_harness import request, run

pytestmark = [pytest.mark.engine]

MAX_TIE = 1e-4
NUM_TOKENS = 32
PROMPTS = (
    "What is the capital of France?",
    "Write a function in Python that reverses a linked list.",
    "Repeat this line five times: the quick brown fox",
    "Summarise in one sentence: an outrider rides ahead of the carriage to clear the way.",
    "Count from one to twenty.",
    'Continue the list: {"id": 1}, {"id": 2}, {"id": 3},',
    "Translate to French: good morning, how are you?",
    "Who wrote Hamlet, and when?",
    "🎉 Tell me about emoji 👩‍👩‍👧‍👦.",
    "Explain how rainbows form.",
)


@pytest.fixture(scope="module")
def engine(bundled_source: ModelSource) -> Iterator[Engine]:
    engine = Engine.from_config(EngineConfig(model=str(bundled_source.folder), dtype="float32", kv_cache_tokens=4096))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reference(bundled_source: ModelSource) -> PreTrainedModel:
    return load_reference_model(bundled_source, torch.float32)


def reference_text(model: PreTrainedModel, prompt: list[int], eos_token_ids: frozenset[int]) -> list[int]:
    with torch.inference_mode():
        ids = model.generate(  # type: ignore[operator]
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=NUM_TOKENS,
            do_sample=False,
            eos_token_id=sorted(eos_token_ids),
            pad_token_id=min(eos_token_ids),
        )
    text: list[int] = ids[0, len(prompt) :].tolist()
    return text


def as_chat(engine: Engine, text: str) -> list[int]:
    message = {"role": "user", "content": text}
    rendered = engine.tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
    return list(engine.tokenizer.encode(str(rendered), add_special_tokens=False))


def gap(model: PreTrainedModel, tokens: list[int], first: int, second: int) -> float:
    """How far apart the reference's logits of two tokens are after `tokens`."""
    with torch.inference_mode():
        logits_V = model(torch.tensor([tokens])).logits[0, -1]
    return float(logits_V[first] - logits_V[second])


@pytest.mark.parametrize("num_speculative_tokens", [0, 7])
def test_greedy_text_equals_transformers_or_differs_at_a_tie(
    engine: Engine, reference: PreTrainedModel, num_speculative_tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [as_chat(engine, text) for text in PROMPTS]
    speculation = SpeculationParams(num_speculative_tokens=num_speculative_tokens)
    results = run(
        engine,
        [request(f"r{i}", ids, max_tokens=NUM_TOKENS, speculation=speculation) for i, ids in enumerate(prompts)],
    )
    num_equal = 0
    for i, prompt in enumerate(prompts):
        ours, theirs = results[f"r{i}"].token_ids, reference_text(reference, prompt, engine.eos_token_ids)
        differing = [place for place, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b]
        if not differing:
            assert ours == theirs
            num_equal += 1
            continue
        place = differing[0]
        logit_gap = gap(reference, [*prompt, *theirs[:place]], theirs[place], ours[place])
        with capsys.disabled():
            print(f"\n{PROMPTS[i]!r}: token {place} is {ours[place]}, not {theirs[place]}; logit gap {logit_gap:.2e}")  # noqa: T201
        assert abs(logit_gap) < MAX_TIE
    assert num_equal >= len(PROMPTS) - 2
