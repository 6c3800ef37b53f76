"""Grammars are compiled within limits, remembered, and copied for each choice."""

import subprocess
import sys
import threading

import pytest
from tokenizers import Tokenizer

from cluster.errors import GrammarError
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import choice_grammar, ebnf_grammar, json_schema_grammar, regex_grammar
from tests.cluster.grammar.grammar_toys import LIMITS, allowed_ids, compiler
from tests.tiny import EOS_TOKEN_ID, VOCAB_SIZE, build_tokenizer

EOS = frozenset([EOS_TOKEN_ID])


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (json_schema_grammar({"type": "nothing"}, LIMITS), "nothing"),
        (json_schema_grammar({"oneOf": [{"type": "integer"}, {"type": "number"}]}, LIMITS), "oneOf"),
        (json_schema_grammar({"allOf": [{"$ref": "#"}, {"type": "object"}]}, LIMITS), "circular"),
        (json_schema_grammar({"$ref": "#"}, LIMITS), "no text"),
        (json_schema_grammar({"$ref": "https://example.com/schema"}, LIMITS), "example.com"),
        (json_schema_grammar({"type": "string", "format": "wonderful"}, LIMITS), "wonderful"),
        (json_schema_grammar({"type": "integer", "minimum": 3, "maximum": 2}, LIMITS), "minimum"),
        (regex_grammar("(a", LIMITS), "unclosed"),
        (regex_grammar("(?=a)b", LIMITS), "look-around"),
        (ebnf_grammar("start: missing", LIMITS), "missing"),
        (ebnf_grammar('start: "a" "b', LIMITS), "lexer error"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_compilers_reason(grammar: str, reason: str) -> None:
    with pytest.raises(GrammarError, match=f"(?i){reason}") as caught:
        compiler().check(grammar)
    assert len(caught.value.message) <= 400


def test_a_grammar_beyond_the_limits_of_work_is_refused() -> None:
    many = {
        "type": "object",
        "properties": {f"p{i}": {"type": "array", "items": {"type": "integer"}} for i in range(60)},
    }
    grammar = json_schema_grammar(many, LIMITS)
    compiler().check(grammar)
    for limits in (GrammarLimits(max_symbols=100), GrammarLimits(compile_fuel=1000)):
        with pytest.raises(GrammarError):
            GrammarCompiler(build_tokenizer(), VOCAB_SIZE, EOS, limits).check(grammar)


def test_matchers_of_one_grammar_do_not_see_each_other() -> None:
    grammar = choice_grammar(["left", "right"], LIMITS)
    first, second = compiler().matcher(grammar), compiler().matcher(grammar)
    before = allowed_ids(second)
    left = build_tokenizer().encode("left", add_special_tokens=False)
    assert all(first.accept(token_id) for token_id in left)
    assert allowed_ids(first) == {EOS_TOKEN_ID}
    assert allowed_ids(second) == before != {EOS_TOKEN_ID}


def test_the_last_grammars_are_remembered_and_no_more() -> None:
    small = GrammarCompiler(build_tokenizer(), VOCAB_SIZE, EOS, GrammarLimits(max_compiled=2))
    grammars = [choice_grammar([text], LIMITS) for text in "abc"]
    for grammar in grammars:
        small.check(grammar)
    assert [small.knows(grammar) for grammar in grammars] == [False, True, True]
    small.matcher(grammars[1])
    small.check(grammars[0])
    assert [small.knows(grammar) for grammar in grammars] == [True, True, False]


def test_many_threads_may_compile_and_copy_at_once() -> None:
    shared = GrammarCompiler(build_tokenizer(), VOCAB_SIZE, EOS, GrammarLimits(max_compiled=3))
    grammars = [regex_grammar(f"[a-z]{{{n}}}!", LIMITS) for n in range(1, 7)]
    results: list[int] = []

    def work() -> None:
        for index in range(12):
            matcher = shared.matcher(grammars[index % len(grammars)])
            results.append(matcher.valid_prefix(build_tokenizer().encode("z", add_special_tokens=False)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 48


def test_a_tokenizer_without_a_fast_form_is_a_reason_not_a_crash() -> None:
    slow = GrammarCompiler(object(), VOCAB_SIZE, EOS)
    slow.warm_up()
    with pytest.raises(GrammarError, match="no fast form"):
        slow.check(choice_grammar(["a"], LIMITS))


def test_how_a_tokenizer_cuts_and_pads_prompts_does_not_matter() -> None:
    tokenizer = build_tokenizer()
    backend: Tokenizer = tokenizer.backend_tokenizer
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    cut = GrammarCompiler(tokenizer, VOCAB_SIZE, EOS)
    text = "forced text of many tokens"
    forced = cut.matcher(choice_grammar([text], LIMITS)).forced_tokens(64)
    assert build_tokenizer().decode(list(forced[:-1])) == text and forced[-1] == EOS_TOKEN_ID
    assert backend.truncation is not None


@pytest.mark.slow
def test_the_deepest_grammars_that_pass_do_not_end_the_process() -> None:
    """In a process of its own: at the end of a stack it would die without a word."""
    done = subprocess.run([sys.executable, "-c", _DEEPEST], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["references", "rules", "terminals"]), done.stderr


_DEEPEST = """
import threading
from types import SimpleNamespace
from tokenizers import Tokenizer, decoders, models
from cluster.grammar.compiler import GrammarCompiler
from cluster.grammar.limits import GrammarLimits
from cluster.grammar.source import ebnf_grammar, json_schema_grammar

limits = GrammarLimits()
raw = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate("abc")}, merges=[]))
raw.decoder = decoders.ByteLevel()
raw.add_special_tokens(["<end>"])
compiler = GrammarCompiler(SimpleNamespace(backend_tokenizer=raw), 4, frozenset([3]), limits)

def references(num, depth):
    definitions = {f"a{num}": {"type": "string"}}
    for index in range(num):
        schema = {"$ref": f"#/$defs/a{index + 1}"}
        for _ in range(depth):
            schema = {"anyOf": [schema]}
        definitions[f"a{index}"] = schema
    return json_schema_grammar({"$ref": "#/$defs/a0", "$defs": definitions}, limits)

def rules(num, depth, name):
    lines = [f"start: {name}0"]
    for index in range(num):
        inner = f'"a" {name}{index + 1} "b" | "b" {name}{index + 1}'
        lines.append(f"{name}{index}: {'(' * depth}{inner}{')' * depth}")
    return ebnf_grammar(chr(10).join([*lines, f'{name}{num}: "c"']), limits)

def follow(kind, grammar):
    matcher = compiler.matcher(grammar)
    for _ in range(40):
        if kind != "references":  # This vocabulary has no quotes.
            matcher.allowed()
            matcher.accept(1 if matcher.valid_prefix([1]) else 0)
    print(kind)

threading.stack_size(1 << 20)  # Little is enough to follow what took much to compile.
for kind, make in {
    "references": lambda: references(250, 5),
    "rules": lambda: rules(250, 16, "r"),
    "terminals": lambda: rules(250, 16, "R"),
}.items():
    thread = threading.Thread(target=follow, args=(kind, make()))
    thread.start()
    thread.join()
"""
