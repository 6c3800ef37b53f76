"""Tokens of the bundled model follow the exact processed distribution, drafted or not: chi-square."""

import math
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pytest

from cluster.config import EngineConfig
from cluster.engine.drafters.base import Draft, Wanted
from cluster.engine.engine import Engine
from cluster.engine.model_source import ModelSource
from cluster.engine.plan import ScheduledSequence
from cluster.engine.sequence import Sequence
from cluster.types import TokenLogprobs
from tests.cluster.engine.engine_harness import OFF, Result, request, run
from tests.cluster.engine.sampling_toys import p_value

pytestmark = [pytest.mark.engine]

SIGNIFICANCE = 1e-4
NUM_TEXTS = 400
TOP = 20
BLOCK_SIZE = 32
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0},
    "cold": {"temperature": 0.7, "top_k": 20},
    "hot and cut": {"temperature": 1.3, "top_k": 12, "min_p": 0.02},
    "nucleus": {"temperature": 1.0, "top_k": 20, "top_p": 0.8},
}


class FixedDrafter:
    """Proposes the same tokens at the same output index, whatever was drawn before."""

    name = "fixed"

    def __init__(self) -> None:
        self.text: tuple[int, ...] = ()

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        return {
            want.sequence.request_id: Draft(token_ids=self.text[want.sequence.num_output_tokens :], source=self.name)
            for want in wanted
        }

    def begin_round(self, items: Seq[ScheduledSequence]) -> None:
        """Nothing to do."""

    def observe(self, sequence: Sequence, draft: Draft, num_accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to release."""


@pytest.fixture(scope="module")
def drafter() -> FixedDrafter:
    return FixedDrafter()


@pytest.fixture(scope="module")
def engine(bundled_source: ModelSource, drafter: FixedDrafter) -> Iterator[Engine]:
    config = EngineConfig(model=str(bundled_source.folder), kv_cache_tokens=16_384)
    engine = Engine.from_config(config)
    engine.use_drafter(drafter)
    yield engine
    engine.close()


def prompt_of(engine: Engine) -> list[int]:
    """One token more than full blocks, so that with the prefix cache a text costs a few rows only."""
    text = "The traveller opened the old wooden door and saw that the room behind it was full of strange and beautiful "
    ids: list[int] = engine.tokenizer.encode(text * 3, add_special_tokens=False)
    return ids[: BLOCK_SIZE + 1]


def exact(entry: TokenLogprobs, setting: dict[str, Any]) -> dict[int, float]:
    """Probability of each of the 20 likeliest tokens after the settings, from raw log-probabilities, by definition."""
    scaled = [(token, logprob / setting["temperature"]) for token, logprob in entry.top]
    if "top_k" not in setting:
        return {token: math.exp(value) for token, value in scaled}
    best = scaled[0][1]
    kept = [(t, v) for t, v in scaled[: setting["top_k"]] if math.exp(v - best) >= setting.get("min_p", 0.0)]
    total, running, nucleus = sum(math.exp(v) for _, v in kept), 0.0, {}
    for token, value in kept:
        nucleus[token] = math.exp(value)
        running += math.exp(value) / total
        if running >= setting.get("top_p", 1.0):
            break
    return {token: mass / sum(nucleus.values()) for token, mass in nucleus.items()}


def fit(drawn: list[int], probabilities: dict[int, float]) -> float:
    """p-value of the draws; tokens outside the top are one cell."""
    tokens = list(probabilities)
    counts = [drawn.count(token) for token in tokens]
    rest = max(0.0, 1.0 - sum(probabilities.values()))
    cells = np.array([*probabilities.values(), rest if rest > 1e-9 else 0.0])
    return p_value(np.array([*counts, len(drawn) - sum(counts)]), cells / cells.sum())


@pytest.mark.parametrize(
    "name", ["plain", "hot and cut", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cold", "nucleus"))]
)
def test_first_and_second_token_fit_the_distribution(engine: Engine, drafter: FixedDrafter, name: str) -> None:
    setting, prompt = SETTINGS[name], prompt_of(engine)
    first = first_distribution(engine, prompt)
    likely = first.top[0][0]
    second = first_distribution(engine, [*prompt, likely])
    drafter.text = (likely, second.top[1][0], second.top[0][0])
    texts: dict[bool, dict[str, Result]] = {}
    for drafted in (False, True):
        texts[drafted] = run(
            engine,
            [
                request(f"r{seed}", prompt, seed=seed, max_tokens=3, ignore_eos=True, **setting)
                if drafted
                else request(f"r{seed}", prompt, seed=seed, max_tokens=3, ignore_eos=True, speculation=OFF, **setting)
                for seed in range(NUM_TEXTS)
            ],
        )
        drawn = [result.token_ids for result in texts[drafted].values()]
        assert fit([ids[0] for ids in drawn], exact(first, setting)) > SIGNIFICANCE
        after_likely = [ids[1] for ids in drawn if ids[0] == likely]
        assert len(after_likely) > 50
        assert fit(after_likely, exact(second, setting)) > SIGNIFICANCE
    assert all(texts[True][key].token_ids == result.token_ids for key, result in texts[False].items())
    assert sum(r.speculation.num_accepted_tokens for r in texts[True].values() if r.speculation) > 20


def first_distribution(engine: Engine, prompt: list[int]) -> TokenLogprobs:
    """Raw log-probabilities of the token after a prompt."""
    result = run(engine, [request("top", prompt, max_tokens=1, logprobs=TOP, speculation=OFF)])["top"]
    return result.logprobs[0]
