"""The features of `domains`, as data: words, phrases and patterns, with their weights."""

import re
from typing import Final

from cluster.routing.types import Domain

_CODE, _JSON, _RAG = Domain.CODE_SYNTHESIS, Domain.STRUCTURED_JSON, Domain.RAG_SUMMARY
_CREATIVE, _CHAT = Domain.CREATIVE_WRITING, Domain.GENERAL_CHAT

_WORDS: Final[dict[Domain, dict[float, str]]] = {
    _CODE: {
        3.0: "javascript typescript golang kotlin dockerfile leetcode numpy pandas pytest regex docstring",
        2.5: "python sql html css bash java php ruby c# code coding codebase",
        2.0: "algorithm compile compiler debug refactor boolean rust haskell scala",
        1.5: "function functions implement program programming api bug recursive recursion async iterator parser cli",
        1.0: "class method script array integer string variable loop linux git binary sorted database stdin tests",
    },
    _JSON: {
        4.0: "json yaml jsonl",
        3.0: "csv xml schema",
        2.5: "extract key-value structured",
        1.5: "fields field keys parse entities attributes columns tabular extraction",
        1.0: "key values identify classify records format table label",
    },
    _RAG: {
        3.5: "summarize summarise summary summaries tldr",
        2.0: "passage passages document documents article articles excerpt excerpts transcript context",
        1.5: "abstract paragraph condense shorten sources cite minutes highlights",
        1.0: "text paper mentioned stated report source",
    },
    _CREATIVE: {
        3.5: "poem haiku sonnet limerick lyrics screenplay roleplay role-play fairytale ballad poetry stanza",
        3.0: "story stories fiction novel song essay monologue fable",
        2.5: "pretend fantasy narrative verse rhyme rhymes compose creative slogan tale blog persona imagine whimsical",
        2.0: "dialogue advertisement joke invent vivid toast",
        1.5: "caption wizard dragon pirate tagline memoir humorous engaging captivating poetic draft speech scene",
        1.0: "write title headline heartfelt style tone character letter email e-mail post",
    },
    _CHAT: {
        3.0: "translate translation",
        1.5: "explain calculate solve difference recommend advice equation prove meaning",
        1.0: "describe define compare percent tips",
    },
}

WEIGHT_OF: Final[dict[str, tuple[tuple[Domain, float], ...]]] = {}
"""Domain and weight of each word."""

for _domain, _by_weight in _WORDS.items():
    for _weight, _text in _by_weight.items():
        for _word in _text.split():
            WEIGHT_OF[_word] = (*WEIGHT_OF.get(_word, ()), (_domain, _weight))

PHRASES: Final[tuple[tuple[str, Domain, float], ...]] = (
    ("unit test", _CODE, 2.0),
    ("time complexity", _CODE, 2.0),
    ("c++", _CODE, 2.5),
    ("shell command", _CODE, 2.0),
    ("stack trace", _CODE, 2.0),
    ("data frame", _CODE, 1.5),
    ("linked list", _CODE, 2.0),
    ("for loop", _CODE, 1.5),
    ("following format", _JSON, 1.5),
    ("key points", _RAG, 2.5),
    ("main points", _RAG, 2.5),
    ("main idea", _RAG, 2.0),
    ("based on the", _RAG, 1.5),
    ("according to the", _RAG, 1.5),
    ("using only", _RAG, 2.0),
    ("tl;dr", _RAG, 3.5),
    ("act as", _CREATIVE, 2.5),
    ("play the role", _CREATIVE, 3.5),
    ("role of", _CREATIVE, 1.5),
    ("in the style of", _CREATIVE, 3.0),
    ("once upon a time", _CREATIVE, 4.0),
    ("if you were", _CREATIVE, 2.5),
    ("cover letter", _CREATIVE, 1.5),
    ("how many", _CHAT, 1.5),
    ("how much", _CHAT, 1.5),
    ("step by step", _CHAT, 1.0),
)
"""Looked for in the instruction, in lower case."""

_QUESTION_WORDS = "what what's who when where why how which is are was were do does did can could should will would"
FIRST_WORDS: Final = frozenset(_QUESTION_WORDS.split())
"""A prompt that begins so is a question."""

WORD: Final = re.compile(r"[a-z#'-]+")
_MAKE = r"\b(?:write|create|generate|draft|make|give me|build|develop|design|implement|compose|craft|tell|pen)\b"
WRITES_CODE: Final = re.compile(
    _MAKE + r"(?:\W+[\w'+#-]+){0,4}?\W+"
    r"(function|program|script|class|query|method|regex|module|component|endpoint|algorithm|snippet|decorator|app)\b"
)
WRITES_TEXT: Final = re.compile(
    _MAKE
    + r"(?:\W+[\w'-]+){0,4}?\W+(story|poem|song|essay|letter|e-?mail|post|blog|speech|dialogue|scene|article|novel"
    r"|haiku|joke|review|tale|ad|advertisement|description|message|conversation|chapter|biography|toast|slogan|verse)\b"
)

CODE_LINES: Final = re.compile(
    r"""^[ \t]*(?:
        (?:async[ ])?def[ ]\w+[ ]?\( | class[ ]\w+[ ]?[(:{] | @[\w.]+(?:\(|$)
        | import[ ][\w.{*]+(?:;|$|[ ]as) | from[ ][\w.]+[ ]import[ ] | \#include[ ]?[<"] | \#!/ | package[ ]\w+;?$
        | using[ ][\w.]+; | (?:pub[ ])?fn[ ]\w+ | func[ ](?:\(|\w+\() | function[ ]*\w*\(
        | (?:public|private|protected|static)[ ]\w+ | (?:const|let|var)[ ]\w+[ ]?[=:]
        | (?:return|elif|raise|yield)\b[^.?!]{0,80}$ | (?:if|for|while)[ ].{1,80}[:{]$ | (?:else|try):$
        | \w+(?:\.\w+)*\(.{0,80}\);?$ | .{0,120}[;{]$ | \}\)?;?$ | [\w.\[\]]+[ ][-+*/]?=[ ]\S.{0,80}$
        | (?i:select)[ ].{1,120}[ ](?i:from)[ ]\w | (?i:create[ ]table|insert[ ]into)[ ]\w | <(?:html|div|script)\b
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""Lines that look like code in one of the common languages."""

JSON_PAIR: Final = re.compile(r'"[\w -]{1,40}"[ ]?:')
MATERIAL: Final = re.compile(
    r"^\W{0,3}(?:context|document|passage|article|text|source|excerpt|transcript|title|abstract|reference)s?"
    r"(?:[ ]?\#?\d{1,3})?\W{0,2}[:\]\n]|^\[\d{1,2}\]|<(?:context|document|doc|article|passage)s?>",
    re.MULTILINE | re.IGNORECASE,
)
"""What stands before a document."""

QUESTION_LINE: Final = re.compile(r"^\W{0,3}(?:question|query|q)\b\W{0,3}:", re.MULTILINE | re.IGNORECASE)
