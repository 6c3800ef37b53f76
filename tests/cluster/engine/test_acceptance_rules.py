"""Rejection and block verification keep the target's distribution exactly: all drafts and all decisions enumerated."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from cluster.engine.acceptance_rules import Decision, Floats, Rule, Trial, decide

RULES: tuple[Rule, ...] = get_args(Rule)
Decide = Callable[[Trial], Decision]
Text = tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """A next-token distribution behind each text of up to K tokens."""

    rows: dict[Text, Floats]

    def chance(self, text: Text) -> float:
        return float(np.prod([self.rows[text[:i]][token] for i, token in enumerate(text)]))


@dataclass
class Coins:
    """Stand for the uniform numbers of one trial: they land as told, and remember what that had to be compared with."""

    lands_low: Sequence[bool]
    chances: dict[int, float] = field(default_factory=dict)

    def __call__(self, index: int) -> Any:
        return _Coin(self, index)

    @property
    def chance(self) -> float:
        """Of landing so."""
        return float(np.prod([h if self.lands_low[i] else 1.0 - h for i, h in self.chances.items()]))


@dataclass(frozen=True)
class _Coin:
    coins: Coins
    index: int

    def __lt__(self, threshold: float) -> bool:
        assert -1e-12 <= threshold <= 1.0 + 1e-12
        self.coins.chances[self.index] = min(max(threshold, 0.0), 1.0)
        return self.coins.lands_low[self.index]


def random_model(generator: np.random.Generator, num_words: int, length: int, *, zeros: float = 0.0) -> Model:
    rows = {}
    for n in range(length + 1):
        for text in product(range(num_words), repeat=n):
            p_V = generator.dirichlet(np.full(num_words, 0.7))
            p_V[generator.random(num_words) < zeros] = 0.0
            rows[text] = p_V / p_V.sum() if p_V.sum() else np.eye(num_words)[generator.integers(num_words)]
    return Model(rows)


def certain_model(generator: np.random.Generator, num_words: int, length: int) -> Model:
    """A drafter that always drafts the same behind the same."""
    texts = (text for n in range(length + 1) for text in product(range(num_words), repeat=n))
    return Model({text: np.eye(num_words)[generator.integers(num_words)] for text in texts})


def trials(p: Model, q: Model, draft: Text, *, is_certain: bool = False) -> Iterator[tuple[float, Trial, Coins]]:
    """Every way in which a draft's uniform numbers may decide, once each: as a trial to judge by the coins' chance."""
    for lands_low in product((True, False), repeat=len(draft)):
        coins = Coins(lands_low)
        yield (
            q.chance(draft),
            Trial(
                token_ids=draft,
                target=lambda i: p.rows[draft[:i]],
                drawn_from=lambda i: None if is_certain else q.rows[draft[:i]],
                uniform=coins,
            ),
            coins,
        )


@dataclass
class Outcome:
    """What comes of one round: chance of each text of K + 1 tokens, and expected number of accepted tokens."""

    texts: dict[Text, float]
    num_accepted: float


def one_round(rule: Decide, p: Model, q: Model, drafts: Sequence[Text], *, is_certain: bool = False) -> Outcome:
    """Judge all drafts in all ways; the target goes on by itself behind what the round emits."""
    num_words, longest = len(p.rows[()]), max(len(text) for text in p.rows)
    emitted: defaultdict[Text, float] = defaultdict(float)
    num_accepted = 0.0
    for draft in drafts:
        seen = set()
        for drafted, trial, coins in trials(p, q, draft, is_certain=is_certain):
            decision = rule(trial)
            way = tuple((i, coins.lands_low[i]) for i in coins.chances)
            if way in seen or drafted * coins.chance == 0.0:
                continue
            seen.add(way)
            chance, kept = drafted * coins.chance, draft[: decision.num_accepted]
            next_V = p.rows[kept] if decision.residual_V is None else decision.residual_V / decision.residual_V.sum()
            num_accepted += chance * decision.num_accepted
            for token in range(num_words):
                emitted[*kept, token] += chance * float(next_V[token])
    texts: dict[Text, float] = {(): 0.0}
    for _ in range(longest + 1):
        texts = {
            (*text, token): chance * float(p.rows[text][token]) + emitted[*text, token]
            for text, chance in texts.items()
            for token in range(num_words)
        }
    return Outcome(texts, num_accepted)


def all_drafts(q: Model, length: int, ends: Callable[[Text], bool] = lambda text: False) -> list[Text]:
    """Every draft that can be drawn; one goes on to `length` unless `ends` says so of its tokens until there."""
    found: list[Text] = [()]
    for _ in range(length):
        found = [
            (*draft, token) if is_going else draft
            for draft in found
            for is_going in [not ends(draft)]
            for token in (np.flatnonzero(q.rows[draft]).tolist() if is_going else [0])
        ]
    return found


def error(outcome: Outcome, p: Model) -> float:
    """Total variation between what is emitted and what the target writes."""
    return sum(abs(chance - p.chance(text)) for text, chance in outcome.texts.items()) / 2


def twice(model: Model) -> tuple[Model, Model]:
    return model, model


MODELS: dict[str, Callable[[np.random.Generator, int, int], tuple[Model, Model]]] = {
    "any p and q": lambda g, v, k: (random_model(g, v, k), random_model(g, v, k)),
    "p and q with zeros": lambda g, v, k: (random_model(g, v, k, zeros=0.4), random_model(g, v, k, zeros=0.4)),
    "p with zeros": lambda g, v, k: (random_model(g, v, k, zeros=0.5), random_model(g, v, k)),
    "q with zeros": lambda g, v, k: (random_model(g, v, k), random_model(g, v, k, zeros=0.5)),
    "q equals p": lambda g, v, k: twice(random_model(g, v, k)),
    "certain drafts": lambda g, v, k: (random_model(g, v, k, zeros=0.2), certain_model(g, v, k)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", MODELS)
def test_the_emitted_text_has_the_targets_distribution(rule: Rule, kind: str) -> None:
    generator = np.random.default_rng(sum(map(ord, kind)))
    for num_words, length in ((2, 3), (3, 2), (3, 3), (4, 1), (4, 2)):
        p, q = MODELS[kind](generator, num_words, length)
        for is_certain in {False, kind == "certain drafts"}:
            outcome = one_round(partial(decide, rule), p, q, all_drafts(q, length), is_certain=is_certain)
            assert error(outcome, p) < 1e-12
            assert sum(outcome.texts.values()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_the_largest_case_of_four_words_and_three_tokens_is_exact(rule: Rule) -> None:
    generator = np.random.default_rng(4)
    p, q = random_model(generator, 4, 3, zeros=0.1), random_model(generator, 4, 3, zeros=0.1)
    assert error(one_round(partial(decide, rule), p, q, all_drafts(q, 3)), p) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_draft_may_end_wherever_its_own_tokens_until_there_decide(rule: Rule) -> None:
    generator = np.random.default_rng(5)
    for word in range(3):
        p, q = random_model(generator, 3, 3), random_model(generator, 3, 3)
        drafts = all_drafts(q, 3, lambda text, word=word: text[-1:] == (word,))  # type: ignore[misc]
        assert {len(draft) for draft in drafts} == {1, 2, 3}
        assert error(one_round(partial(decide, rule), p, q, drafts), p) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_cut_that_depends_on_the_token_that_it_cuts_is_seen(rule: Rule) -> None:
    generator = np.random.default_rng(6)
    p, q = random_model(generator, 3, 2), random_model(generator, 3, 2)
    whole = all_drafts(q, 2)

    def cut(trial: Trial) -> Decision:
        """Drop the last token where it is word 0."""
        if trial.token_ids[-1] != 0:
            return decide(rule, trial)
        shorter = Trial(
            token_ids=trial.token_ids[:-1], target=trial.target, drawn_from=trial.drawn_from, uniform=trial.uniform
        )
        return decide(rule, shorter)

    assert error(one_round(cut, p, q, whole), p) > 1e-3


def naive(trial: Trial) -> Decision:
    """Wrong: tokens are kept as they should, but the recovered one is drawn from p instead of what q left of it."""
    return Decision(num_accepted=decide("rejection", trial).num_accepted)


def half_block(trial: Trial) -> Decision:
    """Wrong: blocks are kept as they should, but recovered from the residual of single tokens."""
    decision = decide("block", trial)
    if decision.residual_V is None:
        return decision
    p_V, q_V = trial.target(decision.num_accepted), trial.drawn_from(decision.num_accepted)
    assert p_V is not None and q_V is not None
    residual_V = np.maximum(p_V - q_V, 0.0)
    return Decision(num_accepted=decision.num_accepted, residual_V=residual_V if residual_V.any() else None)


@pytest.mark.parametrize("wrong", [naive, half_block])
def test_the_enumeration_sees_a_wrong_rule(wrong: Decide) -> None:
    generator = np.random.default_rng(7)
    models = [(random_model(generator, 3, 3), random_model(generator, 3, 3)) for _ in range(3)]
    assert max(error(one_round(wrong, p, q, all_drafts(q, 3)), p) for p, q in models) > 5e-3


def test_blocks_keep_no_fewer_tokens_than_single_ones_and_neither_keeps_more_than_can_be() -> None:
    generator = np.random.default_rng(8)
    gains = []
    for _ in range(12):
        p, q = random_model(generator, 3, 3, zeros=0.1), random_model(generator, 3, 3, zeros=0.1)
        drafts = all_drafts(q, 3)
        single, block = (one_round(partial(decide, rule), p, q, drafts).num_accepted for rule in RULES)
        texts = [text for text in p.rows if text]
        most = sum(min(p.chance(text), q.chance(text)) for text in texts)
        assert single <= block + 1e-12 <= most + 2e-12
        gains.append(block - single)
    assert max(gains) > 0.01


def test_the_papers_example_keeps_ten_ninths_by_token_and_eleven_ninths_by_block() -> None:
    """Sun et al., section 2: two words, chances 1/3 and 2/3 in the target, the other way round in the draft."""
    texts = [text for n in range(3) for text in product(range(2), repeat=n)]
    p = Model({text: np.array([1 / 3, 2 / 3]) for text in texts})
    q = Model({text: np.array([2 / 3, 1 / 3]) for text in texts})
    single, block = (one_round(partial(decide, rule), p, q, all_drafts(q, 2)).num_accepted for rule in RULES)
    assert single == pytest.approx(10 / 9)
    assert block == pytest.approx(11 / 9)


@pytest.mark.parametrize("rule", RULES)
def test_with_q_equal_to_p_everything_is_kept(rule: Rule) -> None:
    p = random_model(np.random.default_rng(9), 4, 2, zeros=0.3)
    assert one_round(partial(decide, rule), p, p, all_drafts(p, 2)).num_accepted == pytest.approx(2.0)


@pytest.mark.parametrize("rule", RULES)
def test_all_of_p_on_one_token_keeps_what_equals_it_and_recovers_it(rule: Rule) -> None:
    generator = np.random.default_rng(10)
    p = certain_model(generator, 4, 2)
    outcome = one_round(partial(decide, rule), p, random_model(generator, 4, 2), all_drafts(p, 2))
    for trial_text, chance in outcome.texts.items():
        assert chance == 0.0 or p.chance(trial_text) == 1.0


@pytest.mark.parametrize("rule", RULES)
def test_a_draft_ends_at_a_row_without_a_distribution(rule: Rule) -> None:
    p_V, q_V = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    trial = Trial(
        token_ids=(0, 0, 0),
        target=lambda i: p_V if i < 1 else None,
        drawn_from=lambda i: q_V,
        uniform=lambda i: 0.4,
    )
    decision = decide(rule, trial)
    assert (decision.num_accepted, decision.residual_V) == (1, None)
    nothing = Trial(token_ids=(0,), target=lambda i: None, drawn_from=lambda i: q_V, uniform=lambda i: 0.4)
    assert decide(rule, nothing).num_accepted == 0


@pytest.mark.parametrize("rule", RULES)
def test_a_token_that_the_target_never_draws_is_not_kept_whatever_its_drafter_says(rule: Rule) -> None:
    p_V, q_V = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    trial = Trial(token_ids=(0,), target=lambda i: p_V, drawn_from=lambda i: q_V, uniform=lambda i: 1e-9)
    decision = decide(rule, trial)
    assert decision.num_accepted == 0
    assert decision.residual_V is None
