"""A small target model, drafters of every quality, and exact distributions written independently of the sampler."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from cluster.engine.acceptance import accept
from cluster.engine.sampler import Sampler, SamplingRow
from cluster.types import SamplingParams

VOCAB_SIZE = 16
LARGE_VOCAB_SIZE = 49_152
EOS = frozenset({0, 2})
PROMPT = (3, 7)

Draft = Callable[[int, Sequence[int]], Sequence[int]]


def row_of(
    output: Sequence[int] = (), *, prompt: Sequence[int] = PROMPT, index: int | None = None, **settings: Any
) -> SamplingRow:
    """A sampling row from keyword settings of `SamplingParams`."""
    params = SamplingParams(**{"max_tokens": 64, "seed": 1, **settings})
    output_index = len(output) if index is None else index
    return SamplingRow(
        params=params, output_index=output_index, prompt_token_ids=tuple(prompt), output_token_ids=list(output)
    )


def one(sampler: Sampler, logits_V: Sequence[float] | torch.Tensor, row: SamplingRow) -> int:
    """The token drawn for a single row."""
    return sampler.sample(torch.as_tensor(logits_V).float()[None], [row]).token_ids[0]


@cache
def markov_logits(last_token_id: int) -> torch.Tensor:
    """Logits of the toy target after a token: uneven, different for every token, with ties."""
    generator = np.random.default_rng(1000 + last_token_id)
    return torch.from_numpy(np.round(generator.normal(0.0, 1.5, VOCAB_SIZE) * 4.0) / 4.0).float()


def exact_distribution(logits_V: torch.Tensor, output: Sequence[int], **settings: Any) -> npt.NDArray[np.float64]:
    """What the settings make of the logits, in double precision and by definition."""
    x = logits_V.double().numpy().copy()
    for token_id in set(output):
        x[token_id] -= settings.get("presence_penalty", 0.0)
        x[token_id] -= settings.get("frequency_penalty", 0.0) * list(output).count(token_id)
    x = (x - x.max()) / settings.get("temperature", 1.0)
    order = sorted(range(x.size), key=lambda v: (-x[v], v))
    order = [v for v in order if np.exp(x[v]) >= settings.get("min_p", 0.0)]
    order = order[: settings.get("top_k", 0) or None]
    p = np.exp(x[order]) / np.exp(x[order]).sum()
    num_kept = int(np.searchsorted(np.cumsum(p), settings.get("top_p", 1.0) * (1.0 - 1e-12))) + 1
    result = np.zeros(x.size)
    result[order[:num_kept]] = p[:num_kept] / p[:num_kept].sum()
    return result


def generate(sampler: Sampler, num_tokens: int, num_drafts: int, draft: Draft, **settings: Any) -> list[int]:
    """Decode the toy target in rounds of draft, verification and acceptance, as the engine does."""
    output: list[int] = []
    while len(output) < num_tokens:
        drafted = list(draft(num_drafts, output))[:num_drafts]
        history = [*PROMPT, *output, *drafted]
        positions = range(len(PROMPT) + len(output) - 1, len(history))
        logits = torch.stack([markov_logits(history[position]) for position in positions])
        rows = [row_of([*output, *drafted[:i]], **settings) for i in range(len(drafted) + 1)]
        output.extend(accept(drafted, sampler.sample(logits, rows).token_ids).token_ids)
    return output[:num_tokens]


def p_value(counts: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float64]) -> float:
    """Chi-square goodness of fit: no impossible outcome may occur, rare ones are pooled to at least five expected."""
    counts, probabilities = counts.ravel(), probabilities.ravel()
    assert counts[probabilities == 0.0].sum() == 0, "an impossible outcome occurred"
    order = np.argsort(probabilities)
    expected, observed = [0.0], [0]
    for cell in order[probabilities[order] > 0.0]:
        if expected[-1] >= 5.0:
            expected.append(0.0)
            observed.append(0)
        expected[-1] += float(probabilities[cell] * counts.sum())
        observed[-1] += int(counts[cell])
    if len(expected) == 1:
        return 1.0
    return float(stats.chisquare(observed, np.array(expected) * counts.sum() / np.sum(expected)).pvalue)
