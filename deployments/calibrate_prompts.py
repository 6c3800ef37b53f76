"""Prompts of `outrider calibrate`: five classes of text that differ in how well they can be guessed."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cluster.engine.lossless import builtin_prompts
from cluster.engine.lossless.prompts import Prompt, encode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NAMES = ("Ada", "Bo", "Cy", "Dee", "Eli", "Flo", "Gus", "Hal", "Ida", "Jo", "Kim")
_CITIES = ("Oslo", "Rome", "Lima", "Kyiv", "Bonn", "Cork", "Riga", "Bern", "Nice", "York", "Graz", "Lodz", "Pula")
_CLASSES = ("Basket", "Queue", "Ledger", "Album", "Garden", "Shelf", "Ticket", "Parcel", "Signal", "Folder")
_GOODS = ("price", "count", "weight", "label", "colour", "length", "owner", "status", "rating")
_PEOPLE = ("lighthouse keeper", "baker", "pilot", "beekeeper", "clockmaker", "ferryman", "gardener", "tailor", "miner")
_FINDS = ("a letter in a bottle", "a door that was not there before", "an old map", "a talking crow", "a lost key")
_NUM_RECORDS = 5


def workload_prompt(workload: str, index: int, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """Token ids of one prompt; prompts of different `index` differ.

    Args:
        workload: one of `WORKLOADS`.
        index: which one, from 0 on.
        tokenizer: of the target; instructions go through its chat template if it has one.
    """
    return encode(_WRITERS[workload](index), tokenizer)


def _chat(name: str, text: str) -> Prompt:
    return Prompt(name=name, messages=({"role": "user", "content": text},))


def _records(index: int) -> str:
    numbers = range(_NUM_RECORDS * index, _NUM_RECORDS * (index + 1))
    return "\n".join(
        f'{{"id": {100 + n}, "name": "{_NAMES[n % len(_NAMES)]}", "city": "{_CITIES[n % len(_CITIES)]}"}}'
        for n in numbers
    )


def _copy(index: int) -> Prompt:
    return _chat("copy", f"Copy these JSON records exactly, line by line, and add nothing:\n\n{_records(index)}")


def _edit(index: int) -> Prompt:
    name, kind = _CLASSES[index % len(_CLASSES)], _GOODS[index % len(_GOODS)]
    source = (
        f"class {name}:\n"
        f"    def __init__(self, {kind}, number={index}):\n"
        f"        self.{kind} = {kind}\n"
        f"        self.number = number\n\n"
        f"    def copy(self):\n"
        f"        return {name}(self.{kind}, self.number)\n\n"
        f"    def __repr__(self):\n"
        f'        return f"{name}({{self.{kind}}}, {{self.number}})"\n'
    )
    return _chat("edit", f"Rename the class {name} to Item{index} and return the whole file:\n\n```python\n{source}```")


def _code(index: int) -> Prompt:
    number, which = divmod(index, len(builtin_prompts.CODE))
    head = "".join(f"# part {part}\n" for part in range(1, number + 1))
    return Prompt(name="code", text=head + builtin_prompts.CODE[which])


def _story(index: int) -> Prompt:
    person, find = _PEOPLE[index % len(_PEOPLE)], _FINDS[index % len(_FINDS)]
    return _chat("chat", f"Write a short story about a {person}, {20 + index} years old, who finds {find}.")


def _json(index: int) -> Prompt:
    lines = "\n".join(
        f"{_NAMES[n % len(_NAMES)]} is {20 + n % 60} years old and lives in {_CITIES[n % len(_CITIES)]}."
        for n in range(_NUM_RECORDS * index, _NUM_RECORDS * (index + 1))
    )
    return _chat("json", f"Answer with a JSON list only, an object with name, age and city for each person:\n\n{lines}")


_WRITERS: Mapping[str, Callable[[int], Prompt]] = {
    "copy": _copy,
    "edit": _edit,
    "code": _code,
    "chat": _story,
    "json": _json,
}

WORKLOADS = tuple(_WRITERS)
"""Classes of text: `copy` repeats its prompt, `edit` nearly, `json` in part, `code` repeats itself, `chat` nothing."""
