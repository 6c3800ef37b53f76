"""Log-probabilities and entropy against torch's, in double precision."""

import math

import pytest
import torch

from cluster.engine.sampler import NonFiniteLogitsError, Sampler
from tests.cluster.engine.sampling_toys import EOS, LARGE_VOCAB_SIZE, VOCAB_SIZE, markov_logits, row_of


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB_SIZE, EOS)


@pytest.fixture(scope="module")
def large_sampler() -> Sampler:
    return Sampler(LARGE_VOCAB_SIZE, EOS)


def test_entropy_is_that_of_the_raw_distribution_in_bits(large_sampler: Sampler) -> None:
    torch.manual_seed(5)
    uniform = torch.zeros(1, LARGE_VOCAB_SIZE)
    certain = torch.full((1, LARGE_VOCAB_SIZE), -math.inf)
    certain[0, 9] = 0.0
    logits_NV = torch.cat([uniform, certain, torch.randn(2, LARGE_VOCAB_SIZE) * torch.tensor([[1.0], [5.0]])])
    rows = [row_of(temperature=0.2, top_k=3, bad_words=((1,),))] * 4
    entropy = large_sampler.sample(logits_NV, rows).entropy_bits
    log_p = logits_NV[2:].double().log_softmax(-1)
    exact = [math.log2(LARGE_VOCAB_SIZE), 0.0, *(-(log_p.exp() * log_p).sum(-1) / math.log(2.0)).tolist()]
    assert entropy == pytest.approx(exact, abs=1e-5)


def test_logprobs_are_those_of_the_raw_distribution(large_sampler: Sampler) -> None:
    torch.manual_seed(6)
    logits_NV = torch.randn(3, LARGE_VOCAB_SIZE) * 3.0
    rows = [row_of(temperature=1.5, top_k=30, logit_bias=((77, 50.0),) * (i == 2), logprobs=20) for i in range(3)]
    output = large_sampler.sample(logits_NV, rows)
    exact_NV = logits_NV.double().log_softmax(-1)
    assert output.token_ids[2] == 77
    for token_id, entry, exact_V in zip(output.token_ids, output.logprobs, exact_NV, strict=True):
        assert entry is not None
        values, ids = exact_V.topk(20)
        assert entry.token_id == token_id
        assert entry.logprob == pytest.approx(float(exact_V[token_id]), abs=1e-5)
        assert entry.rank == 1 + int((exact_V > exact_V[token_id]).sum())
        assert [v for v, _ in entry.top] == ids.tolist()
        assert [logprob for _, logprob in entry.top] == pytest.approx(values.tolist(), abs=1e-5)


def test_rank_and_top_list_put_the_lowest_id_first_among_equals(sampler: Sampler) -> None:
    logits_V = torch.zeros(VOCAB_SIZE)
    logits_V[[9, 4, 12]] = 1.0
    logits_V[1] = -math.inf
    entries = sampler.prompt_logprobs(logits_V.repeat(4, 1), [12, 0, 15, 1], 5)
    assert [entry.rank for entry in entries] == [3, 4, 15, 16]
    assert [v for v, _ in entries[0].top] == [4, 9, 12, 0, 2]
    assert entries[3].logprob == -9999.0


@pytest.mark.parametrize("num_top", [0, 1, 20])
def test_a_top_list_has_as_many_entries_as_asked_for_and_the_vocabulary_holds(sampler: Sampler, num_top: int) -> None:
    entry = sampler.sample(markov_logits(1)[None], [row_of(logprobs=num_top)]).logprobs[0]
    assert entry is not None
    assert len(entry.top) == min(num_top, VOCAB_SIZE)
    assert sampler.sample(markov_logits(1)[None], [row_of()]).logprobs == [None]


def test_prompt_logprobs_equal_those_of_a_sampled_row(sampler: Sampler) -> None:
    logits_NV = torch.stack([markov_logits(i) for i in range(24)])
    output = sampler.sample(logits_NV, [row_of(seed=i, logprobs=4) for i in range(24)])
    assert sampler.prompt_logprobs(logits_NV, output.token_ids, 4) == output.logprobs


def test_prompt_logprobs_of_a_row_without_a_distribution_are_an_error(sampler: Sampler) -> None:
    logits_NV = torch.zeros(3, VOCAB_SIZE)
    logits_NV[1, 4] = math.nan
    with pytest.raises(NonFiniteLogitsError, match="row 1"):
        sampler.prompt_logprobs(logits_NV, [0, 0, 0], 2)
