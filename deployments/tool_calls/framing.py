"""How models write tool calls, and which of these ways a chat template teaches.

Sources: the chat templates of Hermes 2 Pro and Qwen 2.5 (hermes), Llama 3.1 and 3.2 (llama3_json), Mistral v0.3 and
later (mistral); vLLM's tool parsers of the same names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ParserName = Literal["auto", "hermes", "llama3_json", "mistral", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """What stands around calls. A call itself is a JSON object with name and arguments (or parameters).

    Attributes:
        opening: text that announces calls; empty where nothing does.
        first: an answer whose first character this is begins with a call, announced or not; empty for none.
        closing: text that may follow a call.
        separator: character between two calls; empty where each is announced.
        in_list: calls may stand in brackets.
        has_bare_names: a call may be its name with the arguments behind it.
        has_short_ids: ids of calls must be nine letters or digits.
    """

    opening: str = ""
    first: str = ""
    closing: str = ""
    separator: str = ""
    in_list: bool = False
    has_bare_names: bool = False
    has_short_ids: bool = False


FRAMINGS: Mapping[str, Framing] = {
    "hermes": Framing(opening="<tool_call>", closing="</tool_call>"),
    "llama3_json": Framing(opening="<|python_tag|>", first="{", separator=";"),
    "mistral": Framing(
        opening="[TOOL_CALLS]", separator=",", in_list=True, has_bare_names=True, has_short_ids=True
    ),
}  # fmt: skip
"""The ways that answers are searched for calls, by the parser's name."""

FORCED = Framing(first="[", separator=",", in_list=True)
"""The list of calls that a grammar forces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTraits:
    """What a chat template does with tools.

    Attributes:
        knows_tools: it shows them to the model.
        framing: how it teaches the model to call them; None if that is not one of `FRAMINGS`.
    """

    knows_tools: bool
    framing: Framing | None


def traits_of(template: object) -> TemplateTraits:
    """Read them off a template, or off the named templates of a model that has several.

    A template that knows no tools is helped with a system message that asks for the hermes way.
    """
    text = _text_of(template)
    if not re.search(r"\btools\b", text):
        return TemplateTraits(knows_tools=False, framing=FRAMINGS["hermes"])
    name = None
    if "[TOOL_CALLS]" in text:
        name = "mistral"
    elif "<|python_tag|>" in text or '"parameters": dictionary' in text:
        name = "llama3_json"
    elif "<tool_call>" in text and "<function=" not in text:
        name = "hermes"
    return TemplateTraits(knows_tools=True, framing=FRAMINGS[name] if name else None)


def _text_of(template: object) -> str:
    """The template that transformers takes for a request with tools."""
    if isinstance(template, Mapping):
        template = template.get("tool_use") or template.get("default")
    return template if isinstance(template, str) else ""
