"""A choice that another engine began: cut anywhere, in any setting, it goes on as if nothing had happened."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cluster.engine.engine import Engine
from cluster.engine.output import OutputProcessor
from cluster.errors import InvalidRequestError
from cluster.types import FinishReason, Request, SpeculationParams
from tests.cluster.engine import toy_tokenizers
from tests.cluster.engine.drafters.test_draft_model import make_drafter, make_model
from tests.cluster.engine.engine_harness import (
    BLOCK_SIZE,
    KnowingDrafter,
    Result,
    drain,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
    scripted_engine,
    sometimes_wrong,
    tokenizer,
)

NUM_TOKENS = 40
PROMPT = random_prompt(3, 45)

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "T=0.8": {"temperature": 0.8},
    "T=1 with all cuts": {"temperature": 1.0, "top_k": 60, "top_p": 0.9, "min_p": 0.01},
    "penalties": {
        "temperature": 0.7, "presence_penalty": 0.7, "frequency_penalty": 0.9, "repetition_penalty": 1.3,
    },
    "bias and bad words": {"temperature": 1.0, "logit_bias": ((40, 4.0), (41, 4.0)), "bad_words": ((40, 41), (40, 40))},
    "logprobs": {"temperature": 0.9, "logprobs": 3},
    "prompt logprobs": {"temperature": 0.9, "logprobs": 0, "prompt_logprobs": 2},
    "min tokens before EOS": {"temperature": 1.0, "min_tokens": 12, "logit_bias": ((2, 9.0),), "ignore_eos": False},
    "min tokens before a stop id": {
        "temperature": 1.0, "min_tokens": 25, "stop_token_ids": (50, 51), "logit_bias": ((50, 5.0), (51, 5.0)),
    },
    "special tokens shown": {"temperature": 1.0, "skip_special_tokens": False, "logit_bias": ((0, 6.0), (1, 6.0))},
}  # fmt: skip


def whole(name: str) -> Request:
    values = {"max_tokens": NUM_TOKENS, "ignore_eos": True, **SETTINGS[name]}
    return request("whole", PROMPT, seed=7, **values)


@cache
def uncut(name: str) -> Result:
    return run_alone(whole(name))


def cut(item: Request, before: Result, index: int) -> Request:
    """What is left to do after `index` tokens, as the gateway asks for it."""
    sampling = item.sampling if index == 0 else replace(item.sampling, prompt_logprobs=None)
    done = tuple(before.token_ids[:index])
    return replace(item, request_id=str(index), output_token_ids=done, sampling=sampling)


def joined(before: Result, index: int, after: Result) -> tuple[object, ...]:
    """What a client sees of both parts. Each of the first part's tokens came in an output of its own."""
    assert after.num_output_tokens == index + len(after.token_ids)
    return (
        before.token_ids[:index] + after.token_ids,
        "".join(before.deltas[:index]) + after.text,
        before.logprobs[:index] + after.logprobs,
        (before.prompt_logprobs if index else []) + after.prompt_logprobs,
        after.finish_reason,
        after.stop_reason,
    )


def check_every_cut(item: Request, before: Result, engine: Engine) -> None:
    """All cuts at once, so that they share batches, too."""
    assert len(before.deltas) == len(before.token_ids) > 10
    cuts = range(len(before.token_ids))
    results = run(engine, [cut(item, before, index) for index in cuts])
    for index in cuts:
        assert joined(before, index, results[str(index)]) == before.seen(), index


def plain(before: Result) -> Engine:
    return make_engine(num_speculative_tokens=0)


def with_ngram(before: Result) -> Engine:
    return make_engine(drafter=None, num_speculative_tokens=4)


def with_draft_model(before: Result) -> Engine:
    return make_engine(drafter=make_drafter(make_model(spoilt=True)), num_speculative_tokens=4)


def with_good_drafts(before: Result) -> Engine:
    """It drafts by output index, so it also shows that drafts begin behind what was there before."""
    texts = {str(index): before.token_ids for index in range(NUM_TOKENS)}
    return make_engine(drafter=KnowingDrafter(texts, sometimes_wrong), num_speculative_tokens=4)


@pytest.mark.parametrize("engine_for", [plain, with_ngram, with_draft_model, with_good_drafts])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_choice_cut_at_any_index_goes_on_unseen(name: str, engine_for: Callable[[Result], Engine]) -> None:
    check_every_cut(whole(name), uncut(name), engine_for(uncut(name)))


def test_the_settings_do_what_they_are_named_for() -> None:
    assert uncut("min tokens before EOS").finish_reason is FinishReason.STOP
    assert len(uncut("min tokens before EOS").token_ids) == 13
    assert uncut("min tokens before a stop id").stop_reason in (50, 51)
    assert "<|" in uncut("special tokens shown").text
    assert 40 in uncut("bias and bad words").token_ids


def encoded(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False))


HELD_BACK = "stopping is not a stop: sto, stop, st. Then STOP! and more"
CHARACTERS = "naïve 🐎 riders — 先行者 — ride ahead 🏇🏇 of Škoda"


@pytest.mark.parametrize("includes_stop", [False, True])
@pytest.mark.parametrize("has_drafts", [False, True])
def test_text_that_was_held_back_for_a_stop_string_comes_after_the_cut(includes_stop: bool, has_drafts: bool) -> None:
    output = encoded(HELD_BACK)
    item = request(
        "a", PROMPT, max_tokens=len(output), stop=("STOP! and", "stop, stop"), include_stop_str_in_output=includes_stop
    )
    before = run(scripted_engine(PROMPT, output, num_speculative_tokens=0), [item])["a"]
    assert before.stop_reason in {"stop, stop", "STOP! and"}
    assert "" in before.deltas[1:-1]
    check_every_cut(item, before, scripted_for(output, before, has_drafts=has_drafts))


@pytest.mark.parametrize("has_drafts", [False, True])
def test_a_character_cut_in_its_middle_is_shown_once_and_whole(has_drafts: bool) -> None:
    output = encoded(CHARACTERS)
    item = request("a", PROMPT, max_tokens=len(output))
    before = run(scripted_engine(PROMPT, output, num_speculative_tokens=0), [item])["a"]
    assert before.text == CHARACTERS
    assert before.deltas.count("") > 10
    check_every_cut(item, before, scripted_for(output, before, has_drafts=has_drafts))


def scripted_for(output: list[int], before: Result, *, has_drafts: bool) -> Engine:
    engine = scripted_engine(PROMPT, output, num_speculative_tokens=4 if has_drafts else 0)
    if has_drafts:
        engine.use_drafter(KnowingDrafter({str(index): before.token_ids for index in range(len(output))}))
    return engine


@pytest.mark.parametrize("make", [toy_tokenizers.byte_level, toy_tokenizers.byte_fallback])
def test_every_detokenizer_takes_up_its_state(make: Callable[[], Any]) -> None:
    toy = make()
    token_ids = toy.encode("  Grüße 🐎 und 先行者!", add_special_tokens=False)
    item = request("a", (0,), max_tokens=len(token_ids))

    def texts(begin: int) -> list[str]:
        output = OutputProcessor(toy, item, frozenset(), 1000)
        output.resume(tuple(token_ids[:begin]))
        parts = []
        for token_id in token_ids[begin:]:
            output.append(token_id)
            parts.append(output.take_text())
        return parts

    for begin in range(len(token_ids)):
        assert texts(begin) == texts(0)[begin:]


def test_a_choice_may_be_cut_again_and_again() -> None:
    item, before = whole("penalties"), uncut("penalties")
    index, text = 0, ""
    while index < NUM_TOKENS:
        engine = make_engine(num_speculative_tokens=4, enable_prefix_cache=False)
        engine.add(cut(item, before, index))
        outputs: list[Any] = []
        while sum(len(output.token_ids) for output in outputs) < 7 and engine.has_work:
            outputs += engine.step()
        text += "".join(output.text for output in outputs)
        index += sum(len(output.token_ids) for output in outputs)
    assert text == before.text


@pytest.mark.parametrize("num_blocks", [4, 5])
def test_resumed_choices_survive_preemption(num_blocks: int) -> None:
    item, before = whole("logprobs"), uncut("logprobs")
    steps: list[Any] = []
    engine = make_engine(num_blocks=num_blocks, num_speculative_tokens=4, enable_prefix_cache=False)
    cuts = (5, 12, 18)  # Each holds two blocks, and will want a third.
    results = run(engine, [cut(item, before, index) for index in cuts], steps)
    assert sum(step.num_preempted for step in steps) > 0
    assert all(joined(before, index, results[str(index)]) == before.seen() for index in cuts)


def test_only_prompt_tokens_count_as_cached() -> None:
    item, before = whole("greedy"), uncut("greedy")
    engine = make_engine(num_speculative_tokens=0)
    run(engine, [replace(item, request_id="warm")])
    result = run(engine, [cut(item, before, 30)])["30"]
    assert len(PROMPT) + 30 > 2 * BLOCK_SIZE > len(PROMPT)
    assert result.num_cached_tokens == len(PROMPT)


def test_prompt_logprobs_that_are_asked_for_come_after_output_too() -> None:
    item, before = whole("prompt logprobs"), uncut("prompt logprobs")
    again = replace(cut(item, before, 5), sampling=item.sampling)
    engine = make_engine(num_speculative_tokens=0)
    run(engine, [item])  # Its blocks are cached, and must not be taken.
    assert run(engine, [again])["5"].prompt_logprobs == before.prompt_logprobs


@pytest.mark.parametrize("name", ["greedy", "min tokens before EOS", "min tokens before a stop id"])
def test_a_choice_that_brought_everything_but_its_end_is_ended(name: str) -> None:
    item, before = whole(name), uncut(name)
    result = run(make_engine(), [cut(item, before, len(before.token_ids))])[str(len(before.token_ids))]
    assert (result.token_ids, result.text) == ([], "")
    assert (result.finish_reason, result.stop_reason) == (before.finish_reason, before.stop_reason)
    assert result.num_output_tokens == len(before.token_ids)


def test_output_behind_the_end_or_of_no_token_is_refused_and_leaves_no_trace() -> None:
    item, before = whole("greedy"), uncut("greedy")
    engine = make_engine()
    for output in ((*before.token_ids, 5), (5, 512), (-1,)):
        with pytest.raises(InvalidRequestError) as caught:
            engine.add(replace(item, output_token_ids=output))
        assert caught.value.param == "output_token_ids"
    assert not engine.has_work


def test_a_resumed_choice_goes_before_newcomers_but_not_before_those_that_waited_long() -> None:
    def item(name: str, arrival_s: float, output: Iterable[int] = ()) -> Request:
        made = request(name, PROMPT, max_tokens=4, arrival_s=arrival_s, speculation=SpeculationParams())
        return replace(made, output_token_ids=tuple(output))

    engine = make_engine(max_num_seqs=1)
    for each in (item("old", 0.0), item("new", 19.0), item("resumed", 20.0, [7])):
        engine.add(each)
    ends: dict[str, Result] = {}
    drain(engine, ends)
    assert list(ends) == ["old", "resumed", "new"]
