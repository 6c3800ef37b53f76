"""Rejection and block verification in whole engines: texts follow the target's distribution whatever drafts."""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cluster.engine import rule_verifier
from cluster.engine.acceptance_rules import Decision, Rule, Trial, decide
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.engine import Engine
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import regex_grammar
from cluster.types import FinishReason, Request, Role, StepStats
from tests.cluster.engine.engine_harness import Result, make_engine, request, run, without_drafts
from tests.cluster.engine.markov import (
    DRAFTERS,
    PROMPT,
    WORDS,
    AheadDrafter,
    MarkovRunner,
    draft_model,
    exact_texts,
    target_table,
)
from tests.cluster.engine.sampling_toys import p_value

RULES: tuple[Rule, ...] = ("rejection", "block")
SIGNIFICANCE, LENGTH = 1e-4, 3
FEW, MANY, MOST = 150, 600, 900
NUCLEUS: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9}


def engine_of(rule: Rule | str, drafter: Drafter, **settings: Any) -> Engine:
    runner = MarkovRunner(
        target_table(), num_kv_blocks=settings.pop("num_blocks", 1024), broken=settings.pop("broken", None)
    )
    settings = {"num_speculative_tokens": 3, "draft_budget": "fixed", **settings}
    return make_engine(runner=runner, drafter=drafter, acceptance=rule, **settings)


def requests_of(count: int, **sampling: Any) -> list[Request]:
    """One for each seed. Longer than what is counted, so that drafts reach behind it."""
    sampling = {"max_tokens": LENGTH + 1, "ignore_eos": True, **sampling}
    return [request(f"r{seed}", PROMPT, seed=seed, **sampling) for seed in range(count)]


def fit(results: Iterable[Result], exact: npt.NDArray[np.float64]) -> float:
    """p-value of the texts' first tokens: all together, and without the first ones, whichever is worst.

    The first token of all, drawn by the round that reads the prompt, says nothing of drafts.
    """
    counts = np.zeros(exact.shape, np.int64)
    for result in results:
        counts[tuple(token - WORDS.start for token in result.token_ids[: exact.ndim])] += 1
    before = [tuple(range(n)) for n in range(exact.ndim)]
    return exact.ndim * min(p_value(counts.sum(axis=axes), exact.sum(axis=axes)) for axes in before)


def served(rule: Rule, drafter: Drafter, count: int, **sampling: Any) -> list[Result]:
    return list(run(engine_of(rule, drafter), requests_of(count, **sampling)).values())


def rate(results: Iterable[Result]) -> float:
    stats = [result.speculation for result in results if result.speculation]
    return sum(s.num_accepted_tokens for s in stats) / sum(s.num_draft_tokens for s in stats)


@pytest.mark.parametrize(("rule", "drafter"), [*(("block", name) for name in DRAFTERS), ("rejection", "draft model")])
def test_texts_follow_the_targets_distribution(rule: Rule, drafter: str) -> None:
    results = served(rule, DRAFTERS[drafter](), FEW, **NUCLEUS)
    assert fit(results, exact_texts(PROMPT[-1], LENGTH, **NUCLEUS)) > SIGNIFICANCE
    assert rate(results) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_many_texts_follow_the_targets_distribution(rule: Rule, drafter: str) -> None:
    results = served(rule, DRAFTERS[drafter](), MANY, temperature=0.7)
    assert fit(results, exact_texts(PROMPT[-1], LENGTH, temperature=0.7)) > SIGNIFICANCE
    assert rate(results) > 0.05


def naive(rule: Rule, trial: Trial) -> Decision:
    """Wrong: the recovered token is drawn from p instead of what q left of it."""
    return Decision(num_accepted=decide(rule, trial).num_accepted)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_the_fit_sees_a_rule_that_recovers_from_p(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_verifier, "decide", naive)
    results = served(rule, draft_model(), MOST, temperature=0.7)
    assert fit(results, exact_texts(PROMPT[-1], LENGTH, temperature=0.7)) < SIGNIFICANCE


@pytest.mark.slow
def test_the_fit_sees_a_target_that_draws_with_the_noise_of_drafts_that_ran_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_verifier, "target_seed", lambda seed: seed)
    results = served("rejection", AheadDrafter(), MANY, temperature=0.7)
    assert fit(results, exact_texts(PROMPT[-1], LENGTH, temperature=0.7)) < SIGNIFICANCE


@pytest.mark.parametrize("rule", RULES)
def test_preempted_texts_follow_the_targets_distribution(rule: Rule) -> None:
    """A prompt of two blocks, and texts that need a third one each."""
    steps: list[StepStats] = []
    engine = engine_of(rule, draft_model(), num_blocks=40)
    requests = [replace(r, prompt_token_ids=PROMPT + PROMPT[-21:]) for r in requests_of(FEW, **NUCLEUS)]
    results = run(engine, requests, steps).values()
    assert sum(step.num_preempted for step in steps) > 10
    assert fit(results, exact_texts(PROMPT[-1], LENGTH, **NUCLEUS)) > SIGNIFICANCE


@pytest.mark.parametrize("rule", RULES)
def test_resumed_texts_follow_the_targets_distribution(rule: Rule) -> None:
    word = WORDS[2]
    requests = [replace(r, output_token_ids=(word,)) for r in requests_of(FEW, **NUCLEUS)]
    results = run(engine_of(rule, draft_model()), requests).values()
    assert fit(results, exact_texts(word, LENGTH, **NUCLEUS)) > SIGNIFICANCE


def test_texts_under_a_grammar_follow_what_it_leaves_of_the_distribution() -> None:
    """The drafter does not know the grammar and drafts what it refuses, too."""
    letters = [chr(33 + word - 3) for word in WORDS[:3]]
    grammar = regex_grammar(f"[{''.join(letters)}]{{4}}", GrammarLimits())
    requests = [replace(r, grammar=grammar) for r in requests_of(FEW, temperature=1.0)]
    results = run(engine_of("block", draft_model()), requests).values()
    assert all(set(result.text) <= set(letters) for result in results)
    assert fit(results, exact_texts(PROMPT[-1], LENGTH, allowed=WORDS[:3], temperature=1.0)) > SIGNIFICANCE
    assert rate(results) > 0.05


@pytest.mark.parametrize("rule", RULES)
def test_greedy_texts_are_those_without_drafts(rule: Rule) -> None:
    requests = requests_of(6, temperature=0.0, max_tokens=20, logprobs=2)
    drafted, plain = (
        run(engine_of(rule, draft_model()), some) for some in (requests, [without_drafts(r) for r in requests])
    )
    assert all(drafted[r.request_id].same_as(plain[r.request_id]) for r in requests)
    assert rate(drafted.values()) > 0.2


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_and_drafts_give_the_same_text_in_any_batch(rule: Rule) -> None:
    requests = requests_of(12, temperature=1.0, max_tokens=20)
    together = run(engine_of(rule, AheadDrafter()), requests)
    for each in requests[::4]:
        assert run(engine_of(rule, AheadDrafter()), [each])[each.request_id].same_as(together[each.request_id])
    assert len({tuple(result.token_ids) for result in together.values()}) == len(requests)


@pytest.mark.parametrize("rule", RULES)
def test_logprobs_entropies_and_counts_are_those_of_the_emitted_tokens(rule: Rule) -> None:
    steps: list[StepStats] = []
    requests = requests_of(4, temperature=0.8, max_tokens=24, logprobs=1)
    results = run(engine_of(rule, draft_model()), requests, steps)
    for result in results.values():
        text = [PROMPT[-1], *result.token_ids]
        raw = [target_table()[last].double().log_softmax(-1) for last in text[:-1]]
        assert [entry.token_id for entry in result.logprobs] == result.token_ids
        for entry, row_V in zip(result.logprobs, raw, strict=True):
            assert entry.logprob == pytest.approx(float(row_V[entry.token_id]), abs=1e-4)
        stats = result.speculation
        assert stats is not None
        assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens
        assert stats.num_rounds + stats.num_accepted_tokens == len(result.token_ids)
        bits = [-float((row.exp() * row)[40:46].sum()) / math.log(2) for row in raw]
        assert stats.entropy_bits_sum == pytest.approx(sum(bits), rel=1e-4)
    assert sum(step.num_output_tokens for step in steps) == 4 * 24


@pytest.mark.parametrize("rule", RULES)
def test_a_row_without_a_distribution_ends_its_text_alone(rule: Rule) -> None:
    position = len(PROMPT) + 5
    long, short = requests_of(2, temperature=1.0, max_tokens=20)
    short = replace(short, sampling=replace(short.sampling, max_tokens=4))
    results = run(engine_of(rule, draft_model(), broken=position), [long, short])
    assert results[long.request_id].finish_reason is FinishReason.ERROR
    assert 0 < len(results[long.request_id].token_ids) <= 6
    assert results[short.request_id].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("rule", RULES)
def test_in_role_batch_texts_go_on_in_the_same_distribution(rule: Rule) -> None:
    engine = engine_of(rule, AheadDrafter())
    for each in requests_of(FEW, **NUCLEUS):
        engine.add(each)
    results: dict[str, Result] = {}
    for number in range(2000):
        if not engine.has_work:
            break
        engine.set_role((Role.SPECULATIVE, Role.BATCH)[number % 2], max_num_seqs=64)
        for output in engine.step():
            results.setdefault(output.request_id, Result()).take(output)
    assert fit(results.values(), exact_texts(PROMPT[-1], LENGTH, **NUCLEUS)) > SIGNIFICANCE


@pytest.mark.parametrize("drafter", ["draft model", "head"])
def test_with_drafting_beside_the_pass_texts_follow_the_targets_distribution(drafter: str) -> None:
    steps: list[StepStats] = []
    engine = engine_of("block", DRAFTERS[drafter](), overlap="on")
    results = run(engine, requests_of(FEW, **NUCLEUS), steps).values()
    engine.close()
    assert any(step.is_overlapped for step in steps)
    assert fit(results, exact_texts(PROMPT[-1], LENGTH, **NUCLEUS)) > SIGNIFICANCE


class TreeDrafter(AheadDrafter):
    """Offers two words at once."""

    def propose(self, wanted: Seq[Wanted]) -> Mapping[str, Draft]:
        draft = Draft(token_ids=(WORDS[0], WORDS[1]), source=self.name, parents=(-1, -1))
        return {want.sequence.request_id: draft for want in wanted}


@pytest.mark.parametrize("rule", RULES)
def test_trees_are_left_alone(rule: Rule) -> None:
    steps: list[StepStats] = []
    run(engine_of(rule, TreeDrafter()), requests_of(2, temperature=1.0), steps)
    assert sum(step.num_draft_tokens for step in steps) == 0


def test_end_of_text_ends_a_choice_within_a_draft() -> None:
    """It must not be lost when it is a draft token that is kept."""
    results = served("block", draft_model(), 8, temperature=1.0, max_tokens=24, stop_token_ids=(WORDS[1],))
    assert {result.finish_reason for result in results} <= {FinishReason.STOP, FinishReason.LENGTH}
    assert all(WORDS[1] not in result.token_ids[:-1] for result in results)
    assert any(result.finish_reason is FinishReason.STOP for result in results)
