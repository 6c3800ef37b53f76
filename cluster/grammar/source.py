"""Grammars from what clients write: JSON schemas, patterns, GBNF or Lark grammars, lists of choices.

Each function checks size and nesting first, since what follows is compiled by native code that recurses, and returns
llguidance's serialised form: a JSON object with a list of grammars. Nothing is compiled here; see `compiler`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark

from cluster.errors import GrammarError
from cluster.grammar.limits import GrammarLimits

MAX_RULES: Final = 256
"""Rules of a grammar, and references of a schema. They are followed by recursion, which ends where the stack does."""

MAX_LEVELS: Final = 4096
"""Rules or references, times the nesting inside of one: the depth that recursion may reach."""

MAX_REPEATS: Final = 2_000
"""Of the characters that repeat what stands before them, in a pattern or grammar: the time grows with their square."""

MAX_PATTERN_PROPERTIES: Final = 32
"""Entries of all `patternProperties` of a schema: each is compared with each."""

JSON_STYLE: Final[Mapping[str, Any]] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write each value, the one that `json.dumps` has: models know it best, and what stands between two values
is forced, so that it needs no pass of its own. With free whitespace nearly nothing would be."""

_LARK = re.compile(r"^\s*(%llguidance\b|start\s*:(?!:=))", re.MULTILINE)
_SPECIAL = re.compile(r"[][\\.+*?()|{}^$#&~-]")
_RULE = re.compile(r"[\w\])}]\s*:")
_OPEN, _CLOSE = "([{", ")]}"


def json_schema_grammar(schema: Mapping[str, Any] | bool, limits: GrammarLimits) -> str:
    """JSON that a schema describes, in one fixed style (`JSON_STYLE`).

    Args:
        schema: a JSON schema; True stands for any JSON value. A `x-guidance` key of its own is not heeded.
        limits: bounds of its size and nesting.

    Raises:
        GrammarError: it is too large, nested too deeply, or allows nothing.
    """
    if schema is False:
        raise GrammarError("the schema allows nothing")
    _check_shape(schema, limits)
    given = {} if schema is True else dict(schema)
    try:
        text = _serialised("json_schema", {**given, "x-guidance": JSON_STYLE})
    except (TypeError, ValueError) as error:
        raise GrammarError(f"the schema is no JSON: {error}") from error
    _check_bytes(text, limits, "schema")
    return text


def json_object_grammar(limits: GrammarLimits) -> str:
    """Any JSON object.

    Raises:
        GrammarError: never, with limits that leave room for a few words.
    """
    return json_schema_grammar({"type": "object"}, limits)


def regex_grammar(pattern: str, limits: GrammarLimits) -> str:
    """Text that a regular expression matches from its beginning to its end; `^` and `$` around it say the same.

    Args:
        pattern: in the syntax of Rust's regex crate: no look-around, no references to groups.
        limits: bounds of its size and nesting.

    Raises:
        GrammarError: it is empty, too large or nested too deeply.
    """
    if not pattern:
        raise GrammarError("the pattern is empty")
    _check_bytes(pattern, limits, "pattern")
    _check_text(pattern, limits, "pattern")
    return LLMatcher.grammar_from_regex(_without_anchors(pattern))


def ebnf_grammar(text: str, limits: GrammarLimits) -> str:
    """Text that a grammar describes: GBNF (`root ::= ...`), or Lark (`start: ...`) as llguidance reads it.

    Args:
        text: the grammar.
        limits: bounds of its size and nesting.

    Raises:
        GrammarError: it is too large, nested too deeply, or no GBNF where it is not Lark.
    """
    _check_bytes(text, limits, "grammar")
    depth = _check_text(text, limits, "grammar")
    _check_levels(len(_RULE.findall(text)), depth, "grammar", "rules")
    if not _LARK.search(text):
        try:
            text = gbnf_to_lark(text)
        except Exception as error:  # the converter raises plain exceptions for what users write
            raise GrammarError(f"the grammar is neither Lark nor GBNF: {error}") from error
    return _serialised("lark_grammar", text)


def choice_grammar(choices: Sequence[str], limits: GrammarLimits) -> str:
    """One of several texts.

    Args:
        choices: at least one, none empty.
        limits: bounds of their number and size.

    Raises:
        GrammarError: there are none, too many, they are too large, or one is empty.
    """
    if not choices:
        raise GrammarError("there is nothing to choose from")
    if len(choices) > limits.max_choices:
        raise GrammarError(f"{len(choices)} choices are too many; at most {limits.max_choices} are allowed")
    if "" in choices:
        raise GrammarError("a choice must not be empty")
    _check_bytes("".join(choices), limits, "list of choices")
    return LLMatcher.grammar_from_regex("|".join(_SPECIAL.sub(r"\\\g<0>", choice) for choice in choices))


def _serialised(kind: str, value: object) -> str:
    return json.dumps({"grammars": [{kind: value}]}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _check_bytes(text: str, limits: GrammarLimits, noun: str) -> None:
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise GrammarError(f"the {noun} holds half a surrogate pair at character {error.start}") from error
    if num_bytes > limits.max_bytes:
        raise GrammarError(f"the {noun} has {num_bytes} bytes; at most {limits.max_bytes} are allowed")


def _check_shape(schema: object, limits: GrammarLimits) -> None:
    """Refuse what is deep, or refers too often, without recursion, which could go as deep."""
    level: list[object] = [schema]
    depth = num_references = num_patterns = 0
    while level:
        depth += 1
        if depth > limits.max_depth + 1:  # the innermost values are no level of their own
            raise GrammarError(f"the schema is nested deeper than {limits.max_depth} levels")
        below: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                num_references += "$ref" in item
                if isinstance(pattern := item.get("pattern"), str):
                    _check_text(pattern, limits, "pattern")
                num_patterns += len(_entries(item.get("patternProperties")))
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        level = below
    _check_levels(num_references, depth, "schema", "references")
    if num_patterns > MAX_PATTERN_PROPERTIES:
        raise GrammarError(f"the schema has {num_patterns} patternProperties; at most {MAX_PATTERN_PROPERTIES}")


def _entries(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _check_levels(num: int, depth: int, noun: str, parts: str) -> None:
    if num > MAX_RULES:
        raise GrammarError(f"the {noun} has {num} {parts}; at most {MAX_RULES} are allowed")
    if num * depth > MAX_LEVELS:
        raise GrammarError(f"the {noun} has {num} {parts} nested up to {depth} levels deep: that may go too deep")


def _check_text(text: str, limits: GrammarLimits, noun: str) -> int:
    """Refuse nested brackets and many repeats, wherever they stand: those inside literals make the bound stricter.

    Returns:
        The deepest nesting.
    """
    if (num_repeats := sum(map(text.count, "?*+{"))) > MAX_REPEATS:
        raise GrammarError(f"the {noun} repeats {num_repeats} parts; at most {MAX_REPEATS} are allowed")
    depth = deepest = 0
    for index, char in enumerate(text):
        if char in _OPEN:
            depth += 1
            deepest = max(deepest, depth)
            if depth > limits.max_depth:
                raise GrammarError(f"the {noun} has more than {limits.max_depth} open brackets at character {index}")
        elif char in _CLOSE:
            depth = max(0, depth - 1)
    return deepest


def _without_anchors(pattern: str) -> str:
    """The pattern without `^` and `$` around it. They bind tighter than `|`, so that alternatives keep theirs."""
    if "|" in pattern:
        return pattern
    pattern = pattern.removeprefix("^")
    num_backslashes = len(pattern.removesuffix("$")) - len(pattern.removesuffix("$").rstrip("\\"))
    return pattern.removesuffix("$") if num_backslashes % 2 == 0 else pattern
