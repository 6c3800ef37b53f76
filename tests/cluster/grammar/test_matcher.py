"""What may come next is what the grammar says, and depends on nothing but the tokens before."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.matcher import GrammarMatcher, GrammarStateError
from cluster.grammar.source import choice_grammar, ebnf_grammar, json_schema_grammar, regex_grammar
from tests.cluster.grammar.grammar_toys import END_ID, LIMITS, PIECES, allowed_ids, compiler, is_same, toy_compiler
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE, build_tokenizer

TOY_COLUMNS = len(PIECES) + 40
TOKENIZER = build_tokenizer()
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "catfish"]}, "ok": {"const": True}, "name": {"type": "string"}},
    "required": ["kind", "ok", "name"],
    "additionalProperties": False,
}
GRAMMARS = {
    "schema": json_schema_grammar(SCHEMA, LIMITS),
    "regex": regex_grammar(r"(ab|a)*c{2,4}( de)?", LIMITS),
    "choice": choice_grammar(["abc", "abcde", "abd", "eee eee"], LIMITS),
    "recursive": ebnf_grammar('root ::= "a" root "b" | "c"', LIMITS),
}
short_texts = st.text("abcde,:", min_size=1, max_size=7)
few = settings(max_examples=40, deadline=None, derandomize=True)


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False)
    return ids


def can_go_on(text: str, choices: list[str]) -> bool:
    return any(choice.startswith(text) for choice in choices)


@few
@given(choices=st.lists(short_texts, min_size=1, max_size=5, unique=True), data=st.data())
def test_a_mask_is_what_a_search_of_all_tokens_finds(choices: list[str], data: st.DataObject) -> None:
    matcher = toy_compiler().matcher(choice_grammar(choices, LIMITS))
    text = ""
    while not matcher.is_ended:
        found = {v for v, piece in enumerate(PIECES) if can_go_on(text + piece, choices)}
        found |= {END_ID} if text in choices else set()
        allowed = allowed_ids(matcher, vocab_size=TOY_COLUMNS)
        # Where only one text can follow, the tokenizer's own way to spell it is the only one.
        is_forced = len({choice[len(text)] for choice in choices if choice.startswith(text) and choice != text}) == 1
        if is_forced and text not in choices:
            assert allowed <= found and allowed
        else:
            assert allowed == found
        token_id = data.draw(st.sampled_from(sorted(allowed)))
        assert matcher.accept(token_id)
        text += PIECES[token_id] if token_id < len(PIECES) else ""
    assert text in choices


@pytest.mark.parametrize("pattern", [r"(ab|a)*c{2,4}(,de)?", r"[a-e]{2}(,[a-e]{2})*", r"(a,b)+:?"])
def test_a_mask_is_what_feeding_each_token_to_a_fresh_matcher_finds(pattern: str) -> None:
    # Without forcing, every way to spell a text is allowed.
    source = f'%llguidance {{ "no_forcing": true }}\nstart: TEXT\nTEXT: /{pattern}/\n'
    grammar = ebnf_grammar(source, LIMITS)
    generator = np.random.default_rng(0)
    for _ in range(6):
        done: list[int] = []
        while len(done) < 8 and END_ID not in done:
            matcher = toy_compiler().matcher(grammar)
            assert all(matcher.accept(token_id) for token_id in done)
            allowed = allowed_ids(matcher, vocab_size=TOY_COLUMNS)
            fed = set()
            for token_id in range(TOY_COLUMNS):
                fresh = toy_compiler().matcher(grammar)
                assert all(fresh.accept(each) for each in done)
                fed |= {token_id} if fresh.accept(token_id) else set()
            assert allowed == fed
            text = "".join(PIECES[token_id] for token_id in done)
            assert (END_ID in allowed) == bool(re.fullmatch(pattern, text))
            done.append(int(generator.choice(sorted(allowed))))


@pytest.mark.parametrize("name", GRAMMARS)
@few
@given(data=st.data())
def test_no_question_changes_what_may_come_next(name: str, data: st.DataObject) -> None:
    """One matcher is asked everything in any order; its masks must be those of fresh ones that were only fed tokens."""
    matcher, done = compiler().matcher(GRAMMARS[name]), list[int]()
    noise = st.lists(st.integers(0, VOCAB_SIZE - 1) | st.sampled_from([-1, 1 << 40, EOS_TOKEN_ID]), max_size=4)
    for _ in range(data.draw(st.integers(1, 12))):
        ahead: list[int] = []
        for _ in range(data.draw(st.integers(0, 3))):
            if EOS_TOKEN_ID in ahead:
                break
            ahead.append(data.draw(st.sampled_from(sorted(allowed_ids(matcher, tuple(ahead))))))
        drafts = [*ahead, *data.draw(noise)]
        count = matcher.valid_prefix(drafts)
        assert count >= len(ahead)
        forced = matcher.forced_tokens(data.draw(st.integers(1, 8)))
        assert matcher.valid_prefix(forced) == len(forced)
        fresh = fed(name, [*done, *drafts[: count - (EOS_TOKEN_ID in drafts[:count])]])
        if EOS_TOKEN_ID not in drafts[:count]:
            assert is_same(matcher.allowed(drafts[:count]), fresh.allowed())
        next_id = ahead[0] if ahead else data.draw(st.sampled_from(sorted(allowed_ids(matcher))))
        assert matcher.accept(next_id)
        done.append(next_id)
        if matcher.is_ended:
            assert allowed_ids(matcher) == {EOS_TOKEN_ID} and matcher.valid_prefix([EOS_TOKEN_ID]) == 0
            return
        assert is_same(matcher.allowed(), fed(name, done).allowed())


def fed(name: str, token_ids: list[int]) -> GrammarMatcher:
    fresh = compiler().matcher(GRAMMARS[name])
    assert all(fresh.accept(token_id) for token_id in token_ids)
    return fresh


def test_forced_tokens_are_the_only_ones_allowed_one_after_the_other() -> None:
    matcher = compiler().matcher(GRAMMARS["schema"])
    text, num_forced = list[int](), 0
    rest = encode('"catfish", "ok": true, "name": "Bo"}')
    goal = [*encode('{"kind": "catfish", "ok": true, "name": "Bo"}'), EOS_TOKEN_ID]
    while not matcher.is_ended:
        forced = matcher.forced_tokens(16)
        for index in range(len(forced)):
            assert allowed_ids(matcher, forced[:index]) == {forced[index]}
        num_forced += bool(forced)
        matcher.accept(goal[len(text)])
        text.append(goal[len(text)])
    assert num_forced > len(goal) / 3 and rest


def test_a_finished_grammar_forces_the_end() -> None:
    matcher = compiler().matcher(choice_grammar(["abc"], LIMITS))
    assert matcher.forced_tokens(16) == (*encode("abc"), EOS_TOKEN_ID)
    assert matcher.forced_tokens(2) == tuple(encode("abc")[:2])
    assert not matcher.is_finished
    assert all(matcher.accept(token_id) for token_id in encode("abc"))
    assert matcher.is_finished and not matcher.is_ended
    assert matcher.forced_tokens(16) == (EOS_TOKEN_ID,)
    assert matcher.accept(EOS_TOKEN_ID) and matcher.is_ended
    assert matcher.forced_tokens(16) == () and not matcher.accept(encode("a")[0])


def test_drafts_behind_the_end_are_refused_and_leave_the_matcher_untouched() -> None:
    matcher = compiler().matcher(choice_grammar(["abc", "xyz"], LIMITS))
    drafts = [*encode("abc"), EOS_TOKEN_ID]
    assert matcher.valid_prefix([*drafts, *encode("abc"), EOS_TOKEN_ID]) == len(drafts)
    assert matcher.valid_prefix([EOS_TOKEN_ID]) == 0
    assert matcher.valid_prefix([*encode("xyz"), EOS_TOKEN_ID]) == len(encode("xyz")) + 1
    assert all(matcher.accept(token_id) for token_id in drafts)


def test_a_refused_token_is_an_error_that_stays() -> None:
    matcher = compiler().matcher(choice_grammar(["abc"], LIMITS))
    assert not matcher.accept(encode("z")[0])
    assert "does not follow" in matcher.error
    assert not matcher.accept(encode("abc")[0]) and matcher.valid_prefix(encode("abc")) == 0
    assert matcher.forced_tokens(4) == () and not matcher.is_finished
    with pytest.raises(GrammarStateError, match="does not follow"):
        matcher.allowed()


def test_a_mask_behind_refused_drafts_is_an_error_that_passes() -> None:
    matcher = compiler().matcher(choice_grammar(["abc"], LIMITS))
    with pytest.raises(GrammarStateError):
        matcher.allowed(encode("z"))
    assert matcher.error == "" and matcher.accept(encode("abc")[0])


def test_more_work_than_allowed_is_an_error_of_the_choice() -> None:
    strict = GrammarCompiler(TOKENIZER, VOCAB_SIZE, frozenset([EOS_TOKEN_ID]), GrammarLimits(step_items=100))
    matcher = strict.matcher(ebnf_grammar('start: e\ne: e e | e e e | "a"', LIMITS))
    (a,) = encode("a")
    results = [matcher.accept(a) and _is_allowed(matcher) for _ in range(60)]
    assert results[0] and not results[-1]
    assert matcher.error and matcher.forced_tokens(4) == ()


def test_a_lexer_with_too_many_states_ends_choices_and_is_built_anew_for_those_who_come() -> None:
    strict = GrammarCompiler(TOKENIZER, VOCAB_SIZE, frozenset([EOS_TOKEN_ID]), GrammarLimits(max_lexer_states=150))
    grammar = ebnf_grammar("start: LONG | SHORT\nLONG: /(a|b)*a(a|b){40}/\nSHORT: /cd*/\n", LIMITS)
    (a,), (b,), (c,), (d,) = encode("a"), encode("b"), encode("c"), encode("d")
    generator = np.random.default_rng(0)
    costly = [int(token_id) for token_id in generator.choice([a, b], 300)]
    matcher = strict.matcher(grammar)
    assert matcher.valid_prefix(costly) == 0 and matcher.forced_tokens(4) == ()
    assert not matcher.accept(a) and "too many states" in matcher.error
    assert not strict.knows(grammar)
    later = strict.matcher(grammar)
    assert all(later.accept(token_id) for token_id in (c, d, d))


def _is_allowed(matcher: GrammarMatcher) -> bool:
    try:
        return bool(matcher.allowed().any())
    except GrammarStateError:
        return False


@pytest.mark.parametrize("ends", [(), (0, EOS_TOKEN_ID)])
def test_a_model_without_an_end_and_one_with_two(ends: tuple[int, ...]) -> None:
    other = GrammarCompiler(TOKENIZER, VOCAB_SIZE, frozenset(ends), LIMITS)
    matcher = other.matcher(choice_grammar(["abc"], LIMITS))
    assert matcher.forced_tokens(16) == tuple(encode("abc"))
    assert not matcher.is_complete
    assert all(matcher.accept(token_id) for token_id in encode("abc"))
    assert matcher.is_complete == (not ends) and matcher.is_finished
    if ends:
        assert allowed_ids(matcher) == set(ends)
        assert matcher.accept(0) and matcher.is_ended
    else:
        with pytest.raises(GrammarStateError, match="complete"):
            matcher.allowed()


@pytest.mark.parametrize("pattern", ["[a-z]*", "(a|b)+"])
def test_no_special_token_but_the_end_is_ever_allowed(pattern: Any) -> None:
    matcher = compiler().matcher(regex_grammar(pattern, LIMITS))
    for token_id in encode("ab"):
        assert not {0, 1} & allowed_ids(matcher)
        matcher.accept(token_id)
    assert {0, 1, EOS_TOKEN_ID} & allowed_ids(matcher) == {EOS_TOKEN_ID}


def test_a_dead_end_behind_drafts_is_an_error_of_theirs_and_one_behind_committed_tokens_of_the_choice() -> None:
    """No piece of the vocabulary spells what must follow the branch `a`."""
    a, b, c = (PIECES.index(piece) for piece in "abc")
    matcher = toy_compiler().matcher(choice_grammar(["eab", "ea9", "ecc9"], LIMITS))
    assert matcher.accept(PIECES.index("e"))
    for _ in range(2):
        with pytest.raises(GrammarStateError):
            matcher.allowed((c, c))
        assert matcher.error == "" and a in allowed_ids(matcher, vocab_size=TOY_COLUMNS)
    assert allowed_ids(matcher, (a,), vocab_size=TOY_COLUMNS) >= {b}
    with pytest.raises(GrammarStateError):
        matcher.allowed((c, c))
    assert matcher.accept(c) and matcher.error == ""
    assert matcher.accept(c) and matcher.error
    with pytest.raises(GrammarStateError):
        matcher.allowed()
