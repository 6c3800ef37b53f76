"""Whole engines under grammars: the same tokens whatever drafts, valid texts, and ends of their own."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.best_draft import BestDraft
from cluster.engine.drafters.grammar import MAX_FORCED_TOKENS, GrammarDrafter
from cluster.engine.drafters.ngram import NgramDrafter
from cluster.errors import GrammarError, InvalidRequestError
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import choice_grammar, ebnf_grammar, json_schema_grammar, regex_grammar
from cluster.types import GRAMMAR_FAILED, FinishReason, Request, Role, SpeculationParams, StepStats
from tests.cluster.engine.drafters.test_draft_model import make_drafter, make_model
from tests.cluster.engine.engine_harness import (
    EDITS,
    KnowingDrafter,
    Result,
    make_engine,
    random_prompt,
    request,
    run,
    run_alone,
    scripted_engine,
    tokenizer,
)
from tests.tiny import EOS_TOKEN_ID

LIMITS = GrammarLimits()
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 6},
        "number": {"type": "integer", "minimum": 0, "maximum": 99},
        "colour": {"enum": ["red", "green", "greenish"]},
    },
    "required": ["title", "number", "colour"],
    "additionalProperties": False,
}
GRAMMARS = {
    "schema": json_schema_grammar(SCHEMA, LIMITS),
    "regex": regex_grammar(r"The (number|word) is: [a-z]{4,20}\.", LIMITS),
    "grammar": ebnf_grammar('root ::= "(" root ")" | "[" root "," root "]" | [a-c]', LIMITS),
}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "T=0": {"temperature": 0.0},
    "T=0.7": {"temperature": 0.7, "top_p": 0.95},
    "T=1": {"temperature": 1.0, "frequency_penalty": 0.4, "logprobs": 2, "min_tokens": 3},
}


def encode(text: str) -> list[int]:
    ids: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return ids


@cache
def requests() -> tuple[Request, ...]:
    return tuple(
        request(f"{name}/{setting}", random_prompt(index, 12), max_tokens=90, seed=index, grammar=grammar, **values)
        for index, (name, grammar) in enumerate(GRAMMARS.items())
        for setting, values in SAMPLINGS.items()
    )


@cache
def expected() -> dict[str, Result]:
    return {item.request_id: run_alone(item) for item in requests()}


def drafters() -> dict[str, Drafter | None]:
    texts = {key: result.token_ids for key, result in expected().items()}
    knowing = {f"knowing, {name}": KnowingDrafter(texts, edit) for name, edit in EDITS.items()}
    return {
        "off": None,
        "grammar": GrammarDrafter(),
        "n-gram": NgramDrafter(max_draft_tokens=8),
        "draft model": make_drafter(make_model(spoilt=True)),
        "both": BestDraft((NgramDrafter(max_draft_tokens=8), None), (KnowingDrafter(texts), lambda want: 3.0)),
        **knowing,
    }


@pytest.mark.parametrize("name", ["off", "grammar", "n-gram", "draft model", "both", *(f"knowing, {n}" for n in EDITS)])
def test_no_drafter_changes_what_is_written_under_a_grammar(name: str) -> None:
    drafter = drafters()[name]
    engine = make_engine(drafter=drafter, num_speculative_tokens=8 if drafter else 0, draft_budget="fixed")
    results = run(engine, requests())
    for key, result in expected().items():
        assert results[key].seen() == result.seen(), key


def test_preemption_and_role_flips_change_nothing_either() -> None:
    texts = {key: result.token_ids for key, result in expected().items()}
    steps: list[StepStats] = []
    engine = make_engine(
        drafter=KnowingDrafter(texts, EDITS["sometimes wrong"]), num_blocks=5, prefill_chunk_tokens=16,
        max_num_batched_tokens=64, max_num_seqs=8, draft_budget="fixed",
    )  # fmt: skip
    results: dict[str, Result] = {}
    for item in requests():
        engine.add(item)
    while engine.has_work:
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
        steps.append(engine.last_step)
        if len(steps) in (9, 17):
            engine.set_role(Role.BATCH if len(steps) == 9 else Role.SPECULATIVE, max_num_seqs=8)
    assert sum(step.num_preempted for step in steps) > 0
    for key, result in expected().items():
        assert results[key].seen() == result.seen(), key


def test_finished_texts_follow_their_grammars_and_end_with_reason_stop() -> None:
    num_finished = 0
    for key, result in expected().items():
        if result.finish_reason is FinishReason.LENGTH:
            continue
        num_finished += 1
        assert result.finish_reason is FinishReason.STOP and result.stop_reason is None
        assert result.token_ids[-1] == EOS_TOKEN_ID
        if key.startswith("schema"):
            jsonschema.validate(json.loads(result.text), SCHEMA)
        matcher = make_engine().grammars.matcher(GRAMMARS[key.split("/")[0]])
        assert matcher.valid_prefix(result.token_ids) == len(result.token_ids)
    assert num_finished >= 6


def test_forced_tokens_are_drafted_and_always_accepted() -> None:
    engine = make_engine(drafter=GrammarDrafter(), num_speculative_tokens=8, draft_budget="fixed")
    for result in run(engine, requests()).values():
        assert result.speculation is not None
        assert result.speculation.num_accepted_tokens == result.speculation.num_draft_tokens


def test_forced_tokens_are_longer_than_other_drafts_unless_the_request_says_otherwise() -> None:
    text = "one long text that nothing can change"
    grammar = choice_grammar([text], LIMITS)
    for limit, longest in ((None, MAX_FORCED_TOKENS), (3, 3)):
        item = request("a", [5, 6], max_tokens=60, grammar=grammar)
        item = replace(item, speculation=SpeculationParams(num_speculative_tokens=limit))
        engine = make_engine(drafter=GrammarDrafter(), num_speculative_tokens=4, draft_budget="fixed")
        result = run(engine, [item])["a"]
        assert result.text == text and result.speculation is not None
        assert len(result.speculation.accepted_per_draft) - 1 == longest


def test_a_drafter_beside_the_grammar_serves_where_nothing_is_forced() -> None:
    item = request("a", [5, 6], max_tokens=90, grammar=GRAMMARS["schema"], temperature=0.7)
    drafter = KnowingDrafter({"a": run_alone(item).token_ids})
    engine = make_engine(drafter=drafter, num_speculative_tokens=4, draft_budget="fixed")
    engine.add(item)
    sources: set[str] = set()
    while engine.has_work:
        engine.step()
        sources |= {stats.source for stats in engine.last_step.draft_sources}
    assert sources == {"grammar", "knowing"}


@pytest.mark.parametrize("num_matching", [0, 2, 4])
def test_drafts_behind_the_end_of_the_grammar_are_dropped(num_matching: int) -> None:
    """C7: the grammar is complete in the middle of a draft."""
    text = encode("abc")
    end = [*text, EOS_TOKEN_ID]
    script, drafts = [*end, *encode("more and more")], [*end, *encode("xyzzy")[:num_matching]]
    engine = scripted_engine([4, 5], script, drafts=drafts, num_speculative_tokens=8)
    result = run(engine, [request("a", [4, 5], max_tokens=20, grammar=choice_grammar(["abc", "abd"], LIMITS))])["a"]
    assert (result.token_ids, result.text, result.finish_reason) == (end, "abc", FinishReason.STOP)


@pytest.mark.parametrize(
    "sampling",
    [
        {"min_tokens": 20},
        {"ignore_eos": True},
        {"bad_words": ((encode("b")[0],), (EOS_TOKEN_ID,))},
        {"allowed_token_ids": (encode("z")[0],)},
        {"logit_bias": ((encode("b")[0], -100.0), (encode("z")[0], 100.0))},
        {"min_tokens": 20, "ignore_eos": True, "skip_special_tokens": False},
    ],
)
def test_a_grammar_wins_over_settings_that_would_leave_nothing(sampling: dict[str, Any]) -> None:
    item = request("a", [4, 5], max_tokens=30, grammar=choice_grammar(["abc"], LIMITS), **sampling)
    result = run_alone(item)
    assert (result.text, result.finish_reason) == ("abc", FinishReason.STOP)
    assert run(make_engine(drafter=GrammarDrafter()), [item])["a"].seen() == result.seen()


def test_settings_hold_where_the_grammar_leaves_a_choice() -> None:
    grammar = regex_grammar("[a-z]{1,400}", LIMITS)
    result = run_alone(request("a", [4, 5], max_tokens=40, grammar=grammar, min_tokens=25, logit_bias=((2, 50.0),)))
    assert result.num_output_tokens == 26 and result.finish_reason is FinishReason.STOP
    ignoring = run_alone(request("a", [4, 5], max_tokens=12, grammar=grammar, ignore_eos=True, logit_bias=((2, 50.0),)))
    assert ignoring.num_output_tokens == 12 and EOS_TOKEN_ID not in ignoring.token_ids
    stopped = run_alone(request("a", [4, 5], max_tokens=12, grammar=regex_grammar("x: [a-z]{9}", LIMITS), stop=(": ",)))
    assert (stopped.text, stopped.stop_reason) == ("x", ": ")


def test_a_model_without_an_end_stops_where_the_grammar_does() -> None:
    item = request("a", [4, 5], max_tokens=30, grammar=choice_grammar(["abc"], LIMITS))
    engine = make_engine(eos_token_ids=(), drafter=GrammarDrafter())
    result = run(engine, [item])["a"]
    assert (result.text, result.token_ids, result.finish_reason) == ("abc", encode("abc"), FinishReason.STOP)


def test_a_grammar_that_takes_too_much_work_ends_its_choice_alone() -> None:
    costly = ebnf_grammar('start: e\ne: e e | e e e | "a"', LIMITS)
    items = [
        request("costly", [4, 5], max_tokens=400, grammar=costly, ignore_eos=True),
        request("other", [6, 7], max_tokens=60, ignore_eos=True),
    ]
    for drafter in (None, NgramDrafter(max_draft_tokens=4)):
        engine = make_engine(
            drafter=drafter, num_speculative_tokens=4 if drafter else 0, grammar=GrammarLimits(step_items=400)
        )
        results = run(engine, items)
        assert (results["costly"].finish_reason, results["costly"].stop_reason) == (FinishReason.ERROR, GRAMMAR_FAILED)
        assert set(results["costly"].text) == {"a"}
        assert results["other"].seen() == run_alone(items[1]).seen()


def test_a_grammar_that_cannot_be_compiled_is_refused_and_nothing_is_added() -> None:
    engine = make_engine()
    with pytest.raises(GrammarError, match="unclosed"):
        engine.add(request("a", [4, 5], grammar=regex_grammar("(a", LIMITS)))
    assert not engine.has_work
    engine.check_integrity()


@pytest.mark.parametrize("key", ["schema/T=0.7", "regex/T=1", "grammar/T=1"])
def test_a_choice_cut_anywhere_goes_on_in_its_grammar(key: str) -> None:
    item, whole = next(i for i in requests() if i.request_id == key), expected()[key]
    item = replace(item, sampling=replace(item.sampling, logprobs=None))
    cuts = range(0, len(whole.token_ids) + (whole.finish_reason is FinishReason.STOP), 3)
    engine = make_engine(drafter=GrammarDrafter(), draft_budget="fixed")
    halves = [replace(item, request_id=str(cut), output_token_ids=tuple(whole.token_ids[:cut])) for cut in cuts]
    results = run(engine, halves)
    for cut in cuts:
        assert whole.token_ids[:cut] + results[str(cut)].token_ids == whole.token_ids
        assert results[str(cut)].finish_reason is whole.finish_reason


def test_output_that_does_not_follow_the_grammar_cannot_be_resumed() -> None:
    item = request("a", [4, 5], grammar=choice_grammar(["abc"], LIMITS))
    for text in ("abd", "z"):
        with pytest.raises(InvalidRequestError, match="does not follow"):
            make_engine().add(replace(item, output_token_ids=tuple(encode(text))))
