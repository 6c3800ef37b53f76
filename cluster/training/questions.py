"""What acceptance is measured on: Spec-Bench and HumanEval. Nothing that trains may import this."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.engine.lossless.prompts import human_eval_prompts
from cluster.errors import ConfigError

HUMAN_EVAL = "humaneval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A test prompt.

    Attributes:
        category: Spec-Bench's own, or "humaneval".
        turns: what the user says, turn by turn; the target answers each.
        is_chat: goes through the chat template; else the text is continued as it stands.
    """

    category: str
    turns: tuple[str, ...]
    is_chat: bool


def collect_questions(spec_bench: Path | None, limit: int | None) -> list[Question]:
    """Questions of Spec-Bench, if a file is given, and HumanEval, if the package `human-eval` is installed.

    Args:
        spec_bench: JSON lines with `category` and `turns`.
        limit: most questions of a category; None for all.

    Raises:
        ConfigError: the file cannot be read, or there is no question at all.
    """
    questions = read_spec_bench(spec_bench) if spec_bench is not None else []
    questions += [Question(category=HUMAN_EVAL, turns=(p.text,), is_chat=False) for p in human_eval_prompts()]
    if not questions:
        allowed = "a file of Spec-Bench's questions, as the package human-eval is not installed either"
        raise ConfigError(field="--spec-bench", value=None, allowed=allowed)
    return list(_first_of_each(questions, limit))


def read_spec_bench(path: Path) -> list[Question]:
    """All questions of a file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        turns = [tuple(map(str, record["turns"])) for record in records]
        if not all(turns):
            raise ValueError("a question without turns")
        return [
            Question(category=str(record["category"]), turns=own, is_chat=True)
            for record, own in zip(records, turns, strict=True)
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        allowed = f"a file of Spec-Bench's questions ({type(error).__name__}: {error})"
        raise ConfigError(field="--spec-bench", value=str(path), allowed=allowed) from None


def _first_of_each(questions: Sequence[Question], limit: int | None) -> Iterable[Question]:
    seen: dict[str, int] = defaultdict(int)
    for question in questions:
        seen[question.category] += 1
        if limit is None or seen[question.category] <= limit:
            yield question
