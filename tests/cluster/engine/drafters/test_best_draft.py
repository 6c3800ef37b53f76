"""Of any number of drafters the best draft is taken, as far as the sequence's grammar allows it."""

from collections.abc import Mapping

import pytest

from cluster.clock import ManualClock
from cluster.engine.drafters.base import Draft, Drafter, Wanted
from cluster.engine.drafters.best_draft import BestDraft, Promise, beside_grammar
from cluster.engine.drafters.collect import Drafting, DraftLimits
from cluster.engine.drafters.grammar import CONFIDENCE, MAX_FORCED_TOKENS, GrammarDrafter
from cluster.engine.sequence import Sequence
from cluster.grammar.source import choice_grammar
from tests.cluster.engine.drafters.test_guard import FixedDrafter, decoding
from tests.cluster.grammar.grammar_toys import LIMITS, compiler
from tests.tiny import EOS_TOKEN_ID, build_tokenizer

TOKENIZER = build_tokenizer()


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


def under(text: str, *others: str, **speculation: object) -> Sequence:
    sequence = decoding("a", **speculation)
    sequence.grammar = compiler().matcher(choice_grammar([text, *others], LIMITS))
    return sequence


def propose(sequence: Sequence, *drafters: tuple[Drafter, Promise | None], max_tokens: int = 8) -> Mapping[str, Draft]:
    return BestDraft(*drafters).propose([Wanted(sequence=sequence, max_tokens=max_tokens)])


def test_any_number_of_drafters_compete_and_dear_ones_are_asked_last_and_only_where_they_promise_more() -> None:
    dear = FixedDrafter("dear", (3, 3, 3, 3), confidences=(0.9,) * 4)
    cheap = (FixedDrafter("one", (1,)), None), (FixedDrafter("two", (2, 2), confidences=(0.9, 0.9)), None)
    assert propose(decoding("a"), *cheap, (dear, lambda want: 1.5))["a"].source == "two"
    assert dear.seen("propose") == []
    assert propose(decoding("a"), *cheap, (dear, lambda want: 3.0))["a"].source == "dear"


def test_a_draft_is_cut_where_the_grammar_refuses_it_before_it_is_compared() -> None:
    right, wrong = encode("abc"), encode("z")
    long = FixedDrafter("long", (right[0], *wrong * 5), confidences=(0.9,) * 6)
    short = FixedDrafter("short", right[:2], confidences=(0.9, 0.9))
    found = propose(under("abc", "abd"), (long, None), (short, None))["a"]
    assert (found.source, found.token_ids, found.confidences) == ("short", right[:2], (0.9, 0.9))
    assert propose(under("abc"), (long, None))["a"].token_ids == right[:1]
    assert propose(under("xyz"), (long, None)) == {}


def test_forced_tokens_come_with_confidences_near_one_and_the_end() -> None:
    text = encode("the only text")
    draft = propose(under("the only text"), (GrammarDrafter(), None), max_tokens=20)["a"]
    assert draft == Draft(
        token_ids=(*text, EOS_TOKEN_ID), source="grammar", confidences=(CONFIDENCE,) * (len(text) + 1), is_forced=True
    )
    assert propose(decoding("a"), (GrammarDrafter(), None)) == {}


@pytest.mark.parametrize(
    ("speculation", "longest"), [({}, MAX_FORCED_TOKENS), ({"num_speculative_tokens": 3}, 3), ({"drafter": "off"}, 0)]
)
def test_forced_drafts_may_be_longer_than_the_engines_limit_but_not_than_the_requests(
    speculation: dict[str, object], longest: int
) -> None:
    sequence = under("one long text that nothing at all can change", **speculation)
    drafting = Drafting(GrammarDrafter(), DraftLimits(num_speculative_tokens=4, vocab_size=512), ManualClock())
    drafts = drafting.propose([sequence])
    assert len(drafts.get("a", ())) == min(longest, sequence.request.sampling.max_tokens - 1)


def test_the_grammar_stands_beside_every_drafter_once() -> None:
    assert beside_grammar(FixedDrafter("any")).names == ("grammar", "any")
    both = BestDraft((FixedDrafter("x"), None), (FixedDrafter("y"), lambda want: 1.0))
    assert beside_grammar(both).names == ("grammar", "x", "y")
    assert beside_grammar(GrammarDrafter()).names == ("grammar",)
    assert beside_grammar(beside_grammar(both)).names == ("grammar", "x", "y")
