"""What clients write becomes a grammar that means the same, or is refused with a reason."""

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import GrammarError, InvalidRequestError
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import (
    MAX_RULES,
    choice_grammar,
    ebnf_grammar,
    json_object_grammar,
    json_schema_grammar,
    regex_grammar,
)
from tests.cluster.grammar.grammar_toys import LIMITS, compiler, random_text
from tests.tiny import EOS_TOKEN_ID, build_tokenizer

TOKENIZER = build_tokenizer()
GBNF = """
# a list of pairs
root ::= pair ("," ws pair)*
pair ::= [a-c]+ ws "=" ws [0-9]{1,3}
ws ::= " "?
"""
LARK = 'start: pair ("," WS pair)*\npair: /[a-c]+/ WS "=" WS /[0-9]{1,3}/\nWS: " "?\n'

few = settings(max_examples=60, deadline=None, derandomize=True)


def follows(grammar: str, text: str) -> bool:
    """True when the whole text, and then the end, may be emitted."""
    token_ids = [*TOKENIZER.encode(text, add_special_tokens=False), EOS_TOKEN_ID]
    return compiler().matcher(grammar).valid_prefix(token_ids) == len(token_ids)


scalars = st.sampled_from(
    [
        {"type": "string", "maxLength": 6},
        {"type": "string", "pattern": "^[a-f]{2,4}$"},
        {"type": "string", "format": "date"},
        {"type": "integer"},
        {"type": "integer", "minimum": -5, "maximum": 1200},
        {"type": "number", "minimum": 0.5, "exclusiveMaximum": 30},
        {"type": ["boolean", "null"]},
        {"enum": ["red", 7, None, {"deep": [1, 2]}]},
        {"const": "fixed"},
    ]
)


def larger(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from(["name", "age", "größe", 'a "b"', "x/y"]), unique=True, max_size=3)
    objects = st.builds(
        lambda names, parts, num: {
            "type": "object",
            "properties": dict(zip(names, parts, strict=False)),
            "required": names[:num],
            "additionalProperties": False,
        },
        names,
        st.lists(inner, min_size=3, max_size=3),
        st.integers(0, 3),
    )
    arrays = st.builds(
        lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more},
        inner,
        st.integers(0, 2),
        st.integers(0, 2),
    )
    return st.one_of(objects, arrays, st.lists(inner, min_size=1, max_size=3).map(lambda any_of: {"anyOf": any_of}))


schemas = st.recursive(scalars, larger, max_leaves=5)


@few
@given(schema=schemas, seed=st.integers(0, 1000))
def test_every_finished_text_of_a_random_schema_is_valid_json_in_the_fixed_style(
    schema: dict[str, Any], seed: int
) -> None:
    matcher = compiler().matcher(json_schema_grammar(schema, LIMITS))
    token_ids = random_text(matcher, seed, 400)
    if matcher.is_ended:
        text = str(TOKENIZER.decode(token_ids[:-1]))
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t"\\\x01'), max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner) | st.dictionaries(words, inner),
    max_leaves=6,
)
any_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@few
@given(value=values)
def test_any_value_as_json_dumps_writes_it_follows_the_schema_that_allows_all(value: object) -> None:
    assert follows(json_schema_grammar(True, LIMITS), json.dumps(value, ensure_ascii=False))


def test_a_json_object_is_an_object_and_nothing_else() -> None:
    grammar = json_object_grammar(LIMITS)
    assert follows(grammar, '{"a": [1, {"b": null}], "c": "d"}')
    for text in ("[1]", '"a"', "7", '{"a": 1', '{"a" : 1}', '{"a":1}', ' {"a": 1}'):
        assert not follows(grammar, text), text


def test_the_style_is_fixed_whatever_the_schema_says() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "x-guidance": {"whitespace_flexible": True}}
    grammar = json_schema_grammar(schema, LIMITS)
    assert follows(grammar, '{"a": 1}')
    assert not follows(grammar, '{ "a":1}')
    assert schema["x-guidance"] == {"whitespace_flexible": True}


@pytest.mark.parametrize(
    ("pattern", "texts", "others"),
    [
        (r"[a-c]+\d{2}", ["abc12", "a00"], ["12", "abc1", "abc123"]),
        (r"^ab?$", ["a", "ab"], ["", "abb", "b"]),
        (r"a|^b$", ["a", "b"], ["ab"]),
        (r"a\$", ["a$"], ["a"]),
        (r'a/b"c\\d', ['a/b"c\\d'], ["a/b"]),
        ("x\ny", ["x\ny"], ["xy"]),
        (r"(?:yes|no), ja?", ["yes, ja", "no, j"], ["yes", "yes,"]),
    ],
)
def test_a_pattern_matches_from_its_beginning_to_its_end(pattern: str, texts: list[str], others: list[str]) -> None:
    grammar = regex_grammar(pattern, LIMITS)
    assert all(re.fullmatch(pattern, text) for text in texts)
    assert all(follows(grammar, text) for text in texts)
    assert not any(follows(grammar, text) for text in others)


@pytest.mark.parametrize("grammar", [GBNF, LARK, GBNF.replace("root", "start").replace("start ::=", "root ::=")])
def test_gbnf_and_lark_say_the_same(grammar: str) -> None:
    serialised = ebnf_grammar(grammar, LIMITS)
    for text in ("ab=1", "a = 12, b=3,c=456"):
        assert follows(serialised, text), text
    for text in ("", "ab", "d=1", "a=1234", "a=1,", "a=1, b"):
        assert not follows(serialised, text), text


@few
@given(choices=st.lists(any_texts, min_size=1, max_size=6))
def test_exactly_the_choices_may_be_chosen_whatever_they_hold(choices: list[str]) -> None:
    grammar = choice_grammar(choices, LIMITS)
    for choice in choices:
        assert follows(grammar, choice), choice
        assert follows(grammar, choice + "~") == (choice + "~" in choices)


REFUSED: dict[str, tuple[Callable[[GrammarLimits], str], str]] = {
    "no schema": (lambda limits: json_schema_grammar(False, limits), "allows nothing"),
    "not JSON": (lambda limits: json_schema_grammar({"const": {1}}, limits), "no JSON"),
    "not a number": (lambda limits: json_schema_grammar({"maximum": float("nan")}, limits), "no JSON"),
    "large schema": (lambda limits: json_schema_grammar({"enum": ["x" * 999] * 70}, limits), "at most 65536"),
    "no pattern": (lambda limits: regex_grammar("", limits), "empty"),
    "large pattern": (lambda limits: regex_grammar("é" * 33_000, limits), "66000 bytes"),
    "deep pattern": (lambda limits: regex_grammar("(" * 65 + "a" + ")" * 65, limits), "64 open brackets"),
    "half a character": (lambda limits: regex_grammar("a\ud800", limits), "surrogate pair at character 1"),
    "neither": (lambda limits: ebnf_grammar("hello there", limits), "neither Lark nor GBNF"),
    "no such rule": (lambda limits: ebnf_grammar("root ::= other", limits), "other"),
    "deep grammar": (lambda limits: ebnf_grammar("start: " + "(" * 65, limits), "64 open brackets"),
    "many rules": (lambda limits: ebnf_grammar('root ::= "a"\n' * (MAX_RULES + 1), limits), "257 rules"),
    "many references": (
        lambda limits: json_schema_grammar({"anyOf": [{"$ref": "#/$defs/a"}] * 257, "$defs": {"a": {}}}, limits),
        "257 references",
    ),
    "many patterns": (
        lambda limits: json_schema_grammar({"patternProperties": {f"^{i}": {} for i in range(33)}}, limits),
        "33 patternProperties",
    ),
    "deep references": (
        lambda limits: json_schema_grammar(
            {
                "$defs": {
                    f"a{i}": json.loads('{"anyOf":[' * 16 + '{"$ref":"#/$defs/a0"}' + "]}" * 16) for i in range(200)
                }
            },
            limits,
        ),
        "200 references nested up to 36 levels",
    ),
    "deep rules": (
        lambda limits: ebnf_grammar("start: a\n" + f"a: {'(' * 30}a{')' * 30}\n" * 200, limits),
        "201 rules nested up to 30",
    ),
    "many repeats": (lambda limits: regex_grammar("a?" * 2001, limits), "repeats 2001 parts"),
    "repeats in a schema": (lambda limits: json_schema_grammar({"pattern": "a*" * 2001}, limits), "repeats 2001 parts"),
    "no choice": (lambda limits: choice_grammar([], limits), "nothing to choose"),
    "empty choice": (lambda limits: choice_grammar(["a", ""], limits), "must not be empty"),
    "many choices": (lambda limits: choice_grammar(["a"] * 1001, limits), "1001 choices"),
    "large choices": (lambda limits: choice_grammar(["a" * 66_000], limits), "at most 65536"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_too_large_or_means_nothing_is_refused_with_a_reason(case: str) -> None:
    make, reason = REFUSED[case]
    with pytest.raises(GrammarError, match=reason) as caught:
        make(LIMITS)
    assert isinstance(caught.value, InvalidRequestError) and caught.value.status == 400


def test_a_schema_of_any_depth_is_refused_without_recursion() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(20_000):
        schema = {"items": schema}
    with pytest.raises(GrammarError, match="nested deeper than 64"):
        json_schema_grammar(schema, LIMITS)


def test_a_schema_at_the_limit_of_depth_compiles() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(31):
        schema = {"type": "array", "items": schema}
    compiler().check(json_schema_grammar(schema, GrammarLimits(max_depth=32)))
    with pytest.raises(GrammarError, match="deeper than 31"):
        json_schema_grammar(schema, GrammarLimits(max_depth=31))
