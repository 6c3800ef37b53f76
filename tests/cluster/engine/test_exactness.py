"""The same text, whatever drafts, batch, pool or cache: token ids, text and log-probabilities are compared exactly."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.engine.drafters.ngram import NgramDrafter
from cluster.types import FinishReason, Request, StepStats
from tests.cluster.engine.engine_harness import (
    BLOCK_SIZE,
    EDITS,
    KnowingDrafter,
    Result,
    drain,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
    tokenizer,
)
from tests.tiny import VOCAB_SIZE

token_ids = st.integers(0, VOCAB_SIZE - 1)
few_ids = st.lists(token_ids, max_size=4).map(tuple)

samplings = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 40),
        "seed": st.integers(0, (1 << 64) - 1),
        "temperature": st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0]),
    },
    optional={
        "top_k": st.sampled_from([1, 3, 20]),
        "top_p": st.sampled_from([0.3, 0.9]),
        "min_p": st.sampled_from([0.05, 0.3]),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "presence_penalty": st.sampled_from([-1.0, 1.5]),
        "frequency_penalty": st.sampled_from([-2.0, 0.7, 2.0]),
        "logit_bias": st.lists(st.tuples(token_ids, st.floats(-5.0, 5.0, width=32)), max_size=3).map(tuple),
        "allowed_token_ids": st.lists(token_ids, min_size=2, max_size=30).map(tuple),
        "bad_words": st.lists(st.lists(token_ids, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
        "min_tokens": st.integers(0, 12),
        "ignore_eos": st.booleans(),
        "stop_token_ids": few_ids,
        "stop": st.lists(st.sampled_from(["e", "th", "\n", " a"]), max_size=2).map(tuple),
        "include_stop_str_in_output": st.booleans(),
        "logprobs": st.sampled_from([0, 3]),
        "prompt_logprobs": st.sampled_from([0, 2]),
    },
)
prompts = st.one_of(
    st.builds(random_prompt, st.integers(0, 50), st.sampled_from([1, 2, 31, 32, 33, 70])),
    # Repeated words, so that the n-gram drafter has something to find.
    st.builds(
        lambda seed, n, times: random_prompt(seed, n) * times, st.integers(0, 9), st.integers(1, 6), st.integers(2, 12)
    ),
)
batches = st.lists(st.builds(lambda prompt, sampling: (prompt, sampling), prompts, samplings), min_size=1, max_size=6)
few = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def requests_of(batch: list[tuple[tuple[int, ...], dict[str, Any]]]) -> list[Request]:
    return [request(f"r{i}", prompt, arrival_s=i * 1e-3, **sampling) for i, (prompt, sampling) in enumerate(batch)]


def run_each_alone(items: list[Request]) -> dict[str, Result]:
    return {item.request_id: run_alone(item) for item in items}


def assert_same(actual: dict[str, Result], expected: dict[str, Result]) -> None:
    for request_id, result in expected.items():
        assert actual[request_id].seen() == result.seen(), request_id


@few
@given(batch=batches, num_speculative_tokens=st.sampled_from([1, 3, 8]))
def test_ngram_drafts_change_nothing(batch: list[Any], num_speculative_tokens: int) -> None:
    items = requests_of(batch)
    expected = run_each_alone(items)
    for item in items:
        alone = make_engine(num_speculative_tokens=num_speculative_tokens)
        assert run(alone, [item])[item.request_id].seen() == expected[item.request_id].seen()
    assert_same(run(make_engine(num_speculative_tokens=num_speculative_tokens), items), expected)


@pytest.mark.parametrize("edit", EDITS)
@few
@given(batch=batches, num_speculative_tokens=st.sampled_from([1, 4, 16]))
def test_right_wrong_and_nonsensical_drafts_change_nothing(
    edit: str, batch: list[Any], num_speculative_tokens: int
) -> None:
    items = requests_of(batch)
    expected = run_each_alone(items)
    drafter = KnowingDrafter({key: result.token_ids for key, result in expected.items()}, EDITS[edit])
    engine = make_engine(drafter=drafter, num_speculative_tokens=num_speculative_tokens)
    assert_same(run(engine, items), expected)
    assert not drafter.known


@few
@given(batch=batches, max_num_batched_tokens=st.sampled_from([16, 40]), chunk=st.sampled_from([16, 24]))
def test_neither_chunked_prefill_nor_preemption_changes_anything(
    batch: list[Any], max_num_batched_tokens: int, chunk: int
) -> None:
    items = requests_of(batch)
    expected = run_each_alone(items)
    drafter = KnowingDrafter({key: result.token_ids for key, result in expected.items()}, EDITS["sometimes wrong"])
    engine = make_engine(
        num_blocks=4,
        drafter=drafter,
        max_num_seqs=8,
        max_num_batched_tokens=max_num_batched_tokens,
        prefill_chunk_tokens=chunk,
    )
    assert_same(run(engine, items), expected)


@few
@given(batch=batches)
def test_prefix_cache_hits_change_nothing(batch: list[Any]) -> None:
    items = requests_of(batch)
    expected = run_each_alone(items)
    engine = make_engine()
    for _ in range(2):
        assert_same(run(engine, items), expected)


@few
@given(batch=batches, aborted=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=5))
def test_aborts_of_others_change_nothing_and_aborted_text_is_a_prefix(
    batch: list[Any], aborted: list[tuple[int, int]]
) -> None:
    items = requests_of(batch)
    expected = run_each_alone(items)
    engine = make_engine(max_num_batched_tokens=64, num_speculative_tokens=3, num_blocks=6)
    for item in items:
        engine.add(item)
    results: dict[str, Result] = {}
    for step in range(13):
        for index, when in aborted:
            if when == step:
                engine.abort(f"r{index}")
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
    for request_id, result in drain(engine, results).items():
        if result.finish_reason is FinishReason.ABORT:
            assert result.token_ids == expected[request_id].token_ids[: len(result.token_ids)]
        else:
            assert result.seen() == expected[request_id].seen()


def test_preemption_in_the_middle_of_long_texts_changes_nothing() -> None:
    items = [
        request(
            f"r{i}", random_prompt(i, 50 + i), arrival_s=i, max_tokens=80, ignore_eos=True, temperature=0.7 * (i % 2),
            seed=i, logprobs=2, prompt_logprobs=1, frequency_penalty=0.3,
        )
        for i in range(6)
    ]  # fmt: skip
    expected = run_each_alone(items)
    drafter = KnowingDrafter({key: result.token_ids for key, result in expected.items()}, EDITS["sometimes wrong"])
    steps: list[StepStats] = []
    engine = make_engine(
        num_blocks=12, drafter=drafter, max_num_seqs=8, max_num_batched_tokens=48, prefill_chunk_tokens=32
    )
    assert_same(run(engine, items, steps), expected)
    assert sum(step.num_preempted for step in steps) >= 3
    assert sum(num_accepted for _, num_accepted in drafter.observed) > 100


def test_a_text_can_be_resumed_from_blocks_that_it_wrote_as_output() -> None:
    engine = make_engine(num_speculative_tokens=3)
    whole = run(engine, [request("a", random_prompt(5, 40), max_tokens=100, ignore_eos=True)])["a"]
    for cut in (30, 57, 90):
        prompt = [*random_prompt(5, 40), *whole.token_ids[:cut]]
        rest = run(engine, [request("b", prompt, max_tokens=100 - cut, ignore_eos=True)])["b"]
        assert rest.num_cached_tokens == (40 + cut - 1) // BLOCK_SIZE * BLOCK_SIZE
        assert rest.token_ids == whole.token_ids[cut:]


def test_bad_words_are_seen_across_tokens_drafted_in_the_same_block() -> None:
    free = run_alone(request("a", random_prompt(7, 20), max_tokens=30, ignore_eos=True)).token_ids
    item = request(
        "a", random_prompt(7, 20), max_tokens=30, ignore_eos=True, bad_words=(tuple(free[3:5]), tuple(free[9:12]))
    )
    expected = run_alone(item)
    assert expected.token_ids[:4] == free[:4]
    assert expected.token_ids[4] != free[4]
    for text in (free, expected.token_ids):
        engine = make_engine(drafter=KnowingDrafter({"a": text}))
        assert run(engine, [item])["a"].seen() == expected.seen()


def test_prompt_logprobs_do_not_depend_on_chunks() -> None:
    item = request("a", random_prompt(6, 150), prompt_logprobs=3, max_tokens=3)
    (expected,) = run_alone(item).prompt_logprobs
    assert [entry and entry.token_id for entry in expected] == [None, *item.prompt_token_ids[1:]]
    assert all(entry is not None and len(entry.top) == 3 for entry in expected[1:])
    for chunk in (16, 37, 150):
        engine = make_engine(prefill_chunk_tokens=chunk, max_num_batched_tokens=256)
        run(engine, [replace(item, request_id="warm")])
        assert run(engine, [item])["a"].prompt_logprobs == [expected]


def test_the_drafter_of_the_engine_drafts_in_these_tests() -> None:
    drafter = NgramDrafter(max_draft_tokens=8)
    engine = make_engine(drafter=drafter, num_speculative_tokens=8)
    prompt = tokenizer().encode("word " * 30, add_special_tokens=False)
    stats = run(engine, [request("a", prompt, max_tokens=60, ignore_eos=True)])["a"].speculation
    assert stats is not None
    assert stats.num_draft_tokens > stats.num_accepted_tokens > 10
