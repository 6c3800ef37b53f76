"""The calls of the load, and the part of an answer that has to be the same whenever it is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

CHAT, TEXT, SEED = "/v1/chat/completions", "/v1/completions", "/v1/chat/speculative-completions"

_CARRIAGE = "An outrider rides ahead of the carriage"
_CODE = "def fibonacci(n):\n    if n < 2:\n        return n\n"
_USER = [{"role": "user", "content": "Whatever the batch, the text stays the same."}]
_TURNS = [
    {"role": "system", "content": "Answer quickly."},
    {"role": "user", "content": "Who rides ahead?"},
    {"role": "assistant", "content": "The drafter."},
    {"role": "user", "content": "And who checks?"},
]

_SCHEMA = {"type": "object", "properties": {"first": {"type": "string"}, "others": {"type": "array"}}}

_CHANGES = frozenset({"created", "drafter", "drafter_reason", "numerics"})
"""Fields of other routes' answers that say when, or by whom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Something that clients ask for.

    Attributes:
        name: in the report.
        path: of the route.
        body: of a POST; None for a GET.
        is_probe: 503 is a good answer: whoever asks wants to know.
        is_compared: False where each answer is another one.
    """

    name: str
    path: str
    body: Mapping[str, Any] | None = None
    is_probe: bool = False
    is_compared: bool = True

    @property
    def generates(self) -> bool:
        """True where the answer can be streamed."""
        return self.path in (CHAT, TEXT) and self.name not in REFUSED


REFUSED = ("n = 17", "another model", "a wrong type")


def _generations() -> Mapping[str, tuple[str, dict[str, Any]]]:
    """Bodies by name. Seeds are given wherever tokens are drawn."""
    return {
        "greedy": (TEXT, {"prompt": _CARRIAGE, "max_tokens": 48, "temperature": 0}),
        "sampled": (TEXT, {"prompt": _CODE, "max_tokens": 64, "temperature": 0.7, "seed": 3}),
        "long, n = 2": (TEXT, {"prompt": _CODE, "max_tokens": 700, "n": 2, "temperature": 0.7, "seed": 5}),
        "long, greedy": (TEXT, {"prompt": _CARRIAGE, "max_tokens": 900, "temperature": 0}),
        "n = 4, hot": (TEXT, {"prompt": _CARRIAGE, "max_tokens": 40, "n": 4, "temperature": 1.3, "seed": 7}),
        "stop strings": (
            TEXT,
            {"prompt": _CODE, "max_tokens": 120, "temperature": 1, "seed": 11, "stop": ["ifier", "carriage", "henry"]},
        ),
        "penalties": (
            TEXT,
            {
                "prompt": _CARRIAGE, "max_tokens": 150, "temperature": 0.8, "seed": 13, "frequency_penalty": 0.7,
                "presence_penalty": 0.4, "repetition_penalty": 1.2, "min_tokens": 20,
            },
        ),
        "logprobs": (TEXT, {"prompt": _CODE, "max_tokens": 60, "temperature": 0.5, "seed": 17, "logprobs": 3}),
        "two prompts": (
            TEXT,
            {"prompt": [_CODE, _CARRIAGE], "max_tokens": 60, "temperature": 0.9, "seed": 19, "return_token_ids": True},
        ),
        "cut distributions": (
            TEXT,
            {"prompt": _CARRIAGE, "max_tokens": 80, "temperature": 1, "seed": 23, "top_p": 0.9, "top_k": 40},
        ),
        "chat": (CHAT, {"messages": _USER, "max_tokens": 60, "temperature": 0.7, "seed": 29}),
        "chat, turns, n = 2": (CHAT, {"messages": _TURNS, "max_tokens": 200, "n": 2, "temperature": 1, "seed": 31}),
        "chat, logprobs": (
            CHAT,
            {
                "messages": _USER, "max_tokens": 50, "temperature": 0.6, "seed": 37, "logprobs": True,
                "top_logprobs": 2, "min_p": 0.02,
            },
        ),
        "grammar": (
            CHAT,
            {
                "messages": _USER, "max_tokens": 200, "temperature": 0.8, "seed": 43,
                "response_format": {"type": "json_schema", "json_schema": {"name": "riders", "schema": _SCHEMA}},
            },
        ),
        "chat, long": (CHAT, {"messages": _TURNS, "max_tokens": 800, "temperature": 0.7, "seed": 41}),
    }  # fmt: skip


def _generation(name: str, where: tuple[str, dict[str, Any]]) -> Call:
    path, body = where
    return Call(name=name, path=path, body={"ignore_eos": "stop" not in body} | body)


CALLS: tuple[Call, ...] = (
    *starmap(_generation, _generations().items()),
    Call(name="seed service", path=SEED, body={"prompt": _CODE, "max_tokens": 40, "temperature": 0}),
    Call(name="tokenize", path="/tokenize", body={"messages": _TURNS, "return_token_strs": True}),
    Call(name="detokenize", path="/detokenize", body={"tokens": list(range(40, 300))}),
    Call(name="models", path="/v1/models"),
    Call(name="version", path="/version"),
    Call(name="routing snapshot", path="/v1/routing/snapshot", is_compared=False),
    Call(name="metrics", path="/metrics", is_compared=False),
    Call(name="health", path="/health", is_probe=True),
    Call(name="ready", path="/ready", is_probe=True),
    Call(name="n = 17", path=TEXT, body={"prompt": "a", "n": 17}),
    Call(name="another model", path=CHAT, body={"messages": _USER, "model": "another"}),
    Call(name="a wrong type", path=CHAT, body={"messages": "no list"}),
)


@dataclass(slots=True)
class Said:
    """One choice as far as it has come, whole or in pieces.

    Attributes:
        text: of the choice.
        token_ids: where they were asked for.
        logprobs: entries in order, whatever their form.
        end: why it ended; None before.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    end: tuple[str, object] | None = None

    def add(self, choice: Mapping[str, Any]) -> None:
        """Take in a choice of a whole answer, or of a chunk."""
        message = choice.get("message") or choice.get("delta") or {}
        self.text += choice.get("text") or message.get("content") or ""
        self.token_ids += choice.get("token_ids") or []
        for key, values in (choice.get("logprobs") or {}).items():
            self.logprobs.setdefault(key, []).extend(values or [])
        if choice.get("finish_reason") is not None:
            self.end = (choice["finish_reason"], choice.get("stop_reason"))


@dataclass(slots=True)
class Spoken:
    """A generated answer.

    Attributes:
        choices: by index.
        counts: prompt and output tokens; None before they came.
    """

    choices: dict[int, Said] = field(default_factory=dict)
    counts: tuple[int, int] | None = None

    def add(self, body: Mapping[str, Any]) -> None:
        """Take in a whole answer, or a chunk."""
        for choice in body["choices"]:
            self.choices.setdefault(choice["index"], Said()).add(choice)
        if usage := body.get("usage"):
            self.counts = (usage["prompt_tokens"], usage["completion_tokens"])

    def is_beginning_of(self, other: "Spoken") -> bool:
        """True where nothing that came differs from the other."""
        return all(
            index in other.choices
            and other.choices[index].text.startswith(said.text)
            and other.choices[index].token_ids[: len(said.token_ids)] == said.token_ids
            for index, said in self.choices.items()
        )


def spoken(bodies: Sequence[Mapping[str, Any]]) -> Spoken:
    """A whole answer, or all chunks of one."""
    answer = Spoken()
    for body in bodies:
        answer.add(body)
    return answer


def stable(call: Call, status: int, body: Any) -> object:
    """The part of a whole answer that may not depend on when it was given.

    Args:
        call: what was asked for.
        status: of the answer.
        body: JSON, or text where that is what the route has.
    """
    if status != 200:
        return status, body["error"]["code"]
    if call.generates:
        return spoken([body])
    if call.path == SEED:
        return body["text"], body["total_tokens"]
    if not call.is_compared:
        return None
    return _without_changes(body)


def _without_changes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_changes(item) for key, item in value.items() if key not in _CHANGES}
    return [_without_changes(item) for item in value] if isinstance(value, list) else value
