"""What the target is asked when it writes training text.

Three kinds: the target invents a user's question itself (the chat template is cut open where the user's turn begins:
Magpie, arXiv 2406.08464) and answers it; it does a task on a passage of real text; it continues a passage as it stands.
Prompt n depends on seed and n alone, so that a run which was interrupted goes on as if it had not been.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from transformers import PreTrainedTokenizerBase

from cluster.training.corpus import Passage

TEMPERATURES = (0.0, 0.0, 0.7, 1.0, 1.0)
"""One of them is drawn for each text but invented questions, which are drawn at temperature 1."""

_MARK = "\ue000"
_QUESTION_SHARE, _TASK_SHARE = 0.6, 0.25

_SYSTEM_PROMPTS = (
    None,
    None,
    None,
    "You help with mathematics. The user asks a word problem with numbers.",
    "You are a programmer. The user asks for a Python function or explains a bug.",
    "The user gives an article and asks for a summary of it.",
    "The user gives some text and asks a question about it, to be answered from the text alone.",
    "The user asks a short question about history, geography, science or sport.",
    "The user wants a text written: an email, a story, a poem, a plan or a blog post.",
    "The user asks you to play a role and to speak as that person.",
    "The user gives a sentence in German and asks for its translation into English.",
    "The user asks to extract names, dates and numbers as JSON or as a table.",
    "The user asks to explain an idea from physics, biology, economics or philosophy.",
)
_TEXT_TASKS = (
    "Summarize: {text}",
    "Summarize the following text in a few sentences.\n\n{text}",
    "{text}\n\nWhat are the main points of this text?",
    "Answer from the following text alone. What is it about, and for whom was it written?\n\n{text}",
    "Document:\n{text}\n\nQuestion: what does the document say? Quote the sentence that matters most.",
    "Rewrite this so that a child understands it:\n\n{text}",
    "Translate into German, then back into English:\n\n{text}",
    "Extract all names in this text as a JSON list.\n\n{text}",
    "Continue this text:\n\n{text}",
    "Ask three questions about the following text and answer them.\n\n{text}",
)
_CODE_TASKS = (
    "Explain what this code does.\n\n```python\n{text}\n```",
    "Add comments to this code:\n\n```python\n{text}\n```",
    "Find bugs in this code and mend them:\n\n```python\n{text}\n```",
    "Write a docstring for each function:\n\n{text}",
    "Rename the variables so that they are easier to read, and print the whole code:\n\n{text}",
    "Write unit tests for this code.\n\n{text}",
    "Complete this code:\n\n```python\n{text}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the words of a prompt come from, for the model card.

    Attributes:
        use: what the target does with them.
        name: the source.
        licence: of the source.
    """

    use: str
    name: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPrompt:
    """One text to generate.

    Attributes:
        token_ids: the prompt.
        temperature: of the text that follows.
        max_tokens: of the text that follows.
        source: goes into the card.
        asks_user: True when what follows is a user's question, which shall be answered in a second text.
    """

    token_ids: tuple[int, ...]
    temperature: float
    max_tokens: int
    source: Source
    asks_user: bool = False


INVENTED = Source(use="questions and their answers", name="the target itself", licence="that of the target")


class PromptWriter:
    """Makes prompts by number, the same for the same seed.

    Args:
        tokenizer: the target's. Without a chat template there are continuations only.
        passages: real text, at least one.
        seed: decides everything.
        max_tokens: longest text to generate.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, passages: Sequence[Passage], *, seed: int, max_tokens: int
    ) -> None:
        self._tokenizer, self._passages, self._max_tokens = tokenizer, passages, max_tokens
        self._seed = seed

    def prompt(self, index: int) -> TrainingPrompt:
        """Prompt number `index`, from 0; for ever."""
        rng = random.Random(f"{self._seed}/{index}")
        passage = self._passages[index % len(self._passages)]
        kind = rng.random() if self._tokenizer.chat_template else 1.0
        if kind < _QUESTION_SHARE:
            return self._question(rng)
        return self._task(passage, rng) if kind < _QUESTION_SHARE + _TASK_SHARE else self._continuation(passage, rng)

    def answer(self, question: str, index: int) -> TrainingPrompt:
        """The prompt that has `question` answered, which was written for prompt number `index`."""
        rng = random.Random(f"{self._seed}/{index}/answer")
        return self._written(self._chat(question), INVENTED, rng)

    def _question(self, rng: random.Random) -> TrainingPrompt:
        text = self._render(_MARK, rng.choice(_SYSTEM_PROMPTS)).split(_MARK)[0]
        return TrainingPrompt(
            token_ids=self._encode(text),
            temperature=1.0,
            max_tokens=self._max_tokens // 2,
            source=INVENTED,
            asks_user=True,
        )

    def _task(self, passage: Passage, rng: random.Random) -> TrainingPrompt:
        task = rng.choice(_CODE_TASKS if passage.is_code else _TEXT_TASKS)
        source = Source(use="tasks on passages", name=passage.source, licence=passage.licence)
        return self._written(self._chat(task.replace("{text}", passage.text)), source, rng)

    def _continuation(self, passage: Passage, rng: random.Random) -> TrainingPrompt:
        source = Source(use="continuations of passages", name=passage.source, licence=passage.licence)
        return self._written(self._encode(passage.text), source, rng)

    def _written(self, token_ids: tuple[int, ...], source: Source, rng: random.Random) -> TrainingPrompt:
        return TrainingPrompt(
            token_ids=token_ids, temperature=rng.choice(TEMPERATURES), max_tokens=self._max_tokens, source=source
        )

    def _chat(self, user: str) -> tuple[int, ...]:
        return self._encode(self._render(user, None))

    def _render(self, user: str, system: str | None) -> str:
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": user})
        return cast(str, self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))
