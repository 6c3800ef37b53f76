import random

import pytest

from cluster.clock import ManualClock
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.errors import InvalidRequestError
from cluster.types import FinishReason, Request, SamplingParams, SpeculationParams, StepStats
from tests.cluster.engine.engine_harness import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    OFF,
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


def test_a_request_yields_max_tokens_and_its_text_is_the_decoded_ids() -> None:
    result = run(make_engine(), [request("a", PROMPT, max_tokens=24, ignore_eos=True)])["a"]
    assert len(result.token_ids) == result.num_output_tokens == 24
    assert result.finish_reason is FinishReason.LENGTH
    assert result.text == tokenizer().decode(result.token_ids, skip_special_tokens=True)


def test_without_drafts_each_round_emits_one_token_of_each_choice() -> None:
    engine = make_engine(num_speculative_tokens=0)
    engine.add(request("a", PROMPT))
    engine.add(request("b", PROMPT[:7]))
    for _ in range(5):
        outputs = engine.step()
        assert [(output.request_id, len(output.token_ids)) for output in outputs] == [("a", 1), ("b", 1)]


def test_right_drafts_emit_several_tokens_in_one_round() -> None:
    plain = run_alone(request("a", PROMPT, max_tokens=17))
    steps: list[StepStats] = []
    engine = make_engine(drafter=KnowingDrafter({"a": plain.token_ids}))
    result = run(engine, [request("a", PROMPT, max_tokens=17)], steps)["a"]
    assert result.same_as(plain)
    assert len(steps) == 3  # the prompt and its token; 7 drafts and the bonus token, twice
    assert result.speculation is not None
    assert result.speculation.accepted_per_draft == (0, 0, 0, 0, 0, 0, 0, 2)
    assert (result.speculation.num_rounds, result.speculation.num_drafts) == (3, 2)
    assert (result.speculation.num_draft_tokens, result.speculation.num_accepted_tokens) == (14, 14)


def test_step_statistics_add_up_to_what_was_emitted() -> None:
    steps: list[StepStats] = []
    results = run(make_engine(), [request(f"r{i}", random_prompt(i, 40 + i), max_tokens=30) for i in range(6)], steps)
    speculation = [result.speculation for result in results.values() if result.speculation is not None]
    assert len(speculation) == 6
    assert sum(step.num_output_tokens for step in steps) == sum(len(result.token_ids) for result in results.values())
    assert sum(len(step.entropy_bits) for step in steps) == sum(step.num_output_tokens for step in steps)
    assert sum(step.num_prompt_tokens for step in steps) == sum(40 + i for i in range(6))
    assert sum(step.num_drafts for step in steps) == sum(stats.num_drafts for stats in speculation)
    assert sum(step.num_draft_tokens for step in steps) == sum(stats.num_draft_tokens for stats in speculation) > 0
    accepted = sum(sum(step.accepted_per_position) for step in steps)
    assert accepted == sum(stats.num_accepted_tokens for stats in speculation) > 0


@pytest.mark.parametrize(
    ("bad", "param"),
    [
        (request("a", ()), "prompt"),
        (request("a", [3, VOCAB_SIZE]), "prompt"),
        (request("a", [3, -1]), "prompt"),
        (request("a", [3] * MAX_MODEL_LEN), "prompt"),
        (request("used", [3]), "request_id"),
        (request("a", [3] * 10, stop=("",)), "stop"),
        (request("a", [3] * 10, max_tokens=200), "max_tokens"),
        (request("a", [3], speculation=SpeculationParams(drafter="oracle")), "speculation.drafter"),
    ],
)
def test_a_refused_request_names_the_field_and_leaves_no_trace(bad: Request, param: str) -> None:
    engine = make_engine(num_blocks=4)
    engine.add(request("used", [3]))
    with pytest.raises(InvalidRequestError) as caught:
        engine.add(bad)
    assert caught.value.param == param
    engine.check_integrity()
    assert drain(engine).keys() == {"used"}


@pytest.mark.parametrize("name", ["off", "ngram"])
def test_a_request_chooses_among_the_drafters_that_are_there(name: str) -> None:
    item = request("a", [5, 6, 7] * 8, max_tokens=40, ignore_eos=True, speculation=SpeculationParams(drafter=name))
    steps: list[StepStats] = []
    run(make_engine(), [item], steps)
    assert (sum(step.num_draft_tokens for step in steps) > 0) == (name == "ngram")


def test_the_context_length_ends_a_choice() -> None:
    prompt = random_prompt(1, MAX_MODEL_LEN - 5)
    plain = run_alone(request("a", prompt, max_tokens=100, ignore_eos=True))
    assert (len(plain.token_ids), plain.finish_reason) == (5, FinishReason.LENGTH)
    engine = make_engine(drafter=KnowingDrafter({"a": [*plain.token_ids, *range(3, 90)]}))
    assert run(engine, [request("a", prompt, max_tokens=100, ignore_eos=True)])["a"].same_as(plain)


def test_an_abort_frees_blocks_at_once_and_is_reported_by_the_next_step() -> None:
    engine = make_engine()
    engine.add(request("a", PROMPT, max_tokens=400, ignore_eos=True))
    engine.add(request("b", PROMPT, max_tokens=8))
    first = engine.step()
    engine.abort("a")
    engine.abort("nobody")
    engine.check_integrity()
    results = {output.request_id: Result() for output in first}
    for output in first:
        results[output.request_id].take(output)
    drain(engine, results)
    assert results["a"].finish_reason is FinishReason.ABORT
    assert results["a"].num_output_tokens == len(results["a"].token_ids) == 1
    assert results["b"].token_ids == run_alone(request("b", PROMPT, max_tokens=8)).token_ids


def test_an_abort_shows_text_that_was_held_back() -> None:
    ids = tokenizer().encode("wait for the end", add_special_tokens=False)
    engine = scripted_engine(PROMPT, ids, num_speculative_tokens=0)
    engine.add(request("a", PROMPT, max_tokens=50, stop=("the end of all",)))
    results: dict[str, Result] = {}
    for _ in ids:
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
    assert results["a"].text == "wait for "
    engine.abort("a")
    assert drain(engine, results)["a"].text == "wait for the end"


def test_a_deadline_ends_waiting_and_running_choices() -> None:
    clock = ManualClock()
    engine = make_engine(clock=clock, max_num_seqs=1, max_num_batched_tokens=16)
    engine.add(request("running", PROMPT, max_tokens=400, ignore_eos=True, deadline_s=1.0))
    engine.add(request("waiting", PROMPT, deadline_s=1.0))
    engine.add(request("patient", PROMPT, max_tokens=4))
    for _ in range(4):
        engine.step()
    clock.advance(1.0)
    results = drain(engine)
    assert results["running"].finish_reason is results["waiting"].finish_reason is FinishReason.DEADLINE
    assert results["running"].num_output_tokens >= 3
    assert results["patient"].token_ids == run_alone(request("patient", PROMPT, max_tokens=4)).token_ids


def test_an_id_can_be_used_again_after_its_choice_ended() -> None:
    engine = make_engine()
    first = run(engine, [request("a", PROMPT, max_tokens=40)])["a"]
    assert run(engine, [request("a", PROMPT, max_tokens=40)])["a"].same_as(first)


def test_choices_of_one_prompt_share_its_blocks_and_differ_by_seed() -> None:
    prompt = random_prompt(3, 5 * BLOCK_SIZE + 1)
    engine = make_engine()
    results = run(engine, [request(f"n{i}", prompt, seed=i, temperature=1.5, max_tokens=10) for i in range(16)])
    assert results["n0"].num_cached_tokens == 0
    assert {results[f"n{i}"].num_cached_tokens for i in range(1, 16)} == {5 * BLOCK_SIZE}
    assert len({tuple(result.token_ids) for result in results.values()}) > 12
    for i in (0, 7, 15):
        alone = run_alone(request("x", prompt, seed=i, temperature=1.5, max_tokens=10))
        assert results[f"n{i}"].token_ids == alone.token_ids


def test_the_prefix_cache_keeps_salts_apart() -> None:
    prompt = random_prompt(3, 5 * BLOCK_SIZE + 1)
    engine = make_engine()
    cached = [
        run(engine, [request("a", prompt, cache_salt=salt)])["a"].num_cached_tokens for salt in ("x", "y", "x", "")
    ]
    assert cached == [0, 0, 5 * BLOCK_SIZE, 0]


@pytest.mark.parametrize("drafts", [None, [0] * 20])
def test_broken_logits_end_their_choice_where_plain_decoding_would_and_no_other(drafts: list[int] | None) -> None:
    output = list(range(40, 60))
    engine = scripted_engine(PROMPT, output, drafts=drafts, broken=[4])
    results = run(engine, [request("a", PROMPT), request("short", PROMPT[:2], max_tokens=12)])
    assert results["a"].finish_reason is FinishReason.ERROR
    assert results["a"].token_ids == output[:4]
    assert results["a"].text == tokenizer().decode(output[:4])
    assert results["short"].finish_reason is FinishReason.LENGTH


def test_blocks_with_broken_logits_are_not_found_by_later_requests() -> None:
    prompt = random_prompt(4, BLOCK_SIZE)
    engine = scripted_engine(prompt, [5], broken=[0])
    assert run(engine, [request("a", prompt)])["a"].finish_reason is FinishReason.ERROR
    assert run(engine, [request("b", [*prompt, 9, 9], max_tokens=1)])["b"].num_cached_tokens == 0


def test_broken_prompt_logits_end_the_choice_that_asked_for_them() -> None:
    engine = scripted_engine(PROMPT, [5], broken=[-3])
    results = run(engine, [request("a", PROMPT, prompt_logprobs=1), request("b", PROMPT, max_tokens=3)])
    assert results["a"].finish_reason is FinishReason.ERROR
    assert results["a"].token_ids == []
    assert results["b"].finish_reason is FinishReason.LENGTH


def test_prompt_logprobs_come_once_with_the_first_token() -> None:
    engine = make_engine()
    engine.add(request("a", PROMPT, prompt_logprobs=2))
    (first,) = engine.step()
    assert first.prompt_logprobs is not None
    assert [entry and entry.token_id for entry in first.prompt_logprobs] == [None, *PROMPT[1:]]
    engine.abort("a")
    assert drain(engine)["a"].prompt_logprobs == []


def test_a_choice_that_ends_inside_its_prompt_has_no_prompt_logprobs() -> None:
    engine = make_engine(prefill_chunk_tokens=16)
    engine.add(request("a", random_prompt(0, 60), prompt_logprobs=0))
    assert engine.step() == []
    engine.abort("a")
    assert drain(engine)["a"].prompt_logprobs == []


@pytest.mark.parametrize(
    ("speculation", "longest"),
    [
        (OFF, 0),
        (SpeculationParams(num_speculative_tokens=0), 0),
        (SpeculationParams(num_speculative_tokens=3), 3),
        (SpeculationParams(num_speculative_tokens=50), 5),
    ],
)
def test_a_request_limits_its_own_drafts_below_the_engines_limit(speculation: SpeculationParams, longest: int) -> None:
    drafter = KnowingDrafter({"a": [5] * 50})
    engine = make_engine(drafter=drafter, num_speculative_tokens=5)
    run(engine, [request("a", PROMPT, max_tokens=20, speculation=speculation)])
    assert max((num_drafted for num_drafted, _ in drafter.observed), default=0) == longest


def test_no_row_is_spent_on_a_draft_behind_the_last_token() -> None:
    drafter = KnowingDrafter({"a": run_alone(request("a", PROMPT)).token_ids})
    engine = make_engine(drafter=drafter)
    run(engine, [request("a", PROMPT, max_tokens=5)])
    assert drafter.observed == [(3, 3)]  # One token by the prompt's pass, three drafts and the bonus token.


def test_two_thousand_requests_with_random_aborts_leave_nothing_behind() -> None:
    generator = random.Random(1)
    drafter = NgramDrafter(max_draft_tokens=4)
    engine = make_engine(num_blocks=40, drafter=drafter, num_speculative_tokens=4, max_num_seqs=32)
    texts = [random_prompt(i, 40) for i in range(8)]
    alive: set[str] = set()
    ended: dict[str, FinishReason] = {}
    for number in range(2000):
        sampling = SamplingParams(max_tokens=generator.randint(1, 12), seed=number, temperature=0.8)
        prompt = generator.choice(texts)[: generator.randint(1, 40)]
        engine.add(Request(request_id=f"r{number}", prompt_token_ids=prompt, sampling=sampling))
        alive.add(f"r{number}")
        if generator.random() < 0.4:
            engine.abort(generator.choice(sorted(alive)))
        if len(alive) < 64:
            continue
        for output in engine.step():
            if output.finish_reason is not None:
                assert output.request_id not in ended
                ended[output.request_id] = output.finish_reason
                alive.discard(output.request_id)
    for request_id, result in drain(engine).items():
        assert result.finish_reason is not None
        ended[request_id] = result.finish_reason
    assert len(ended) == 2000
    assert set(ended.values()) >= {FinishReason.ABORT, FinishReason.LENGTH}
    assert drafter.num_sequences == 0
    stats = engine.last_step
    assert (stats.num_running, stats.num_waiting, stats.kv_cache_usage_ratio) == (0, 0, 0.0)


def test_eos_ends_a_choice_and_is_not_shown() -> None:
    ids = tokenizer().encode("the answer", add_special_tokens=False)
    result = run(scripted_engine(PROMPT, [*ids, EOS_TOKEN_ID, 9, 9]), [request("a", PROMPT)])["a"]
    assert result.token_ids == [*ids, EOS_TOKEN_ID]
    assert (result.text, result.finish_reason, result.stop_reason) == ("the answer", FinishReason.STOP, None)
