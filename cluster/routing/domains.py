"""What kind of text a prompt asks for, from features that can be read off in microseconds.

Each feature that is present adds its weight to one domain; the largest sum wins. The weights are set by hand and stand
in `domain_words` in the open. A word counts once however often it comes, and words are looked for only where an
instruction stands, at the beginning and the end. What lies between is material (a document, a file of code): only its
form counts. The words are English; a prompt in another language is judged by its form.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cluster.routing.domain_words import (
    CODE_LINES,
    FIRST_WORDS,
    JSON_PAIR,
    MATERIAL,
    PHRASES,
    QUESTION_LINE,
    WEIGHT_OF,
    WORD,
    WRITES_CODE,
    WRITES_TEXT,
)
from cluster.routing.types import Domain

INSTRUCTION_CHARS: Final = 320
"""So much of the beginning and of the end is read for words."""

FORM_CHARS: Final = 1_200
"""So much of the beginning and of the end is read for form."""

TURN_WEIGHTS: Final = (1.0, 0.5, 0.25)
"""What the user's last messages count in a conversation, newest first: "make it shorter" says little by itself."""

_MAX_CODE_LINES, _CODE_LINE = 4, 1.2
_LONG_CHARS, _VERY_LONG_CHARS = 1_200, 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What a prompt was taken for.

    Attributes:
        domain: with the largest sum of weights.
        confidence: its softmax share of the sums, 0..1.
        scores: the sums.
        evidence: what they are made of: the feature in words, the domain that it speaks for, and its weight.
    """

    domain: Domain
    confidence: float
    scores: Mapping[Domain, float]
    evidence: tuple[tuple[str, Domain, float], ...]


def detect(text: str, response_format: str | None = None) -> Detection:
    """What kind of text a prompt asks for.

    Looks at no more than `FORM_CHARS` characters of each end, so the time is bounded whatever the length.

    Args:
        text: the prompt.
        response_format: the form that the client demands of the answer, as `json_object`; None or "text" for none.
    """
    return detect_chat((text,), response_format=response_format)


def detect_chat(turns: Sequence[str], system: str = "", response_format: str | None = None) -> Detection:
    """What kind of text a conversation asks for now.

    The user's last message and the beginning of the system prompt; the two messages before count a half and a quarter.

    Args:
        turns: the user's messages, oldest first.
        system: the system prompt.
        response_format: as for `detect`.
    """
    found = _Findings()
    found.add("general chat unless something speaks against it", Domain.GENERAL_CHAT, 1.0)
    if response_format not in (None, "text"):
        found.add(f"response_format {response_format}", Domain.STRUCTURED_JSON, 8.0)
    if system:
        found.source = "system prompt, "
        _add_words(found, system[:INSTRUCTION_CHARS].lower())
    for age, (turn, weight) in enumerate(zip(reversed(turns), TURN_WEIGHTS, strict=False)):
        found.source, found.factor = ("earlier message, " if age else ""), weight
        _add_text(found, turn)
    return found.judge()


class _Findings:
    """Evidence and the sums of its weights.

    Attributes:
        source: where features come from that are added now.
        factor: what their weights are multiplied with.
    """

    def __init__(self) -> None:
        self.source, self.factor = "", 1.0
        self._scores = dict.fromkeys(Domain, 0.0)
        self._evidence: list[tuple[str, Domain, float]] = []

    def add(self, feature: str, domain: Domain, weight: float) -> None:
        self._scores[domain] += self.factor * weight
        self._evidence.append((self.source + feature, domain, self.factor * weight))

    def judge(self) -> Detection:
        """The domain with the largest sum; of equal ones the first as `Domain` lists them."""
        best = max(self._scores, key=self._scores.__getitem__)
        share = 1 / sum(math.exp(score - self._scores[best]) for score in self._scores.values())
        return Detection(domain=best, confidence=share, scores=self._scores, evidence=tuple(self._evidence))


def _add_text(found: _Findings, text: str) -> None:
    form = _ends(text, FORM_CHARS)
    _add_words(found, _ends(text, INSTRUCTION_CHARS).lower())
    is_code = _add_code(found, form)
    _add_structure(found, form)
    _add_material(found, form, len(text), is_code=is_code)


def _ends(text: str, num_chars: int) -> str:
    return text if len(text) <= 2 * num_chars else f"{text[:num_chars]}\n{text[-num_chars:]}"


def _add_words(found: _Findings, instruction: str) -> None:
    words = WORD.findall(instruction)
    for word in dict.fromkeys(words):
        for domain, weight in WEIGHT_OF.get(word, ()):
            found.add(f"word: {word}", domain, weight)
    for phrase, domain, weight in PHRASES:
        if phrase in instruction:
            found.add(f"phrase: {phrase}", domain, weight)
    if match := WRITES_CODE.search(instruction):
        found.add(f"asks for code: {match.group(1)}", Domain.CODE_SYNTHESIS, 2.0)
    if match := WRITES_TEXT.search(instruction):
        found.add(f"asks for a piece of writing: {match.group(1)}", Domain.CREATIVE_WRITING, 2.0)
    if words and words[0] in FIRST_WORDS:
        found.add(f"begins with a question word: {words[0]}", Domain.GENERAL_CHAT, 1.0)
    if len(instruction) < INSTRUCTION_CHARS and instruction.rstrip().endswith("?"):
        found.add("ends with a question mark", Domain.GENERAL_CHAT, 0.75)


def _add_code(found: _Findings, form: str) -> bool:
    """Returns whether the prompt holds code."""
    num_lines = sum(1 for _ in islice(CODE_LINES.finditer(form), _MAX_CODE_LINES))
    if num_lines:
        found.add(f"lines of code: {num_lines}", Domain.CODE_SYNTHESIS, _CODE_LINE * num_lines)
    if '"""' in form or "'''" in form or ">>> " in form:
        found.add("docstring", Domain.CODE_SYNTHESIS, 1.5)
    is_fenced = "```" in form and not any(f"```{name}" in form for name in ("json", "yaml", "text"))
    if is_fenced:
        found.add("code fence", Domain.CODE_SYNTHESIS, 1.5)
    return num_lines >= 2 or is_fenced


def _add_structure(found: _Findings, form: str) -> None:
    if "```json" in form or "```yaml" in form:
        found.add("JSON or YAML fence", Domain.STRUCTURED_JSON, 2.5)
    if sum(1 for _ in islice(JSON_PAIR.finditer(form), 2)) == 2:
        found.add("JSON pairs", Domain.STRUCTURED_JSON, 2.0)


def _add_material(found: _Findings, form: str, num_chars: int, *, is_code: bool) -> None:
    """Documents to work on: long prose, or a heading such as `Context:` before text."""
    is_long = num_chars >= _LONG_CHARS and not is_code
    if is_long:
        found.add("long text", Domain.RAG_SUMMARY, 3.5 if num_chars >= _VERY_LONG_CHARS else 2.5)
    num_headings = sum(1 for _ in islice(MATERIAL.finditer(form), 2))
    if num_headings and not is_code:
        found.add(f"headings of documents: {num_headings}", Domain.RAG_SUMMARY, 1.0 + 0.75 * num_headings)
    if (is_long or num_headings) and QUESTION_LINE.search(form):
        found.add("question about documents", Domain.RAG_SUMMARY, 1.5)
