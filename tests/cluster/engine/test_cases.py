"""Faults that users of other engines reported in public, each as its smallest trigger. Ids: see the test names."""

import math

import pytest

from cluster.engine.drafters.ngram import NgramDrafter
from cluster.types import FinishReason, StepStats
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
    scripted_engine,
    tokenizer,
)
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE

PROMPT = random_prompt(0, 20)


def encode(text: str) -> list[int]:
    ids: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return ids


def test_a2_text_without_repetition_adds_no_rows() -> None:
    drafter = NgramDrafter(max_draft_tokens=7)
    engine = make_engine(drafter=drafter)
    # Greedy, and no token may come twice: nothing in the output can be looked up.
    items = [request(f"r{i}", random_prompt(i, 20), max_tokens=40, presence_penalty=100.0) for i in range(64)]
    steps: list[StepStats] = []
    results = run(engine, items, steps)
    assert sum(step.num_draft_tokens for step in steps) == 0
    assert sum(step.num_rows for step in steps) == 64 * 20 + sum(len(r.token_ids) - 1 for r in results.values())


def test_a7_a_batch_of_any_size_works_and_changes_no_text() -> None:
    items = [request(f"r{i}", random_prompt(i, 3 + i % 9), max_tokens=6, temperature=0.9, seed=i) for i in range(300)]
    engine = make_engine(num_blocks=512, max_num_seqs=300, max_num_batched_tokens=4096)
    steps: list[StepStats] = []
    results = run(engine, items, steps)
    assert max(step.num_running for step in steps) > 256
    assert max(step.num_rows for step in steps) > 2000
    for i in (0, 133, 299):
        assert results[f"r{i}"].same_as(run_alone(items[i]))


def test_a9_a_random_tenant_is_not_slowed_by_a_repetitive_one() -> None:
    repetitive = request("same", encode("word " * 20), max_tokens=60, ignore_eos=True)
    varied = request("varied", random_prompt(4, 40), max_tokens=60, presence_penalty=100.0, ignore_eos=True)
    steps: list[StepStats] = []
    results = run(make_engine(), [repetitive, varied], steps)
    same, other = results["same"].speculation, results["varied"].speculation
    assert same is not None
    assert other is not None
    assert same.num_accepted_tokens > 20
    assert other.num_draft_tokens == 0
    assert other.num_rounds == 60  # a token in every round of its own


@pytest.mark.parametrize("num_repeats", [3, 12, 48])
def test_b1_repeated_words_are_continued_the_same(num_repeats: int) -> None:
    for word in ("token ", "the ", "a b ", "\n", "x"):
        item = request("a", encode(word * num_repeats), max_tokens=60, ignore_eos=True)
        engine = make_engine(num_speculative_tokens=4)
        assert run(engine, [item])["a"].same_as(run_alone(item))


def test_b2_a_hundred_greedy_prompts_are_identical() -> None:
    items = [request(f"r{i}", random_prompt(i, 5 + i % 40), max_tokens=24) for i in range(100)]
    drafter = NgramDrafter(max_draft_tokens=5)
    with_drafts = run(make_engine(drafter=drafter, draft_budget="fixed"), items)
    without = run(make_engine(num_speculative_tokens=0), items)
    assert all(with_drafts[key].same_as(without[key]) for key in without)
    assert sum(r.speculation.num_accepted_tokens for r in with_drafts.values() if r.speculation) > 50


def test_b7_penalties_count_tokens_accepted_earlier_in_the_same_block() -> None:
    texts = {}
    for penalty in (-2.0, 0.0, 2.0):
        item = request("a", PROMPT, max_tokens=40, frequency_penalty=penalty, repetition_penalty=1.1, ignore_eos=True)
        plain = run_alone(item)
        drafter = KnowingDrafter({"a": plain.token_ids})
        assert run(make_engine(drafter=drafter, num_speculative_tokens=8), [item])["a"].same_as(plain)
        assert max(num_accepted for _, num_accepted in drafter.observed) == 8
        texts[penalty] = tuple(plain.token_ids)
    assert len(set(texts.values())) == 3
    assert len(set(texts[-2.0])) < len(set(texts[2.0]))


def test_b8_a_draft_below_the_min_p_floor_is_never_emitted() -> None:
    items = [request(f"r{i}", PROMPT, seed=i, temperature=1.0, min_p=0.3, logprobs=1, max_tokens=12) for i in range(40)]
    plain = {item.request_id: run_alone(item) for item in items}
    free = [request(item.request_id, PROMPT, seed=i, max_tokens=12, temperature=1.0) for i, item in enumerate(items)]
    unfiltered = {item.request_id: run_alone(item).token_ids for item in free}
    results = run(make_engine(drafter=KnowingDrafter(unfiltered)), items)
    for key, result in results.items():
        assert result.same_as(plain[key])
        for entry in result.logprobs:
            assert entry.logprob >= entry.top[0][1] + math.log(0.3) - 1e-5
    assert unfiltered != {key: result.token_ids for key, result in plain.items()}


@pytest.mark.parametrize("num_speculative_tokens", [0, 4])
def test_b9_a_seed_fixes_the_text_and_another_changes_it(num_speculative_tokens: int) -> None:
    engine = make_engine(num_speculative_tokens=num_speculative_tokens)
    texts = [
        run(engine, [request("a", PROMPT, seed=seed, temperature=2.0, max_tokens=30)])["a"].token_ids
        for seed in (42, 42, 43)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0] == run_alone(request("a", PROMPT, seed=42, temperature=2.0, max_tokens=30)).token_ids


def test_b11_ids_that_are_no_tokens_never_become_an_input() -> None:
    output = list(range(30, 60))
    for draft in ([-1] * 30, [*output[:2], -1, *output[3:]], [VOCAB_SIZE] * 30, [1 << 40] * 30):
        # The scripted target asserts that its inputs are tokens.
        engine = scripted_engine(PROMPT, output, drafts=draft)
        assert run(engine, [request("a", PROMPT, max_tokens=20)])["a"].token_ids == output[:20]


def test_c1_a_stop_earlier_in_the_block_wins_over_the_length_limit() -> None:
    engine = scripted_engine(PROMPT, [9, 10, 11, 50, 20, 21, 22])
    result = run(engine, [request("a", PROMPT, max_tokens=6, stop_token_ids=(50,))])["a"]
    assert result.token_ids == [9, 10, 11, 50]
    assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, 50)


def test_c1_a_stop_at_the_length_limit_is_a_stop() -> None:
    engine = scripted_engine(PROMPT, [9, 10, 11, 50, 20, 21, 22])
    result = run(engine, [request("a", PROMPT, max_tokens=4, stop_token_ids=(50,))])["a"]
    assert (result.token_ids, result.finish_reason) == ([9, 10, 11, 50], FinishReason.STOP)


def test_c3_a_stop_string_inside_a_block_cuts_text_ids_logprobs_and_usage_alike() -> None:
    ids = encode("rides ahead of the carriage to clear the way")
    item = request("a", PROMPT, max_tokens=40, stop=("carriage",), logprobs=2)
    result = run(scripted_engine(PROMPT, ids), [item])["a"]
    assert (result.text, result.stop_reason) == ("rides ahead of the ", "carriage")
    assert result.token_ids == ids[: len(result.token_ids)]
    assert str(tokenizer().decode(result.token_ids)).endswith("carriage")
    assert len(result.logprobs) == len(result.token_ids) == result.num_output_tokens < len(ids)
    assert [entry.token_id for entry in result.logprobs] == result.token_ids
    assert result.same_as(run(scripted_engine(PROMPT, ids, num_speculative_tokens=0), [item])["a"])


@pytest.mark.parametrize("place", [1, 2, 5])
def test_c4_generation_ends_at_an_eos_drafted_or_bonus(place: int) -> None:
    output = list(range(40, 60))
    output[place] = EOS_TOKEN_ID
    # Four drafts after the first token: places 1 and 2 are drafts, 5 is the bonus slot.
    engine = scripted_engine(PROMPT, output, num_speculative_tokens=4)
    result = run(engine, [request("a", PROMPT, max_tokens=16)])["a"]
    assert result.token_ids == output[: place + 1]
    assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, None)
    assert result.text == tokenizer().decode(output[:place])
    ignoring = scripted_engine(PROMPT, output, num_speculative_tokens=4)
    assert run(ignoring, [request("a", PROMPT, max_tokens=16, ignore_eos=True)])["a"].token_ids == output[:16]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_c5_logprobs_equal_those_without_speculation(edit: str, temperature: float) -> None:
    item = request("a", PROMPT, max_tokens=30, logprobs=5, temperature=temperature, ignore_eos=True)
    plain = run_alone(item)
    drafter = KnowingDrafter({"a": plain.token_ids}, EDITS[edit])
    result = run(make_engine(drafter=drafter, num_speculative_tokens=4), [item])["a"]
    assert len(result.logprobs) == len(result.token_ids) == 30
    for entry, expected, token_id in zip(result.logprobs, plain.logprobs, result.token_ids, strict=True):
        assert entry.token_id == expected.token_id == token_id
        assert entry.logprob == pytest.approx(expected.logprob, abs=1e-3)
        assert [top for top, _ in entry.top] == [top for top, _ in expected.top]
        assert len(entry.top) == 5
        assert entry.logprob < 0.0
        assert (entry.rank == 1) == (entry.logprob == entry.top[0][1])


@pytest.mark.parametrize("num_speculative_tokens", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("text", ["party 🎉🎊 over", "family 👩‍👩‍👧‍👦!", "naïve 東京 — 🇯🇵", "👍🏽" * 6])
def test_c10_characters_split_over_tokens_and_blocks_arrive_whole(text: str, num_speculative_tokens: int) -> None:
    ids = encode(text)
    assert len(ids) > len(text)
    engine = scripted_engine(PROMPT, [*ids, EOS_TOKEN_ID], num_speculative_tokens=num_speculative_tokens)
    result = run(engine, [request("a", PROMPT, max_tokens=len(ids) + 1)])["a"]
    assert "�" not in result.text
    assert "".join(result.deltas) == result.text == text


def test_d2_long_drafts_with_a_full_kv_cache_cost_nothing_but_drafts() -> None:
    items = [request(f"r{i}", random_prompt(i, 30), max_tokens=90, ignore_eos=True, arrival_s=i) for i in range(4)]
    plain = {item.request_id: run_alone(item) for item in items}
    drafter = KnowingDrafter({key: result.token_ids for key, result in plain.items()})
    steps: list[StepStats] = []
    engine = make_engine(num_blocks=4, drafter=drafter, num_speculative_tokens=64)
    results = run(engine, items, steps)
    assert all(results[key].same_as(plain[key]) for key in plain)
    assert max(step.kv_cache_usage_ratio for step in steps) == 1.0
    assert max(num_drafted for num_drafted, _ in drafter.observed) > 30


def test_d5_a_sequence_preempted_while_drafts_wait_for_it_writes_to_no_freed_block() -> None:
    items = [request(f"r{i}", random_prompt(i, 60), max_tokens=70, ignore_eos=True, arrival_s=i) for i in range(5)]
    plain = {item.request_id: run_alone(item) for item in items}
    engine = make_engine(num_blocks=9, drafter=KnowingDrafter({k: r.token_ids for k, r in plain.items()}))
    results: dict[str, Result] = {}
    num_preempted = 0
    for item in items:
        engine.add(item)
    while engine.has_work:
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        num_preempted += engine.last_step.num_preempted
        engine.check_integrity()
    assert num_preempted > 0
    assert all(results[key].same_as(plain[key]) for key in plain)


def test_d6_prefix_reuse_over_ten_turns_is_the_same_with_speculation() -> None:
    cached: dict[int, list[int]] = {}
    for num_speculative_tokens in (0, 6):
        engine = make_engine(num_speculative_tokens=num_speculative_tokens)
        history: list[int] = []
        cached[num_speculative_tokens] = []
        for turn in range(10):
            history += random_prompt(turn, 17)
            result = run(engine, [request("a", history, max_tokens=25, ignore_eos=True)])["a"]
            history += result.token_ids
            cached[num_speculative_tokens].append(result.num_cached_tokens)
    assert max(abs(on - off) for on, off in zip(cached[6], cached[0], strict=True)) <= BLOCK_SIZE
    # All but the last, partial block of the turn before.
    assert all(tokens >= 42 * turn - BLOCK_SIZE for turn, tokens in enumerate(cached[6]))


def test_d7_killed_requests_free_blocks_drafter_state_and_gauges_at_once() -> None:
    drafter = NgramDrafter(max_draft_tokens=4)
    engine = make_engine(drafter=drafter, max_num_seqs=32)
    for i in range(54):
        engine.add(request(f"r{i}", encode("word " * 20), max_tokens=400, temperature=0.8, seed=i))
    for _ in range(5):
        engine.step()
    assert drafter.num_sequences > 0
    for i in range(54):
        engine.abort(f"r{i}")
    engine.check_integrity()
    assert drafter.num_sequences == 0
    results = drain(engine)
    assert {result.finish_reason for result in results.values()} == {FinishReason.ABORT}
    stats = engine.last_step
    assert (stats.num_running, stats.num_waiting, stats.kv_cache_usage_ratio) == (0, 0, 0.0)
