"""Prompts, and how the engine is driven with them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from transformers import PreTrainedTokenizerBase

from cluster.config import EngineConfig
from cluster.engine.engine import Engine
from cluster.types import Request, SamplingParams, SpeculationMode, SpeculationParams
from tests.benchmarks.measure import THREADS

_PEOPLE = (
    ("Ada", "Oslo"),
    ("Bo", "Rome"),
    ("Cy", "Lima"),
    ("Dee", "Kyiv"),
    ("Eli", "Bonn"),
    ("Flo", "Cork"),
    ("Gus", "Riga"),
)
_RECORDS = "\n".join(
    f'{{"id": {101 + i}, "name": "{name}", "email": "{name.lower()}@example.com", "city": "{city}", '
    f'"active": {"true" if i % 2 else "false"}}}'
    for i, (name, city) in enumerate(_PEOPLE)
)
_CLASS = '''class Basket:
    """Things that a customer wants to buy."""

    def __init__(self, owner):
        self.owner = owner
        self.items = []

    def add(self, name, price, count=1):
        self.items.append((name, price, count))

    def total(self):
        return sum(price * count for name, price, count in self.items)

    def merge(self, other):
        basket = Basket(self.owner)
        basket.items = self.items + other.items
        return basket

    def __repr__(self):
        return f"Basket({self.owner!r}, {len(self.items)} items)"
'''

PROMPTS: Mapping[str, str] = {
    "copy": f"Copy these JSON records exactly, line by line, and add nothing:\n\n{_RECORDS}",
    "edit": f"Rename the class Basket to Cart everywhere and return the whole file:\n\n```python\n{_CLASS}```",
    "chat": "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "short": "What is the capital of France?",
}
"""`copy` repeats its prompt, `edit` nearly, `chat` not at all."""


def engine_config(*, enable_prefix_cache: bool = False) -> EngineConfig:
    """The bundled model with a small KV cache, and no prefix cache where repeated prompts must count in full."""
    return EngineConfig(num_threads=THREADS, kv_cache_tokens=16_384, enable_prefix_cache=enable_prefix_cache)


def chat_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Token ids of one user message under the chat template."""
    messages = [{"role": "user", "content": text}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    return tuple(cast("list[int]", ids))


def make_request(
    request_id: str,
    prompt_token_ids: tuple[int, ...],
    max_tokens: int,
    *,
    mode: SpeculationMode = SpeculationMode.OFF,
    num_speculative_tokens: int | None = None,
) -> Request:
    """A greedy request that never ends early."""
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        sampling=SamplingParams(max_tokens=max_tokens, seed=0, temperature=0.0, ignore_eos=True),
        speculation=SpeculationParams(mode=mode, num_speculative_tokens=num_speculative_tokens),
    )


@dataclass(slots=True)
class Generation:
    """What became of some requests.

    Attributes:
        token_ids: output by request id.
        duration_s: from the first request's arrival to the last token.
        num_rounds: engine steps.
    """

    token_ids: dict[str, list[int]]
    duration_s: float = 0.0
    num_rounds: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests by the whole time, prefill included."""
        return sum(map(len, self.token_ids.values())) / self.duration_s


def generate(engine: Engine, requests: Sequence[Request]) -> Generation:
    """Run requests that arrive together until all are finished."""
    done = Generation({request.request_id: [] for request in requests})
    started_s = time.perf_counter()
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for output in engine.step():
            done.token_ids[output.request_id] += output.token_ids
        done.num_rounds += 1
    done.duration_s = time.perf_counter() - started_s
    return done


@dataclass(slots=True)
class StepTimes:
    """Times of single engine steps, in seconds."""

    step_s: list[float] = field(default_factory=list)
    forward_s: list[float] = field(default_factory=list)


def first_token_s(engine: Engine, request: Request) -> float:
    """Add a request and step until its first token is out; returns the time that took."""
    started_s = time.perf_counter()
    engine.add(request)
    while engine.has_work:
        if any(output.token_ids for output in engine.step()):
            return time.perf_counter() - started_s
    raise RuntimeError(f"{request.request_id} ended without a token")


def timed_steps(engine: Engine, request: Request, *, num_steps: int, num_tokens_per_step: int = 1) -> StepTimes:
    """Time decoding steps of one request alone, after its prefill and two steps that are not kept.

    Args:
        engine: idle.
        request: long enough for all steps.
        num_steps: steps to time.
        num_tokens_per_step: tokens that each step must emit; anything else is an error in the benchmark.
    """
    times = StepTimes()
    first_token_s(engine, request)
    for index in range(num_steps + 2):
        started_s = time.perf_counter()
        outputs = engine.step()
        elapsed_s = time.perf_counter() - started_s
        if len(outputs[0].token_ids) != num_tokens_per_step:
            raise RuntimeError(f"a step emitted {len(outputs[0].token_ids)} tokens instead of {num_tokens_per_step}")
        if index >= 2:
            times.step_s.append(elapsed_s)
            times.forward_s.append(engine.last_step.forward_s)
    engine.abort(request.request_id)
    engine.step()
    return times
